//! Errors in the shapes of protocols beside OpenAI's, by the path of a request.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};

use super::failure::{self, Failure};
use super::forms;

/// The route of Anthropic, which others are below.
pub(super) const MESSAGES: &str = "/v1/messages";
/// What the paths of Ollama begin with.
pub(super) const OLLAMA: &str = "/api/";
/// The path of Ollama whose body may name its model as `name`.
pub(super) const OLLAMA_SHOW: &str = "/api/show";
/// The id of a request, where Anthropic's client looks for it.
const ANTHROPIC_ID: &str = "request-id";

/// The shape of the errors of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// OpenAI's: an object with the field, the kind and a code.
    OpenAi,
    /// That of LibreTranslate and Ollama: a text.
    Plain,
    Anthropic,
}

impl Shape {
    pub(super) fn of(path: &str) -> Self {
        let below = path.strip_prefix(MESSAGES);
        match path {
            _ if forms::is_path(path) || path.starts_with(OLLAMA) => Self::Plain,
            _ if below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) => Self::Anthropic,
            _ => Self::OpenAi,
        }
    }

    /// The same answer, with an error in this shape.
    pub(super) fn answer(self, mut response: Response, id: &str) -> Response {
        if self == Self::OpenAi {
            return response;
        }
        if let (Self::Anthropic, Ok(id)) = (self, HeaderValue::from_str(id)) {
            response.headers_mut().insert(ANTHROPIC_ID, id);
        }
        let Some(failure) = response.extensions_mut().remove::<Failure>() else { return response };
        let body = if self == Self::Plain { plain(&failure) } else { anthropic(&failure) };
        let (mut parts, _) = response.into_parts();
        parts.headers.remove(header::CONTENT_LENGTH);
        let (_, body) = axum::Json(body).into_response().into_parts();
        Response::from_parts(parts, body)
    }
}

/// An error as a text.
pub(super) fn plain(failure: &Failure) -> Value {
    json!({ "error": failure.message })
}

/// An error as Anthropic writes it.
pub(super) fn anthropic(failure: &Failure) -> Value {
    let kind = match (failure.status, failure.code) {
        (StatusCode::UNAUTHORIZED, _) => "authentication_error",
        (StatusCode::FORBIDDEN, _) => "permission_error",
        (StatusCode::NOT_FOUND, _) => "not_found_error",
        (StatusCode::PAYLOAD_TOO_LARGE, _) => "request_too_large",
        (StatusCode::REQUEST_TIMEOUT, _) => "timeout_error",
        (StatusCode::TOO_MANY_REQUESTS, _) => "rate_limit_error",
        (StatusCode::SERVICE_UNAVAILABLE, _) | (_, Some(failure::OVERLOADED)) => "overloaded_error",
        (status, _) if status.is_server_error() => "api_error",
        _ => "invalid_request_error",
    };
    json!({ "type": "error", "error": { "type": kind, "message": failure.message } })
}

/// An error as an event of the Responses API.
pub(super) fn of_response(failure: &Failure) -> Value {
    let Failure { code, message, param, .. } = failure;
    json!({ "type": "error", "code": code, "message": message, "param": param, "sequence_number": 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_has_the_shape_of_its_protocol() {
        for (path, shape) in [
            ("/v1/messages", Shape::Anthropic),
            ("/v1/messages/count_tokens", Shape::Anthropic),
            ("/v1/messages/batches", Shape::Anthropic),
            ("/v1/messagesX", Shape::OpenAi),
            ("/v1/responses", Shape::OpenAi),
            ("/v1/responses/resp_1/input_items", Shape::OpenAi),
            ("/api/chat", Shape::Plain),
            ("/api/pull", Shape::Plain),
            ("/api", Shape::OpenAi),
            ("/translate", Shape::Plain),
            ("/v1/completions", Shape::OpenAi),
            ("/", Shape::OpenAi),
        ] {
            assert_eq!(Shape::of(path), shape, "{path}");
        }
    }

    #[test]
    fn each_status_has_the_kind_that_anthropic_has_for_it() {
        for (status, kind) in [
            (400, "invalid_request_error"),
            (401, "authentication_error"),
            (403, "permission_error"),
            (404, "not_found_error"),
            (405, "invalid_request_error"),
            (413, "request_too_large"),
            (429, "rate_limit_error"),
            (500, "api_error"),
            (503, "overloaded_error"),
        ] {
            let failure = Failure::refused(StatusCode::from_u16(status).unwrap(), "x", "why");
            let expected = json!({ "type": "error", "error": { "type": kind, "message": "why" } });
            assert_eq!(anthropic(&failure), expected);
        }
    }
}
