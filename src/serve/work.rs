//! The blocking work of requests, on threads of its own. It ends when the client or the server is gone, and a
//! panic fails one request alone.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::mpsc::{self, error::SendTimeoutError};
use tokio::task::spawn_blocking;

use super::app::App;
use super::failure::Failure;
use super::metrics::Cancelled;
use super::places::Place;
use super::state::{Phase, ServerState};
use crate::engine::{Interrupt, StreamedToken, TokenStream};
use crate::generator::Generator;
use rsgen_core::error::{Error, Result};

/// The tokens of a request that are buffered for a slow client, which gets them together. With twenty
/// alternatives each they take less than a megabyte.
const TOKENS_AHEAD: usize = 1024;
/// The events of a request that are buffered. Each is sent by itself.
pub(super) const EVENTS_AHEAD: usize = 16;

/// Runs small work, such as encoding and checking a prompt. A few at a time: more would only take turns.
pub(super) async fn prepare<T: Send + 'static>(
    app: &Arc<App>,
    work: impl FnOnce(&Generator, &mut Interrupt<'_>) -> Result<T> + Send + 'static,
) -> Result<T, Failure> {
    let permit = Arc::clone(&app.state.preparing).acquire_owned().await;
    let permit = permit.map_err(|error| Failure::internal(error.to_string()))?;
    blocking(app, permit, work).await
}

/// Runs work that takes long, such as scoring.
pub(super) async fn run<T: Send + 'static>(
    app: &Arc<App>,
    place: Place,
    work: impl FnOnce(&Generator, &mut Interrupt<'_>) -> Result<T> + Send + 'static,
) -> Result<T, Failure> {
    blocking(app, place, work).await
}

/// Runs work on a blocking thread, which holds `held` until it ends. Dropping the future ends the work.
async fn blocking<T: Send + 'static>(
    app: &Arc<App>,
    held: impl Send + 'static,
    work: impl FnOnce(&Generator, &mut Interrupt<'_>) -> Result<T> + Send + 'static,
) -> Result<T, Failure> {
    let gone = Arc::new(AtomicBool::new(false));
    let _leaving = SetOnDrop(Arc::clone(&gone));
    let shared = Arc::clone(app);
    let worked = spawn_blocking(move || {
        let _held = held;
        let mut cause = None;
        let result = work(&shared.generator, &mut || {
            cause = cause.or_else(|| {
                cancelled(&shared.state, || gone.load(Ordering::Relaxed).then_some(Cancelled::Client))
            });
            cause.is_some()
        });
        if let Some(cause) = cause {
            shared.state.metrics.cancelled(cause);
        }
        result
    });
    match worked.await {
        Ok(result) => result.map_err(|error| app.failure(error)),
        Err(_) => Err(app.state.panicked()),
    }
}

