//! Bodies of requests: JSON objects, bounded in bytes, depth, memory and time.

use std::sync::Arc;

use axum::body::Body as HttpBody;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use serde::de::DeserializeSeed as _;
use serde_json::{Map, Value};
use tokio::time::timeout;
use tokio_stream::StreamExt as _;

use super::app::App;
use super::failure::Failure;
use super::keys::Tenant;
use super::places::Place;
use super::state::ServerState;
use rsgen_core::error::Result;
use rsgen_core::json::{Budget, Strict};

/// The deepest nesting of a body.
const MAX_DEPTH: usize = 64;
/// The memory that the values of a body may take.
const MAX_VALUE_BYTES: usize = 64 << 20;
/// An oversized body is drained up to this multiple of the limit.
const READ_ON: usize = 4;
/// Estimated bytes of a prompt token, before the prompt is encoded.
const BYTES_PER_TOKEN: usize = 4;

/// A parsed body, for cheap routes that need no slot.
#[derive(Debug)]
pub(super) struct Body(pub(super) Map<String, Value>);

/// A parsed body, and the slot that the request waited for. A full server refuses the request before it reads
/// the body, and parses nothing before the request has its slot.
#[derive(Debug)]
pub(super) struct Admitted {
    pub(super) body: Map<String, Value>,
    pub(super) place: Place,
    pub(super) tenant: Tenant,
}

impl FromRequest<Arc<App>> for Body {
    type Rejection = Failure;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Failure> {
        app.state.check_serving()?;
        Ok(Self(parse(&read(request, &app.state).await?)?))
    }
}

impl FromRequest<Arc<App>> for Admitted {
    type Rejection = Failure;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Failure> {
        let (state, places) = (&app.state, &app.state.places);
        let tenant: Tenant = request.extensions().get().cloned().unwrap_or_default();
        let claimed = state.check_serving().and_then(|()| places.claim(&tenant));
        let claim = match claimed.and_then(|claim| places.check().map(|()| claim)) {
            Ok(claim) => claim,
            Err(failure) => {
                discard(request, state).await;
                return Err(failure);
            }
        };
        let connection = request.extensions().get().cloned();
        let bytes = read(request, state).await?;
        let place = places.enter(bytes.len() / BYTES_PER_TOKEN, connection, claim).await?;
        Ok(Self { body: parse(&bytes)?, place, tenant })
    }
}

/// The bytes of a body.
async fn read(request: Request, state: &ServerState) -> Result<Vec<u8>, Failure> {
    let (limit, wait) = (state.options.max_body_bytes, state.options.body_timeout);
    if let Err(failure) = check_type(request.headers()) {
        discard(request, state).await;
        return Err(failure);
    }
    match timeout(wait, collect(request.into_body(), limit)).await {
        Ok(Ok(Some(bytes))) => Ok(bytes),
        Ok(Ok(None)) => Err(Failure::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "invalid_request_error",
            "request_too_large",
            format!(
                "the body of a request must have at most {limit} bytes; shorten it, or send several requests"
            ),
        )),
        Ok(Err(_)) => Err(Failure::bad_request("the body of the request ended early; send all of it")),
        Err(_) => Err(Failure::new(
            StatusCode::REQUEST_TIMEOUT,
            "invalid_request_error",
            "request_timeout",
            format!("the body of a request must arrive within {} seconds; send it again", wait.as_secs_f32()),
        )),
    }
}

/// Reads a body of at most `limit` bytes. A longer one is drained up to a multiple of that: most clients read
/// no answer before they have sent everything.
async fn collect(body: HttpBody, limit: usize) -> Result<Option<Vec<u8>>, axum::Error> {
    let (mut bytes, mut total, mut chunks) = (Vec::new(), 0usize, body.into_data_stream());
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk?;
        total += chunk.len();
        if total <= limit {
            bytes.extend_from_slice(&chunk);
        } else {
            bytes = Vec::new();
        }
        if total > limit.saturating_mul(READ_ON) {
            break;
        }
    }
    Ok((total <= limit).then_some(bytes))
}

/// Drains the body of a refused request, so that the client reads the answer.
pub(super) async fn discard(request: Request, state: &ServerState) {
    // A client that never stops finds a closed connection.
    let limit = state.options.max_body_bytes;
    let mut chunks = request.into_body().into_data_stream();
    let read = async {
        let mut total = 0;
        while let Some(Ok(chunk)) = chunks.next().await {
            total += chunk.len();
            if total > limit {
                break;
            }
        }
    };
    let _ = timeout(state.options.body_timeout, read).await;
}

/// Accepts only JSON, which a page cannot send to another origin without a CORS preflight.
fn check_type(headers: &HeaderMap) -> Result<(), Failure> {
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if essence == "application/json" {
        return Ok(());
    }
    Err(Failure::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "invalid_request_error",
        "unsupported_media_type",
        format!("the header `content-type` must be application/json, but is {given:?}"),
    ))
}

fn parse(text: &[u8]) -> Result<Map<String, Value>, Failure> {
    let invalid = |what: String| Failure::bad_request(format!("the body of the request {what}"));
    if depth(text) > MAX_DEPTH {
        return Err(invalid(format!("must be nested at most {MAX_DEPTH} levels deep; flatten it")));
    }
    let budget = Budget::new(MAX_VALUE_BYTES);
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let value = Strict(&budget).deserialize(&mut deserializer);
    match value.and_then(|value| deserializer.end().map(|()| value)) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(invalid("must be a JSON object, such as {\"prompt\": \"Once\"}".to_owned())),
        Err(error) => Err(invalid(format!("must be valid JSON without repeated keys: {error}"))),
    }
}

/// The deepest nesting of brackets outside of strings.
fn depth(text: &[u8]) -> usize {
    let (mut depth, mut deepest, mut is_string, mut is_escaped) = (0usize, 0, false, false);
    for byte in text {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_string => is_escaped = true,
            b'"' => is_string = !is_string,
            b'[' | b'{' if !is_string => depth += 1,
            b']' | b'}' if !is_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_strict_objects_of_bounded_depth() {
        let nested = |levels: usize| format!("{{\"a\":{}{}}}", "[".repeat(levels), "]".repeat(levels));
        assert!(parse(nested(MAX_DEPTH - 1).as_bytes()).is_ok());
        let many = format!("{{\"a\":[{}0]}}", "[],".repeat(1 << 20));
        let deep = "[".repeat(2 << 20);
        for (text, reason) in [
            (nested(MAX_DEPTH).as_str(), "at most 64 levels"),
            (&deep, "at most 64 levels"),
            ("", "valid JSON"),
            ("{", "valid JSON"),
            ("[1, 2]", "a JSON object"),
            ("\u{0}", "valid JSON"),
            (r#"{"prompt": "\ud800"}"#, "valid JSON"),
            (r#"{"a": 1, "a": 2}"#, "comes twice"),
            (r#"{"a": NaN}"#, "valid JSON"),
            (r#"{"a": 1e999}"#, "valid JSON"),
            (&many, "of memory"),
        ] {
            let failure = parse(text.as_bytes()).unwrap_err();
            assert_eq!(failure.status, StatusCode::BAD_REQUEST);
            assert!(failure.message.contains(reason), "{reason}: {}", failure.message);
        }
        assert_eq!(depth(br#"{"[[[\"[[": [1]}"#), 2);
    }
}
