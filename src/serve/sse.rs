//! Server-sent events: one `data:` line each, a comment every 15 seconds, an error as the last event.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderName, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior, interval};
use tokio_stream::Stream;

use super::failure::Failure;
use super::gate::caught;
use super::state::ServerState;
use rsgen_core::error::Result;

/// The interval of keep-alive comments: proxies close connections that are silent for longer.
const PING_INTERVAL: Duration = Duration::from_secs(15);

/// The type of a stream.
pub(super) const EVENT_STREAM: &str = "text/event-stream";
/// A comment, which clients ignore.
pub(super) const PING: &[u8] = b": ping\n\n";

/// The sender of a response's events.
#[derive(Debug, Clone)]
pub(super) struct Events(mpsc::Sender<Bytes>);

impl Events {
    /// Sends the data of one event.
    pub(super) async fn send(&self, data: &impl Serialize) -> Result<(), Failure> {
        let data = serde_json::to_string(data).map_err(|error| Failure::internal(error.to_string()))?;
        self.send_text(&data).await;
        Ok(())
    }

    /// Sends the data of one event as it is, such as `[DONE]`; it must be one line.
    pub(super) async fn send_text(&self, data: &str) {
        // The receiver polls this future, so it is there.
        let _ = self.0.send(format!("data: {data}\n\n").into()).await;
    }
}

/// The response of a stream: `write` sends its events, and is dropped when the client is gone. Its error
/// becomes the last event.
pub(super) fn events<F>(state: &Arc<ServerState>, write: impl FnOnce(Events) -> F) -> Response
where
    F: Future<Output = Result<(), Failure>> + Send + 'static,
{
    let (sender, receiver) = mpsc::channel(1);
    let events = Events(sender);
    let last = events.clone();
    let (state, written) = (Arc::clone(state), write(events));
    let writing = async move {
        if let Err(failure) = caught(&state, written).await.and_then(|written| written) {
            last.send_text(&failure.body().to_string()).await;
        }
    };
    let mut ping = interval(PING_INTERVAL);
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ping.reset();
    let body = Body::from_stream(Written { writing: Some(Box::pin(writing)), receiver, ping });
    let headers = [
        (header::CONTENT_TYPE, EVENT_STREAM),
        (header::CACHE_CONTROL, "no-cache"),
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, body).into_response()
}

/// The body of a stream. Polling it produces the events.
struct Written {
    writing: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    receiver: mpsc::Receiver<Bytes>,
    ping: Interval,
}

impl Stream for Written {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if let Some(writing) = &mut this.writing
            && writing.as_mut().poll(context).is_ready()
        {
            // Drops its senders, which ends the channel.
            this.writing = None;
        }
        match this.receiver.poll_recv(context) {
            Poll::Ready(bytes) => {
                this.ping.reset();
                Poll::Ready(bytes.map(Ok))
            }
            Poll::Pending if this.ping.poll_tick(context).is_ready() => {
                Poll::Ready(Some(Ok(Bytes::from_static(PING))))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}