struct SetOnDrop(Arc<AtomicBool>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

enum Message<T> {
    Item(T),
    End,
    Failed(Failure),
}

/// The items that a thread computes, as they come. Dropping it ends the work.
pub(super) struct Receiver<T> {
    messages: mpsc::Receiver<Message<T>>,
    has_ended: bool,
}

/// The tokens of a stream.
pub(super) struct TokenReceiver {
    tokens: Receiver<StreamedToken>,
    cached: Arc<AtomicUsize>,
}

impl<T> Receiver<T> {
    /// The next item; `None` at the end, also after an error.
    pub(super) async fn next(&mut self) -> Option<Result<T, Failure>> {
        if self.has_ended {
            return None;
        }
        let message = self.messages.recv().await;
        self.take(message)
    }

    fn take(&mut self, message: Option<Message<T>>) -> Option<Result<T, Failure>> {
        self.has_ended = !matches!(message, Some(Message::Item(_)));
        match message {
            Some(Message::Item(item)) => Some(Ok(item)),
            Some(Message::End) => None,
            Some(Message::Failed(failure)) => Some(Err(failure)),
            // The thread ended without sending an end.
            None => Some(Err(Failure::panicked())),
        }
    }
}

impl TokenReceiver {
    /// The next token; `None` at the end, also after an error.
    pub(super) async fn next(&mut self) -> Option<Result<StreamedToken, Failure>> {
        self.tokens.next().await
    }

    /// The tokens that have come meanwhile, up to the first error.
    pub(super) fn ready(&mut self) -> impl Iterator<Item = Result<StreamedToken, Failure>> {
        let most = if self.tokens.has_ended { 0 } else { self.tokens.messages.len() };
        (0..most).map_while(move |_| match self.tokens.messages.try_recv() {
            Ok(message) => self.tokens.take(Some(message)),
            Err(_) => None,
        })
    }

    /// The tokens of the prompt that need not be computed.
    pub(super) fn cached_tokens(&self) -> usize {
        self.cached.load(Ordering::Relaxed)
    }
}

/// Computes the tokens of a stream on a thread. `streams` share the memory for what a client has not read.
pub(super) fn tokens(app: &Arc<App>, mut stream: TokenStream, place: Place, streams: usize) -> TokenReceiver {
    let (shared, cached) = (Arc::clone(app), Arc::<AtomicUsize>::default());
    let counted = Arc::clone(&cached);
    let ahead = (TOKENS_AHEAD / streams).max(EVENTS_AHEAD);
    let tokens = items(app, place.clone(), ahead, move |interrupted, send| {
        let (metrics, mut last) = (&shared.metrics, None);
        while let Some(token) = stream.next_token(interrupted)? {
            metrics.token(last.is_none(), last.unwrap_or(place.arrived()).elapsed());
            place.token();
            last = Some(Instant::now());
            counted.store(stream.cached_prompt_tokens(), Ordering::Relaxed);
            send(token)?;
        }
        metrics.finished(&place, &stream.into_output()?);
        Ok(())
    });
    TokenReceiver { tokens, cached }
}

/// Why work has to end now.
fn cancelled(state: &ServerState, gone: impl FnOnce() -> Option<Cancelled>) -> Option<Cancelled> {
    match state.phase() {
        Phase::Ended => Some(Cancelled::Shutdown),
        _ => gone(),
    }
}

/// Computes items on a thread: `work` gives each to its second argument. That waits while `ahead` items have
/// not been read, and fails when the client is gone or reads nothing for too long.
pub(super) fn items<T: Send + 'static>(
    app: &Arc<App>,
    place: Place,
    ahead: usize,
    work: impl FnOnce(&mut Interrupt<'_>, &mut dyn FnMut(T) -> Result<()>) -> Result<()> + Send + 'static,
) -> Receiver<T> {
    let (sender, messages) = mpsc::channel(ahead);
    let app = Arc::clone(app);
    spawn_blocking(move || {
        let state = &app.state;
        let patience = state.options.write_timeout;
        let cause = Cell::new(None);
        let mut interrupted = || {
            let gone = || sender.is_closed().then(|| place.cause());
            cause.set(cause.get().or_else(|| cancelled(state, gone)));
            cause.get().is_some()
        };
        let mut hand_over = |item| {
            send(&sender, Message::Item(item), patience).map_err(|why| {
                cause.set(Some(if why == Cancelled::Client { place.cause() } else { why }));
                Error::cancelled()
            })
        };
        let result = catch_unwind(AssertUnwindSafe(|| work(&mut interrupted, &mut hand_over)));
        if let Some(cause) = cause.get() {
            state.metrics.cancelled(cause);
            place.cancelled(cause);
        }
        // Its place is free before the client knows the end.
        drop(place);
        let last = match result {
            Ok(Ok(())) => Message::End,
            Ok(Err(error)) => Message::Failed(app.failure(error)),
            Err(_) => Message::Failed(state.panicked()),
        };
        // A client that does not read it is gone.
        let _ = send(&sender, last, patience);
    });
    Receiver { messages, has_ended: false }
}

/// Sends from a blocking thread.
fn send<M>(sender: &mpsc::Sender<M>, message: M, patience: Duration) -> Result<(), Cancelled> {
    Handle::current().block_on(sender.send_timeout(message, patience)).map_err(|error| match error {
        SendTimeoutError::Timeout(_) => Cancelled::SlowReader,
        SendTimeoutError::Closed(_) => Cancelled::Client,
    })
}

#[cfg(all(test, feature = "bundled"))]
mod tests {
    use axum::Router;
    use axum::body::{Body, to_bytes};
    use axum::extract::State;
    use axum::http::Request;
    use axum::middleware::from_fn_with_state;
    use axum::response::Response;
    use axum::routing::get;
    use hyper::service::Service as _;
    use hyper_util::service::TowerToHyperService;
    use tokio::runtime::Runtime;

    use super::super::gate::gate;
    use super::super::hosts::Rule;
    use super::super::metrics;
    use super::super::options::ServeOptions;
    use super::super::places::Claim;
    use super::super::sse;
    use super::*;

    #[expect(clippy::unwrap_used, reason = "the helpers of tests fail as tests do")]
    fn app(options: ServeOptions) -> Arc<App> {
        let state = Arc::new(ServerState::new(options, Rule::Any));
        Arc::new(App::new(state, Generator::bundled().unwrap(), "story-3m".to_owned(), Arc::default()))
    }

    async fn in_a_handler() -> String {
        panic!("on purpose")
    }

    async fn in_a_call(State(app): State<Arc<App>>) -> Result<String, Failure> {
        let place = app.state.places.enter(1, None, Claim::default()).await?;
        run(&app, place, |_, _| panic!("on purpose")).await
    }

    async fn in_a_stream(State(app): State<Arc<App>>) -> Result<Response, Failure> {
        let place = app.state.places.enter(1, None, Claim::default()).await?;
        let mut items = items::<usize>(&app, place, 1, |_, send| {
            send(1)?;
            panic!("on purpose")
        });
        Ok(sse::events(&app.state, move |events| async move {
            while let Some(item) = items.next().await {
                events.send(&item?).await?;
            }
            Ok(())
        }))
    }

    async fn in_an_answer(State(app): State<Arc<App>>) -> Response {
        sse::events(&app.state, |events| async move {
            events.send(&1).await?;
            panic!("on purpose")
        })
    }

    #[test]
    fn a_panic_fails_one_request_and_frees_its_slot() {
        let app = app(ServeOptions { max_requests: 1, ..ServeOptions::default() });
        let routes = Router::new()
            .route("/handler", get(in_a_handler))
            .route("/call", get(in_a_call))
            .route("/stream", get(in_a_stream))
            .route("/answer", get(in_an_answer));
        let router =
            routes.layer(from_fn_with_state(Arc::clone(&app.state), gate)).with_state(Arc::clone(&app));
        Runtime::new().unwrap().block_on(async {
            // Twice: the only place has to be free again.
            for (path, status) in
                [("/handler", 500), ("/call", 500), ("/stream", 200), ("/answer", 200)].repeat(2)
            {
                let request = Request::get(path).body(Body::empty()).unwrap();
                let response = TowerToHyperService::new(router.clone()).call(request).await.unwrap();
                assert_eq!(response.status(), status, "{path}");
                assert!(response.headers().contains_key("x-request-id"));
                let text = to_bytes(response.into_body(), 1 << 20).await.unwrap();
                let text = String::from_utf8(text.to_vec()).unwrap();
                let begin = if status == 200 { "data: 1\n\ndata: " } else { "" };
                let error = text.strip_prefix(begin).unwrap();
                let error: serde_json::Value = serde_json::from_str(error).unwrap();
                assert_eq!(error["error"]["code"], "internal_error", "{path}: {text}");
                assert!(!text.contains("on purpose"));
            }
        });
        assert_eq!(app.state.places.num_running(), 0);
        assert_eq!(app.state.metrics.internal_errors.load(Ordering::Relaxed), 8);
    }

    #[test]
    fn the_buffer_of_a_slow_client_is_bounded() {
        let options = ServeOptions { write_timeout: Duration::from_millis(30), ..ServeOptions::default() };
        let app = app(options);
        let computed = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&computed);
        Runtime::new().unwrap().block_on(async {
            let place = app.state.places.enter(1, None, Claim::default()).await.unwrap();
            let mut endless = items::<usize>(&app, place, 5, move |_, send| {
                loop {
                    send(counted.fetch_add(1, Ordering::Relaxed))?;
                }
            });
            while app.state.places.num_running() > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            assert_eq!(computed.load(Ordering::Relaxed), 6, "the last one waited until it was given up");
            assert_eq!(endless.next().await.unwrap().unwrap(), 0);
        });
        let cancelled = metrics::text(&app.state, &[]);
        assert!(cancelled.contains("rsgen_cancelled_total{cause=\"slow_reader\"} 1\n"), "{cancelled}");
    }

    #[test]
    fn work_ends_when_its_future_is_dropped_or_its_reader_stalls() {
        let app = app(ServeOptions { max_requests: 1, ..ServeOptions::default() });
        let (sender, ended) = std::sync::mpsc::channel();
        Runtime::new().unwrap().block_on(async {
            let place = app.state.places.enter(1, None, Claim::default()).await.unwrap();
            let long = run(&app, place, move |_, interrupted| {
                while !interrupted() {
                    std::thread::yield_now();
                }
                let _ = sender.send(());
                Ok(())
            });
            assert!(tokio::time::timeout(Duration::from_millis(10), long).await.is_err());
        });
        assert!(ended.recv_timeout(Duration::from_secs(5)).is_ok());
        let (sender, _receiver) = mpsc::channel(1);
        Runtime::new().unwrap().block_on(async {
            let stalled = spawn_blocking(move || {
                send(&sender, 1, Duration::from_millis(5))
                    .and_then(|()| send(&sender, 2, Duration::from_millis(5)))
            });
            assert_eq!(stalled.await.unwrap(), Err(Cancelled::SlowReader));
        });
    }
}
