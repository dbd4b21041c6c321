//! A service: any number of clients, one model, and tokens as server-sent events while they are generated.
//!
//! `cargo run --release --example sse_service`, or with a model of yours: `… -- path/to/llama`
//!
//! `curl -N localhost:8080/generate --json '{"prompt": "Once upon a time", "max_new_tokens": 40}'`
//!
//! The library has no asynchronous code: it computes on the thread that asks for the next token. So each request has a
//! blocking thread, and a bounded channel from there to its connection. The two ends of the channel are all that a
//! request consists of: when the client leaves, the connection drops its end, which the thread asks for every few
//! milliseconds, also within a long prompt; and when the thread drops the stream, its part of the KV cache is free.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, State, rejection::JsonRejection};
use axum::http::{StatusCode, header::RETRY_AFTER};
use axum::response::{IntoResponse, Response, Sse, sse};
use axum::{Json, Router, routing};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::spawn_blocking;
use tokio_stream::wrappers::ReceiverStream;

use rsgen::engine::{StreamedToken, TokenStream, Usage};
use rsgen::{Error, ErrorKind, FinishReason, GenerationConfig, Generator};

/// The most requests at a time; each takes a thread, and its part of the KV cache. The next is told to come again.
const MAX_REQUESTS: usize = 16;
/// The most bytes of a request.
pub(crate) const MAX_BODY: usize = 256 << 10;
/// The new tokens of a request that does not say how many.
const DEFAULT_NEW_TOKENS: usize = 256;
/// The tokens that are generated ahead of a client that reads slowly.
const AHEAD: usize = 16;
/// How long a client may read nothing at all before it counts as gone.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long requests may go on after the signal to stop.
const GRACE: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let generator = match std::env::args().nth(1) {
        Some(folder) => Generator::open(folder)?,
        None => Generator::bundled()?,
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
    println!("{} on http://{}", generator.name(), listener.local_addr()?);
    let service = Service { generator, places: Arc::new(Semaphore::new(MAX_REQUESTS)) };
    // The first signal lets requests come to their end; the second, or the time, ends them.
    let hurry = async {
        signal().await;
        let _ = tokio::time::timeout(GRACE, signal()).await;
    };
    tokio::select! {
        served = axum::serve(listener, app(service)).with_graceful_shutdown(signal()) => Ok(served?),
        () = hurry => Ok(()),
    }
}

/// Ctrl-C, or the signal by which systems end a service.
pub(crate) async fn signal() {
    #[cfg(unix)]
    if let Ok(mut terminate) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => return,
            _ = terminate.recv() => return,
        }
    }
    let _ = tokio::signal::ctrl_c().await;
}

type Event = Result<sse::Event, Infallible>;

/// What all requests share.
#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) generator: Generator,
    pub(crate) places: Arc<Semaphore>,
}

pub(crate) fn app(service: Service) -> Router {
    Router::new()
        .route("/generate", routing::post(generate))
        .route("/health", routing::get(health))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(service)
}

/// What a client may ask for: these fields of a [`GenerationConfig`], and no others.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GenerateRequest {
    prompt: String,
    max_new_tokens: Option<usize>,
    do_sample: Option<bool>,
    temperature: Option<f64>,
    top_k: Option<usize>,
    top_p: Option<f64>,
    repetition_penalty: Option<f64>,
    seed: Option<u64>,
    #[serde(alias = "stop")]
    stop_strings: Option<Vec<String>>,
}

impl GenerateRequest {
    fn config(&self) -> GenerationConfig {
        let mut config =
            GenerationConfig::new().max_new_tokens(self.max_new_tokens.unwrap_or(DEFAULT_NEW_TOKENS));
        config.do_sample = self.do_sample;
        config.temperature = self.temperature;
        config.top_k = self.top_k;
        config.top_p = self.top_p;
        config.repetition_penalty = self.repetition_penalty;
        config.seed = self.seed.map(Into::into);
        config.stop_strings = self.stop_strings.clone().map(Into::into);
        config
    }
}

async fn health(State(service): State<Service>) -> Json<Value> {
    let blocks = service.generator.engine().pool().stats();
    Json(json!({
        "model": service.generator.name(),
        "free_places": service.places.available_permits(),
        "free_blocks": blocks.available_blocks,
    }))
}

async fn generate(
    State(service): State<Service>,
    request: Result<Json<GenerateRequest>, JsonRejection>,
) -> Result<Response, Failure> {
    let Json(request) = request?;
    let place = service.places.try_acquire_owned().map_err(|_| Error::capacity("all places are taken"))?;
    // Encodes the prompt, checks everything and reserves the cache: errors come before the first byte of the answer.
    let checked =
        spawn_blocking(move || (place, service.generator.stream(&*request.prompt, &request.config())));
    let (place, stream) = checked.await.map_err(|error| Error::internal(error.to_string()))?;
    let stream = stream?;
    let (sender, receiver) = mpsc::channel(AHEAD);
    spawn_blocking(move || {
        send_tokens(stream, &sender, PATIENCE);
        drop(place);
    });
    // A comment now and then keeps proxies from closing a silent connection, and finds clients whose network is gone.
    Ok(Sse::new(ReceiverStream::new(receiver)).keep_alive(sse::KeepAlive::default()).into_response())
}

/// Generates on this thread, until the end or until nobody listens any more.
pub(crate) fn send_tokens(mut stream: TokenStream, sender: &mpsc::Sender<Event>, patience: Duration) {
    loop {
        let (name, data) = match stream.next_token(&mut || sender.is_closed()) {
            Ok(Some(StreamedToken { id, text, logprob, finish_reason, .. })) => {
                let reason = finish_reason.map(FinishReason::as_str);
                ("token", json!({ "id": id.0, "text": text, "logprob": logprob, "finish_reason": reason }))
            }
            Ok(None) => {
                let Usage { prompt_tokens, generated_tokens } =
                    stream.output().map(|output| output.usage).unwrap_or_default();
                ("usage", json!({ "prompt_tokens": prompt_tokens, "generated_tokens": generated_tokens }))
            }
            Err(error) => ("error", Failure::from(error).json()),
        };
        let event = sse::Event::default().event(name).data(data.to_string());
        let sent = Handle::current().block_on(sender.send_timeout(Ok(event), patience));
        if sent.is_err() || name != "token" {
            return;
        }
    }
}

/// An error as a client gets it.
struct Failure(StatusCode, String);

impl Failure {
    fn json(&self) -> Value {
        json!({ "error": { "status": self.0.as_u16(), "message": self.1 } })
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let retry_after = (self.0 == StatusCode::SERVICE_UNAVAILABLE).then_some([(RETRY_AFTER, "1")]);
        (self.0, retry_after, Json(self.json())).into_response()
    }
}

impl From<rsgen::Error> for Failure {
    fn from(error: rsgen::Error) -> Self {
        let status = match error.kind() {
            ErrorKind::Config | ErrorKind::Input => StatusCode::BAD_REQUEST,
            ErrorKind::Capacity => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self(status, error.to_string())
    }
}

impl From<JsonRejection> for Failure {
    fn from(rejection: JsonRejection) -> Self {
        let wrong_field = matches!(rejection, JsonRejection::JsonDataError(_));
        let status = if wrong_field { StatusCode::BAD_REQUEST } else { rejection.status() };
        Self(status, rejection.body_text())
    }
}
