//! Bodies of requests: JSON objects, and forms where clients send them, bounded in bytes, depth, memory and time, each and all together.

use std::sync::Arc;

use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use serde::de::DeserializeSeed as _;
use serde_json::{Map, Value};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_stream::StreamExt as _;

use super::app::App;
use super::connections::{Busy, Connection};
use super::failure::Failure;
use super::forms::{Form, URL_ENCODED};
use super::keys::Tenant;
use super::metrics::Refused;
use super::models::Models;
use super::places::Place;
use super::record::Record;
use super::shapes::{OLLAMA, OLLAMA_SHOW};
use super::state::ServerState;
use rsgen_core::error::Result;
use rsgen_core::json::{Budget, Strict};

/// The deepest nesting of a body.
const MAX_DEPTH: usize = 64;
/// The memory that the values of a body may take.
pub(super) const MAX_VALUE_BYTES: usize = 64 << 20;
/// The bytes of each body that are not counted with those of all. Connections are limited in number, so an
/// ordinary request is taken however many large ones arrive.
const UNCOUNTED: usize = 64 << 10;
/// The bytes a second with which a slow sender goes on beyond the time limit of a body.
const MIN_RATE: f64 = 8192.0;
/// An oversized body is drained up to this multiple of the limit.
const READ_ON: usize = 4;
/// Estimated bytes of a prompt token, before the prompt is encoded.
const BYTES_PER_TOKEN: usize = 4;

/// The fields of a body, and the memory that they take until they are dropped.
#[derive(Debug)]
pub(super) struct Fields {
    pub(super) map: Map<String, Value>,
    pub(super) held: Held,
}

/// A part of the memory for all bodies.
#[derive(Debug, Default)]
pub(super) struct Held(Option<OwnedSemaphorePermit>);

/// The fields of a request whose body has been read already, or that comes from no connection.
#[derive(Debug, Clone)]
pub(super) struct Parsed {
    pub(super) fields: Map<String, Value>,
    /// The bytes of the body.
    pub(super) len: usize,
}

/// A body that has arrived.
enum Arrived {
    Text(Vec<u8>, Held),
    Form(Vec<u8>, Held, Form),
    Parsed(Parsed),
}

/// A body for cheap routes, which need no slot, and the model that it names.
#[derive(Debug)]
pub(super) struct Body {
    pub(super) app: Arc<App>,
    pub(super) fields: Fields,
    pub(super) _busy: Option<Busy>,
}

/// A body, the slot that the request waited for, and the model that it names. A full server refuses the request before it
/// reads the body, and parses nothing before the request has its slot. It has its slot while the model is loaded, too.
#[derive(Debug)]
pub(super) struct Admitted {
    pub(super) app: Arc<App>,
    pub(super) fields: Fields,
    pub(super) place: Place,
    pub(super) tenant: Tenant,
}

impl FromRequest<Arc<Models>> for Body {
    type Rejection = Failure;

    async fn from_request(request: Request, models: &Arc<Models>) -> Result<Self, Failure> {
        models.state.check_serving()?;
        let connection = request.extensions().get::<Connection>().cloned();
        let name = name_of(&request);
        let fields = Arrived::of(request, &models.state).await?.fields(&models.state).await?;
        let busy = connection.map(Connection::into_busy);
        Ok(Self { app: models.named(name(&fields)).await?, fields, _busy: busy })
    }
}

impl FromRequest<Arc<Models>> for Admitted {
    type Rejection = Failure;

    async fn from_request(request: Request, models: &Arc<Models>) -> Result<Self, Failure> {
        let (state, places) = (&models.state, &models.state.places);
        let tenant: Tenant = request.extensions().get().cloned().unwrap_or_default();
        let record: Option<Arc<Record>> = request.extensions().get().cloned();
        let claimed = state.check_serving().and_then(|()| places.claim(&tenant, record));
        let claim = match claimed.and_then(|claim| places.check().map(|()| claim)) {
            Ok(claim) => claim,
            Err(failure) => {
                discard(request, state).await;
                return Err(failure);
            }
        };
        let connection = request.extensions().get().cloned();
        let name = name_of(&request);
        let arrived = Arrived::of(request, state).await?;
        let place = places.enter(arrived.len() / BYTES_PER_TOKEN, connection, claim).await?;
        let fields = arrived.fields(state).await?;
        let app = models.named(name(&fields)).await?;
        place.of_model(&app.model);
        Ok(Self { app, fields, place, tenant })
    }
}

