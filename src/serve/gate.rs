//! Middleware around every request: host, API key, request id, log; and a panic becomes an answer.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::failure::Failure;
use super::json::discard;
use super::keys::Tenant;
use super::state::ServerState;
use super::ui;
use rsgen_core::error::Result;
use rsgen_core::escape;

/// The path that needs no key and no host: supervisors ask there whether the process lives.
pub(super) const LIVE: &str = "/health/live";

const REQUEST_ID: &str = "x-request-id";
/// The longest id of a client.
const MAX_ID: usize = 128;

/// Checks a request, passes it on, and logs it.
pub(super) async fn gate(
    State(state): State<Arc<ServerState>>,
    mut request: Request,
    next: Next,
) -> Response {
    let started = Instant::now();
    let id = request_id(request.headers()).unwrap_or_else(|| state.new_id("req"));
    let place = format!("{} {}", request.method(), request.uri().path());
    let mut response = match check(&state, &request) {
        Ok(tenant) => {
            request.extensions_mut().insert(tenant);
            caught(&state, next.run(request)).await.unwrap_or_else(IntoResponse::into_response)
        }
        Err(failure) => {
            discard(request, &state).await;
            failure.into_response()
        }
    };
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    let is_defect = response.status() == StatusCode::INTERNAL_SERVER_ERROR;
    log::log!(
        target: "rsgen::serve",
        if is_defect { log::Level::Error } else { log::Level::Info },
        "{} {} {:.1} ms {id}",
        escape::name(&place),
        response.status().as_u16(),
        started.elapsed().as_secs_f64() * 1e3
    );
    response
}

fn check(state: &ServerState, request: &Request) -> Result<Tenant, Failure> {
    if request.uri().path() == LIVE {
        return Ok(Tenant::default());
    }
    state.hosts.check(request.headers())?;
    if state.options.ui && ui::has(request.uri().path()) {
        return Ok(Tenant::default());
    }
    state.keys.check(request.headers())
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
