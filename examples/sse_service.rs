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
//!
//! Nobody is shut out by clients that send half a request: headers and bodies have a time limit, and of the connections
//! that the service does not compute for, the oldest is closed when there are too many. [`Limits`] holds the numbers.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, FromRequest as _, Request, State, rejection::JsonRejection};
use axum::http::{StatusCode, header::RETRY_AFTER};
use axum::response::{IntoResponse, Response, Sse, sse};
use axum::{Extension, Json, Router, routing};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{AbortHandle, spawn_blocking};
use tokio::time::timeout;
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
/// How long to wait when no connection can be accepted, because the system has no more of something.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long, and for how many clients, the service waits.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    /// How long a client may take to send the headers of its request.
    pub(crate) headers: Duration,
    /// How long it may take to send the body.
    pub(crate) body: Duration,
    /// The most connections that the service does not compute for. For a further one the oldest is closed.
    pub(crate) idle: usize,
    /// How long requests may go on after the signal to stop.
    pub(crate) grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { headers: seconds(10), body: seconds(30), idle: 24, grace: seconds(30) }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let generator = match std::env::args().nth(1) {
        Some(folder) => Generator::open(folder)?,
        None => Generator::bundled()?,
    };
    let listener = TcpListener::bind("127.0.0.1:8080").await?;
    println!("{} on http://{}", generator.name(), listener.local_addr()?);
    let limits = Limits::default();
    let service = Service { generator, places: Arc::new(Semaphore::new(MAX_REQUESTS)), limits };
    serve(listener, service, signal(), signal()).await;
    Ok(())
}

/// Serves until `stop`, and then the requests that have arrived, until they are answered, until `hurry`, or for the time of
/// grace. What still runs ends with the runtime.
pub(crate) async fn serve(
    listener: TcpListener,
    service: Service,
    stop: impl Future<Output = ()>,
    hurry: impl Future<Output = ()>,
) {
    let limits = service.limits;
    let (app, connections, graceful) = (app(service), Connections::default(), GracefulShutdown::new());
    let mut http = http1::Builder::new();
    // One request for each connection, so that none is kept open for nothing.
    http.timer(TokioTimer::new()).header_read_timeout(limits.headers).keep_alive(false);
    let mut stop = pin!(stop);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stop => break,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        connections.spawn(|connection| {
            let app = TowerToHyperService::new(app.clone().layer(Extension(connection)));
            graceful.watch(http.serve_connection(TokioIo::new(stream), app))
        });
        connections.close(&[ConnectionState::Waiting, ConnectionState::Done], limits.idle);
    }
    drop(listener);
    connections.close(&[ConnectionState::Waiting], 0);
    tokio::select! {
        () = graceful.shutdown() => {}
        _ = timeout(limits.grace, hurry) => {}
    }
}

/// The open connections.
#[derive(Clone, Default)]
struct Connections(Arc<Mutex<Open>>);

#[derive(Default)]
struct Open {
    /// The task and the state of each connection, by their numbers: the oldest first.
    tasks: BTreeMap<u64, (AbortHandle, ConnectionState)>,
    next: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum ConnectionState {
    /// Its request has not arrived.
    Waiting,
    /// The service computes for it.
    Busy,
    /// The client has to read the rest of the answer.
    Done,
}

/// A connection, as its request sees it.
#[derive(Clone)]
struct Connection(Connections, u64);

/// A connection that is busy, until this is dropped.
struct Busy(Connection);

impl Connections {
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the task of a connection.
    fn spawn<F: Future + Send + 'static>(&self, serve: impl FnOnce(Connection) -> F) {
        let mut open = self.lock();
        let number = open.next;
        let (served, connections) = (serve(Connection(self.clone(), number)), self.clone());
        let task = tokio::spawn(async move {
            // Its errors are those of the client, who is gone.
            let _ = served.await;
            connections.lock().tasks.remove(&number);
        });
        open.next += 1;
        open.tasks.insert(number, (task.abort_handle(), ConnectionState::Waiting));
    }

    /// Closes the oldest connections in one of these states, up to the newest `kept`.
    fn close(&self, states: &[ConnectionState], kept: usize) {
        let mut open = self.lock();
        let those = open.tasks.iter().filter(|(_, (_, state))| states.contains(state));
        let those: Vec<u64> = those.map(|(number, _)| *number).collect();
        for number in &those[..those.len().saturating_sub(kept)] {
            if let Some((task, _)) = open.tasks.remove(number) {
                task.abort();
            }
        }
    }
}

impl Connection {
    fn set(&self, new: ConnectionState) {
        if let Some((_, state)) = self.0.lock().tasks.get_mut(&self.1) {
            *state = new;
        }
    }

    fn into_busy(self) -> Busy {
        self.set(ConnectionState::Busy);
        Busy(self)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.set(ConnectionState::Done);
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
    pub(crate) limits: Limits,
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
    Extension(connection): Extension<Connection>,
    request: Request,
) -> Result<Response, Failure> {
    let body = timeout(service.limits.body, Json::<GenerateRequest>::from_request(request, &()));
    let Json(request) = body.await.map_err(|_| Failure::timeout(service.limits.body))??;
    let place = service.places.try_acquire_owned().map_err(|_| Error::capacity("all places are taken"))?;
    let place = (place, connection.into_busy());
    let (sender, receiver) = mpsc::channel(AHEAD);
    // Encodes the prompt, checks everything and reserves the cache: errors come before the first byte of the answer.
    let checked = spawn_blocking(move || {
        let call = service.generator.call(&*request.prompt).config(&request.config());
        let stream = call.prepare(true, &mut || sender.is_closed())?.stream()?;
        Ok::<_, Error>((stream, sender, place))
    });
    let (stream, sender, place) = checked.await.map_err(|error| Error::internal(error.to_string()))??;
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
                let Usage { prompt_tokens, generated_tokens, .. } =
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
    fn timeout(limit: Duration) -> Self {
        let message = format!("the body of a request must arrive within {} seconds", limit.as_secs_f32());
        Self(StatusCode::REQUEST_TIMEOUT, message)
    }

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