/// Where the body of a request names its model.
fn name_of(request: &Request) -> fn(&Fields) -> Option<&str> {
    match request.uri().path() {
        OLLAMA_SHOW => |fields| fields.text("model").or_else(|| fields.text("name")),
        _ => |fields| fields.text("model"),
    }
}

impl Fields {
    fn text(&self, name: &str) -> Option<&str> {
        self.map.get(name)?.as_str()
    }
}

/// A model for a request without a body: the one that `model` of its query names, or the first.
#[derive(Debug)]
pub(super) struct Named(pub(super) Arc<App>);

impl FromRequestParts<Arc<Models>> for Named {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, models: &Arc<Models>) -> Result<Self, Failure> {
        let query = parts.uri.query().unwrap_or_default().as_bytes();
        let name = form_urlencoded::parse(query).find(|(name, _)| name == "model").map(|(_, name)| name);
        Ok(Self(models.named(name.as_deref()).await?))
    }
}

impl Held {
    /// Takes what another one has.
    pub(super) fn add(&mut self, other: Self) {
        match (&mut self.0, other.0) {
            (Some(held), Some(other)) => held.merge(other),
            (held @ None, other) => *held = other,
            (Some(_), None) => {}
        }
    }

    /// Takes memory, so that it is for this many bytes.
    fn grow(&mut self, state: &ServerState, bytes: usize) -> Result<(), Failure> {
        let held = self.0.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let more = bytes.saturating_sub(UNCOUNTED).saturating_sub(held);
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        let Ok(permit) = Arc::clone(&state.bodies).try_acquire_many_owned(more) else {
            return Err(state.places.refusal(
                Refused::Bodies,
                "the bodies of requests take all memory that this server has for them; come again later"
                    .to_owned(),
            ));
        };
        match &mut self.0 {
            Some(held) => held.merge(permit),
            none => *none = Some(permit),
        }
        Ok(())
    }
}

impl Arrived {
    /// Waits for a body.
    async fn of(mut request: Request, state: &ServerState) -> Result<Self, Failure> {
        if let Some(parsed) = request.extensions_mut().remove() {
            return Ok(Self::Parsed(parsed));
        }
        let form = Form::of(request.uri().path(), request.headers());
        if let (None, Err(failure)) = (&form, check_type(request.uri().path(), request.headers())) {
            discard(request, state).await;
            return Err(failure);
        }
        let (text, held) = read(request.into_body(), state, state.options.max_body_bytes).await?;
        Ok(match form {
            Some(form) => Self::Form(text, held, form),
            None => Self::Text(text, held),
        })
    }

    fn len(&self) -> usize {
        match self {
            Self::Text(text, _) | Self::Form(text, ..) => text.len(),
            Self::Parsed(parsed) => parsed.len,
        }
    }

    async fn fields(self, state: &ServerState) -> Result<Fields, Failure> {
        let (parsed, _of_text) = match self {
            Self::Text(text, held) => (object(&text), held),
            // A form has few fields beyond its texts.
            Self::Form(text, held, form) => {
                let len = text.len();
                (form.fields(text).await.map(|map| (map, len)), held)
            }
            Self::Parsed(parsed) => return Ok(Fields { map: parsed.fields, held: Held::default() }),
        };
        let (map, bytes) =
            parsed.map_err(|why| Failure::bad_request(format!("the body of the request must be {why}")))?;
        let mut held = Held::default();
        held.grow(state, bytes)?;
        Ok(Fields { map, held })
    }
}

/// A list in the text of which there are commas between its items, which the server has kept, under a name. It is read as a body
/// is, and its memory is counted with that of all.
pub(super) fn kept(state: &ServerState, name: &'static str, items: &str) -> Result<Fields, Failure> {
    let limit = state.options.max_body_bytes;
    if items.len() > limit {
        let message = format!(
            "the conversation has more than {limit} bytes, which a body of a request may have; begin a new one, or send a part of it"
        );
        return Err(Failure::refused(StatusCode::PAYLOAD_TOO_LARGE, "request_too_large", message));
    }
    let parsed = object(format!("{{\"{name}\":[{items}]}}").as_bytes());
    let (map, bytes) = parsed.map_err(Failure::internal)?;
    let mut held = Held::default();
    held.grow(state, bytes)?;
    Ok(Fields { map, held })
}

