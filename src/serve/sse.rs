//! Streams: server-sent events of one `data:` line each, with a comment every 15 seconds, or lines of JSON. An
//! error is the last event.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior, interval};
use tokio_stream::Stream;

use super::failure::Failure;
use super::gate::caught;
use super::shapes;
use super::state::ServerState;
use rsgen_core::error::Result;

/// The interval of keep-alive comments: proxies close connections that are silent for longer.
const PING_INTERVAL: Duration = Duration::from_secs(15);

/// The type of a stream.
const EVENT_STREAM: &str = "text/event-stream";
/// The type of a stream of lines, each of which is a JSON value.
const LINES: &str = "application/x-ndjson";

/// How a stream is written.
#[derive(Debug)]
pub(super) struct Format {
    content_type: &'static str,
    /// What clients ignore: it keeps a connection open.
    ping: &'static [u8],
    /// The last event of a stream that failed.
    failure: fn(&Failure) -> String,
}

/// Events as OpenAI writes them.
static EVENTS: Format =
    Format { content_type: EVENT_STREAM, ping: b": ping\n\n", failure: |failure| data(&failure.body()) };
/// Events with names, as Anthropic writes them.
pub(super) static NAMED_EVENTS: Format = Format {
    failure: |failure| format!("event: error\n{}", data(&shapes::anthropic(failure))),
    content_type: EVENT_STREAM,
    ping: b": ping\n\n",
};
/// Events with names and numbers, as the Responses API has them. What fails has an event of its own there: this one is for what
/// fails beside.
pub(super) static NUMBERED_EVENTS: Format = Format {
    failure: |failure| format!("event: error\n{}", data(&shapes::of_response(failure))),
    content_type: EVENT_STREAM,
    ping: b": ping\n\n",
};
/// Lines of JSON, as Ollama writes them. A space before a value is no part of it.
pub(super) static JSON_LINES: Format =
    Format { content_type: LINES, ping: b" ", failure: |failure| format!("{}\n", shapes::plain(failure)) };

/// What keeps the connection of a stream of this type open.
pub(super) fn ping(content_type: Option<&HeaderValue>) -> Option<&'static [u8]> {
    [&EVENTS, &JSON_LINES]
        .into_iter()
        .find(|format| content_type == Some(&HeaderValue::from_static(format.content_type)))
        .map(|format| format.ping)
}

fn data(value: &Value) -> String {
    format!("data: {value}\n\n")
}

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
        self.write(format!("data: {data}\n\n")).await;
    }

    /// Sends an event that has a name.
    pub(super) async fn send_named(&self, name: &str, data: &Value) {
        self.write(format!("event: {name}\ndata: {data}\n\n")).await;
    }

    /// Sends a value as a line.
    pub(super) async fn send_line(&self, value: &Value) {
        self.write(format!("{value}\n")).await;
    }

    async fn write(&self, text: String) {
        // The receiver polls this future, so it is there.
        let _ = self.0.send(text.into()).await;
    }
}

/// The response of a stream: `write` sends its events, and is dropped when the client is gone. Its error
/// becomes the last event.
pub(super) fn events<F>(state: &Arc<ServerState>, write: impl FnOnce(Events) -> F) -> Response
where
    F: Future<Output = Result<(), Failure>> + Send + 'static,
{
    stream(state, &EVENTS, write)
}

/// As [`events`], in another format.
pub(super) fn stream<F>(
    state: &Arc<ServerState>,
    format: &'static Format,
    write: impl FnOnce(Events) -> F,
) -> Response
where
    F: Future<Output = Result<(), Failure>> + Send + 'static,
{
    let (sender, receiver) = mpsc::channel(1);
    let events = Events(sender);
    let last = events.clone();
    let (state, written) = (Arc::clone(state), write(events));
    let writing = async move {
        if let Err(failure) = caught(&state, written).await.and_then(|written| written) {
            last.write((format.failure)(&failure)).await;
        }
    };
    let mut ping = interval(PING_INTERVAL);
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ping.reset();
    let body = Body::from_stream(Written { writing: Some(Box::pin(writing)), receiver, ping, format });
    let headers = [
        (header::CONTENT_TYPE, format.content_type),
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
    format: &'static Format,
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
                Poll::Ready(Some(Ok(Bytes::from_static(this.format.ping))))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}
