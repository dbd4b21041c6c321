//! CORS: the pages of other origins that may read answers, which browsers ask about. There are none by
//! default.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};

use super::options::ServeOptions;

/// The origin of a request, if its pages may read the answer.
pub(super) fn origin(options: &ServeOptions, headers: &HeaderMap) -> Option<HeaderValue> {
    let origin = headers.get(header::ORIGIN)?;
    let is_allowed = |allowed: &String| {
        allowed == "*" || allowed.eq_ignore_ascii_case(origin.to_str().unwrap_or_default())
    };
    options.cors_origins.iter().any(is_allowed).then(|| origin.clone())
}

/// Whether a browser asks for the permission to send a request. It sends no key with that.
pub(super) fn is_preflight(request: &Request) -> bool {
    request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// Lets the pages of an origin read an answer, or send what they asked for.
pub(super) fn allow(answer: &mut HeaderMap, origin: HeaderValue, asked: Option<&HeaderMap>) {
    answer.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    answer.append(header::VARY, HeaderValue::from_static("origin"));
    answer.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("*"));
    let Some(asked) = asked else { return };
    answer.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST"));
    answer.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    if let Some(names) = asked.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        answer.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
    }
    // Chrome asks this before a public page calls a private address.
    if asked.contains_key("access-control-request-private-network") {
        let name = HeaderName::from_static("access-control-allow-private-network");
        answer.insert(name, HeaderValue::from_static("true"));
    }
}