/// The text of a body of at most `limit` bytes.
async fn read(body: axum::body::Body, state: &ServerState, limit: usize) -> Result<(Vec<u8>, Held), Failure> {
    let wait = state.options.body_timeout;
    let too_large = || {
        Failure::refused(
            StatusCode::PAYLOAD_TOO_LARGE,
            "request_too_large",
            format!(
                "the body of a request must have at most {limit} bytes; shorten it, or send several requests"
            ),
        )
    };
    let (mut text, mut held, mut taken) = (Vec::new(), Held::default(), Ok(()));
    let (mut total, mut recent, mut due) = (0usize, 0usize, Instant::now() + wait);
    let mut chunks = body.into_data_stream();
    loop {
        let chunk = match timeout_at(due, chunks.next()).await {
            Ok(Some(Ok(chunk))) => chunk,
            Ok(None) => return taken.map(|()| (text, held)),
            Ok(Some(Err(_))) => {
                return Err(Failure::bad_request("the body of the request ended early; send all of it"));
            }
            Err(_) => return Err(too_slow(wait)),
        };
        (total, recent) = (total + chunk.len(), recent + chunk.len());
        if recent as f64 >= wait.as_secs_f64() * MIN_RATE {
            (recent, due) = (0, Instant::now() + wait);
        }
        if taken.is_ok() {
            text.extend_from_slice(&chunk);
            taken = if total > limit { Err(too_large()) } else { held.grow(state, text.capacity()) };
        }
        if taken.is_err() {
            // Most clients read no answer before they have sent everything.
            (text, held) = (Vec::new(), Held::default());
            if total > limit.saturating_mul(READ_ON) {
                return taken.map(|()| (text, held));
            }
        }
    }
}

/// The text of a body so short that its bytes are not counted with those of all.
pub(super) async fn small_body(body: axum::body::Body, state: &ServerState) -> Result<Vec<u8>, Failure> {
    Ok(read(body, state, UNCOUNTED.min(state.options.max_body_bytes)).await?.0)
}

fn too_slow(wait: std::time::Duration) -> Failure {
    Failure::refused(
        StatusCode::REQUEST_TIMEOUT,
        "request_timeout",
        format!(
            "the body of a request must arrive within {} seconds, or at {MIN_RATE} bytes a second; send it again",
            wait.as_secs_f32()
        ),
    )
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

/// Accepts only JSON, which a page cannot send to another origin without a CORS preflight. Ollama's documentation sends
/// it by `curl -d`, which calls it a form, and litellm calls it nothing: its routes take both, too. Browsers send these with their
/// origin, which is checked.
fn check_type(path: &str, headers: &HeaderMap) -> Result<(), Failure> {
    let given = media_type(headers);
    if given == "application/json" || [URL_ENCODED, ""].contains(&&*given) && path.starts_with(OLLAMA) {
        return Ok(());
    }
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    Err(Failure::refused(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "unsupported_media_type",
        format!("the header `content-type` must be application/json, but is {given:?}"),
    ))
}

/// The type of a body in lower case, without its parameters.
pub(super) fn media_type(headers: &HeaderMap) -> String {
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// The object that a text is, and the memory that its values take. An error completes "must be …".
pub(super) fn object(text: &[u8]) -> Result<(Map<String, Value>, usize), String> {
    if depth(text) > MAX_DEPTH {
        return Err(format!("nested at most {MAX_DEPTH} levels deep; flatten it"));
    }
    let budget = Budget::new(MAX_VALUE_BYTES);
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let value = Strict(&budget).deserialize(&mut deserializer);
    match value.and_then(|value| deserializer.end().map(|()| value)) {
        Ok(Value::Object(object)) => Ok((object, budget.taken())),
        Ok(_) => Err("a JSON object, such as {\"prompt\": \"Once\"}".to_owned()),
        Err(error) => Err(format!("valid JSON without repeated keys: {error}")),
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
        assert!(object(nested(MAX_DEPTH - 1).as_bytes()).is_ok());
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
            let why = object(text.as_bytes()).unwrap_err();
            assert!(why.contains(reason), "{reason}: {why}");
        }
        assert_eq!(depth(br#"{"[[[\"[[": [1]}"#), 2);
    }
}
