//! Bodies of requests: JSON objects, bounded in bytes, depth, memory and time.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use serde::de::DeserializeSeed as _;
use serde_json::{Map, Value};
use tokio::time::timeout;

use super::app::App;
use super::failure::Failure;
use super::places::Place;
use crate::error::Result;
use crate::json::{Budget, Strict};

/// The deepest nesting of a body.
const MAX_DEPTH: usize = 64;
/// The memory that the values of a body may take.
const MAX_VALUE_BYTES: usize = 64 << 20;
/// The bytes of a prompt's token, for estimates before it is encoded.
const BYTES_PER_TOKEN: usize = 4;

/// A body, for routes whose work is small.
#[derive(Debug)]
pub(super) struct Body(pub(super) Map<String, Value>);

/// A body, and the place among the running requests that it has waited for. A server that is full refuses it before it
/// reads the body, and nothing is parsed before the request has its place.
#[derive(Debug)]
pub(super) struct Admitted {
    pub(super) body: Map<String, Value>,
    pub(super) place: Place,
}

impl FromRequest<Arc<App>> for Body {
    type Rejection = Failure;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Failure> {
        app.check_serving()?;
        Ok(Self(parse(&read(request, app).await?)?))
    }
}

impl FromRequest<Arc<App>> for Admitted {
    type Rejection = Failure;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Failure> {
        app.check_serving()?;
        app.places.check()?;
        let connection = request.extensions().get().cloned();
        let bytes = read(request, app).await?;
        let place = app.places.enter(bytes.len() / BYTES_PER_TOKEN, connection).await?;
        Ok(Self { body: parse(&bytes)?, place })
    }
}

/// The bytes of a body.
async fn read(request: Request, app: &App) -> Result<Bytes, Failure> {
    let (limit, wait) = (app.options.max_body_bytes, app.options.body_timeout);
    check_type(request.headers())?;
    let announced = request.headers().get(header::CONTENT_LENGTH);
    let announced = announced.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|announced| announced > limit as u64) {
        return Err(too_large(limit));
    }
    match timeout(wait, axum::body::to_bytes(request.into_body(), limit)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) if is_too_large(&error) => Err(too_large(limit)),
        Ok(Err(_)) => Err(Failure::bad_request("the body of the request ended early; send all of it")),
        Err(_) => Err(Failure::new(
            StatusCode::REQUEST_TIMEOUT,
            "invalid_request_error",
            "request_timeout",
            format!("the body of a request must arrive within {} seconds; send it again", wait.as_secs_f32()),
        )),
    }
}

/// Only JSON: a page of a browser cannot send it to another origin without asking first.
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

fn is_too_large(error: &axum::Error) -> bool {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = source {
        if error.to_string().contains("length limit exceeded") {
            return true;
        }
        source = error.source();
    }
    false
}

fn too_large(limit: usize) -> Failure {
    Failure::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        "invalid_request_error",
        "request_too_large",
        format!(
            "the body of a request must have at most {limit} bytes; shorten it, or send several requests"
        ),
    )
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
