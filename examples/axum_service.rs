//! A service with a route of its own: a prompt comes in as JSON, and the most probable text goes out with its score.
//!
//! `cargo run --release --features serve --example axum_service`, or with a model of yours: `… -- path/to/llama`
//!
//! `curl localhost:8080/stories --json '{"prompt": "Near the lake", "num_beams": 3}'`

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use rsgen::{ErrorKind, GenerationConfig, Generator};
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
struct Wish {
    prompt: String,
    num_beams: usize,
}

#[derive(Serialize)]
struct Story {
    text: String,
    score: f32,
}

async fn story(
    State(generator): State<Generator>,
    Json(wish): Json<Wish>,
) -> Result<Json<Story>, (StatusCode, String)> {
    // A handler is dropped when its client leaves; the weak pointer tells the thread that computes.
    let client = Arc::new(());
    let waiting = Arc::downgrade(&client);
    let told =
        tokio::task::spawn_blocking(move || tell(&generator, wish, &mut || waiting.strong_count() == 0))
            .await;
    drop(client);
    match told {
        Ok(Ok(story)) => Ok(Json(story)),
        Ok(Err(error)) if matches!(error.kind(), ErrorKind::Config | ErrorKind::Input) => {
            Err((StatusCode::BAD_REQUEST, error.to_string()))
        }
        Ok(Err(error)) => Err((StatusCode::INTERNAL_SERVER_ERROR, error.to_string())),
        Err(_) => Err((StatusCode::INTERNAL_SERVER_ERROR, "the story was not finished".to_owned())),
    }
}

fn tell(generator: &Generator, wish: Wish, left: &mut dyn FnMut() -> bool) -> rsgen::Result<Story> {
    let config = GenerationConfig::new().num_beams(wish.num_beams).max_new_tokens(20);
    let output = generator.call(wish.prompt).config(&config).prepare(false, left)?.run(left)?;
    let score = output.rows[0].generated.score.unwrap_or_default();
    Ok(Story { text: output.text().to_owned(), score })
}

fn service(generator: Generator) -> Router {
    Router::new().route("/stories", post(story)).with_state(generator)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let generator = match std::env::args().nth(1) {
        Some(folder) => Generator::open(folder)?,
        None => Generator::bundled()?,
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
    axum::serve(listener, service(generator)).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answers of the service to bodies, each with its status.
    fn answers(bodies: &[&str]) -> Vec<(u16, String)> {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = format!("http://{}/stories", listener.local_addr().unwrap());
        runtime.spawn(async { axum::serve(listener, service(Generator::bundled().unwrap())).await });
        let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let answer = |body: &&str| {
            let request = agent.post(&address).header("Content-Type", "application/json");
            let mut response = request.send(*body).unwrap();
            (response.status().as_u16(), response.body_mut().read_to_string().unwrap())
        };
        bodies.iter().map(answer).collect()
    }

    #[test]
    fn the_service_answers_what_its_page_says() {
        let page = include_str!("../docs/recipes/axum_service.md");
        let [good, bad] =
            [3, 0].map(|beams| format!(r#"{{"prompt": "Near the lake", "num_beams": {beams}}}"#));
        let answers = answers(&[&good, &bad]);
        assert_eq!((answers[0].0, answers[1].0), (200, 400));
        for (_, answer) in answers {
            assert!(page.contains(&format!("\n{answer}\n")), "{answer}");
        }
    }
}
