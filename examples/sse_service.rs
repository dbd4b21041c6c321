//! A service of its own with the routes of rsgen in it: OpenAI's API below `/model`, beside whatever else it does.
//!
//! `cargo run --release --features serve --example sse_service`, or with a model of yours: `… -- path/to/llama`
//!
//! `curl -N localhost:8080/model/v1/completions --json '{"prompt": "Once upon a time", "stream": true}'`

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let generator = match std::env::args().nth(1) {
        Some(folder) => rsgen::Generator::open(folder)?,
        None => rsgen::Generator::bundled()?,
    };
    let app = axum::Router::new().nest("/model", rsgen::serve::router(generator));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
    axum::serve(listener, app).await?;
    Ok(())
}
