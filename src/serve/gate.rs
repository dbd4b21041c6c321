//! Middleware around every request: host, API key, CORS, request id, log; and a panic becomes an answer.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::cors;
use super::failure::Failure;
use super::forms;
use super::json::discard;
use super::keys::{self, Tenant};
use super::record::Record;
use super::shapes::Shape;
use super::state::ServerState;
use super::ui;
use rsgen_core::error::Result;

/// The path that needs no key and no host: supervisors ask there whether the process lives.
pub(super) const LIVE: &str = "/health/live";
/// The path that needs no key to tell whether the server takes requests.
pub(super) const READY: &str = "/health/ready";

const REQUEST_ID: &str = "x-request-id";
/// The longest id of a client.
const MAX_ID: usize = 128;

/// Checks a request, passes it on, and logs it.
pub(super) async fn gate(
    State(state): State<Arc<ServerState>>,
    mut request: Request,
    next: Next,
) -> Response {
    let id = request_id(request.headers()).unwrap_or_else(|| state.new_id("req"));
    let (method, path) = (request.method().as_str(), request.uri().path());
    let record = Record::new(state.options.log_format, method, path, &id);
    let record = Arc::new(record.observed_by(state.observer.as_ref(), &request));
    let origin = cors::origin(&state.options, request.headers());
    let asked = (origin.is_some() && cors::is_preflight(&request)).then(|| request.headers().clone());
    let shape = Shape::of(request.uri().path());
    let mut checked = check(&state, &request, origin.is_some(), asked.is_some());
    let is_keyless = matches!(&checked, Err(failure) if failure.code == Some(keys::INVALID));
    if is_keyless && forms::may_bear_key(&request) {
        checked = forms::tenant(&mut request, &state).await;
    }
    let mut response = match checked {
        Ok(_) if asked.is_some() => StatusCode::NO_CONTENT.into_response(),
        Ok(tenant) => {
            record.of_key(tenant.name.clone());
            request.extensions_mut().insert(Arc::clone(&record));
            request.extensions_mut().insert(tenant);
            caught(&state, next.run(request)).await.unwrap_or_else(IntoResponse::into_response)
        }
        Err(failure) => {
            discard(request, &state).await;
            failure.into_response()
        }
    };
    response = shape.answer(response, &id);
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    if let Some(origin) = origin {
        cors::allow(response.headers_mut(), origin, asked.as_ref());
    }
    record.answered(response.status().as_u16());
    response
}

fn check(
    state: &ServerState,
    request: &Request,
    is_allowed_origin: bool,
    is_preflight: bool,
) -> Result<Tenant, Failure> {
    let (path, headers) = (request.uri().path(), request.headers());
    if path == LIVE {
        return Ok(Tenant::default());
    }
    state.hosts.check(headers, is_allowed_origin)?;
    let asks_readiness = path == READY && !headers.contains_key(header::AUTHORIZATION);
    if is_preflight || asks_readiness || state.options.ui && ui::has(path) {
        return Ok(Tenant::default());
    }
    state.keys.check(headers)
}

/// The id that the client gave, if it is short and visible.
fn request_id(headers: &HeaderMap) -> Option<String> {
    let id = headers.get(REQUEST_ID)?.to_str().ok()?;
    let is_plain = id.len() <= MAX_ID && !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_graphic());
    is_plain.then(|| id.to_owned())
}

/// Runs a part of a request. A panic, which has been printed, fails this request alone.
pub(super) async fn caught<T>(state: &ServerState, work: impl Future<Output = T>) -> Result<T, Failure> {
    let mut work = pin!(work);
    std::future::poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
        Ok(Poll::Ready(value)) => Poll::Ready(Ok(value)),
        Ok(Poll::Pending) => Poll::Pending,
        Err(_) => Poll::Ready(Err(state.panicked())),
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_clients_are_echoed_if_they_are_plain() {
        let id = |value: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.insert(REQUEST_ID, HeaderValue::from_bytes(value).unwrap());
            request_id(&headers)
        };
        assert_eq!(id(b"abc-1"), Some("abc-1".to_owned()));
        for odd in [b"".as_slice(), b"a b", b"\xff", "ü".as_bytes(), &[b'x'; MAX_ID + 1]] {
            assert_eq!(id(odd), None);
        }
        assert_eq!(request_id(&HeaderMap::new()), None);
    }
}
