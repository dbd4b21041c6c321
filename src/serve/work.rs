//! Blocking work of requests: it runs on threads of its own, ends when the client is gone or the server is, and a panic
//! fails one request alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::mpsc::{self, error::SendTimeoutError};
use tokio::task::spawn_blocking;

use super::app::{App, Phase};
use super::failure::Failure;
use super::metrics::Cancelled;
use super::places::Place;
use crate::engine::{GenerationOutput, Interrupt, StreamedToken, TokenStream};
use crate::error::{Error, ErrorKind, Result};
use crate::generator::Generator;

/// The items that are computed ahead of a client that reads slowly.
const AHEAD: usize = 16;

/// Runs small work, such as encoding and checking a prompt. A few at a time: more would only take turns.
pub(super) async fn prepare<T: Send + 'static>(
    app: &Arc<App>,
    work: impl FnOnce(&Generator, &mut Interrupt<'_>) -> Result<T> + Send + 'static,
) -> Result<T, Failure> {
    let permit = Arc::clone(&app.preparing).acquire_owned().await;
    let permit = permit.map_err(|error| Failure::internal(error.to_string()))?;
    blocking(app, permit, work).await
}

/// Generates to the end.
pub(super) async fn generate(
    app: &Arc<App>,
    place: Place,
    work: impl FnOnce(&Generator, &mut Interrupt<'_>) -> Result<GenerationOutput> + Send + 'static,
) -> Result<GenerationOutput, Failure> {
    let output = run(app, place.clone(), work).await?;
    app.metrics.finished(&place, &output);
    Ok(output)
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
        let result =
            work(&shared.generator, &mut || gone.load(Ordering::Relaxed) || shared.phase() == Phase::Ended);
        count_cancelled(&shared, &result, || gone.load(Ordering::Relaxed));
        result
    });
    match worked.await {
        Ok(result) => result.map_err(|error| app.failure(error)),
        Err(_) => Err(Failure::panicked()),
    }
}

struct SetOnDrop(Arc<AtomicBool>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

enum Message<T, R> {
    Item(T),
    End(Box<R>),
    Failed(Failure),
}

/// The items that a thread computes, as they come, and its result. Dropping it ends the work.
pub(super) struct Receiver<T, R> {
    messages: mpsc::Receiver<Message<T, R>>,
    output: Option<Box<R>>,
    has_ended: bool,
}

/// The tokens of a stream and its output.
pub(super) type TokenReceiver = Receiver<StreamedToken, GenerationOutput>;

impl<T, R> Receiver<T, R> {
    /// The next item; `None` at the end, also after an error.
    pub(super) async fn next(&mut self) -> Option<Result<T, Failure>> {
        if self.has_ended {
            return None;
        }
        match self.messages.recv().await {
            Some(Message::Item(item)) => return Some(Ok(item)),
            Some(Message::End(output)) => self.output = Some(output),
            Some(Message::Failed(failure)) => {
                self.has_ended = true;
                return Some(Err(failure));
            }
            None => {
                self.has_ended = true;
                return Some(Err(Failure::panicked()));
            }
        }
        self.has_ended = true;
        None
    }

    /// The result, once, after the last item; `None` after an error.
    pub(super) fn output(&mut self) -> Option<R> {
        self.output.take().map(|output| *output)
    }
}

/// Computes the tokens of a stream on a thread.
pub(super) fn tokens(app: &Arc<App>, mut stream: TokenStream, place: Place) -> TokenReceiver {
    let shared = Arc::clone(app);
    items(app, place.clone(), move |interrupted, send| {
        let (metrics, mut last) = (&shared.metrics, None);
        while let Some(token) = stream.next_token(interrupted)? {
            metrics.token(last.is_none(), last.unwrap_or(place.arrived()).elapsed());
            last = Some(Instant::now());
            send(token)?;
        }
        let output = stream.into_output()?;
        metrics.finished(&place, &output);
        Ok(output)
    })
}

/// Counts work that ended early.
fn count_cancelled<T>(app: &App, result: &Result<T>, is_gone: impl FnOnce() -> bool) {
    if !result.as_ref().is_err_and(|error| error.kind() == ErrorKind::Cancelled) {
        return;
    }
    app.metrics.cancelled(if app.phase() == Phase::Ended {
        Cancelled::Shutdown
    } else if is_gone() {
        Cancelled::Client
    } else {
        Cancelled::SlowReader
    });
}

/// Computes items on a thread: `work` gives each to its second argument, which waits for slow clients, and fails when the
/// client is gone.
pub(super) fn items<T: Send + 'static, R: Send + 'static>(
    app: &Arc<App>,
    place: Place,
    work: impl FnOnce(&mut Interrupt<'_>, &mut dyn FnMut(T) -> Result<()>) -> Result<R> + Send + 'static,
) -> Receiver<T, R> {
    let (sender, messages) = mpsc::channel(AHEAD);
    let app = Arc::clone(app);
    spawn_blocking(move || {
        let patience = app.options.write_timeout;
        let result = work(&mut || sender.is_closed() || app.phase() == Phase::Ended, &mut |item| {
            send(&sender, Message::Item(item), patience)
        });
        count_cancelled(&app, &result, || sender.is_closed());
        // Its place is free before the client knows the end.
        drop(place);
        let last = match result {
            Ok(output) => Message::End(Box::new(output)),
            Err(error) => Message::Failed(app.failure(error)),
        };
        // Whoever does not read it is gone.
        let _ = send(&sender, last, patience);
    });
    Receiver { messages, output: None, has_ended: false }
}

/// Sends from a blocking thread.
fn send<M>(sender: &mpsc::Sender<M>, message: M, patience: Duration) -> Result<()> {
    match Handle::current().block_on(sender.send_timeout(message, patience)) {
        Ok(()) => Ok(()),
        Err(SendTimeoutError::Timeout(_) | SendTimeoutError::Closed(_)) => Err(Error::cancelled()),
    }
}
