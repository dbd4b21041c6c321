//! Errors as clients get them: a status, and a body in the shape of OpenAI's.

use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use rsgen_core::error::{Error, ErrorKind, Mention};
use rsgen_core::escape;

/// The codes of failures that the server counts.
pub(super) const OVERLOADED: &str = "server_overloaded";
pub(super) const NUMERICAL: &str = "numerical_error";
pub(super) const INTERNAL: &str = "internal_error";

/// The `Retry-After` of a server that loads its model.
const LOADING_PAUSE: Duration = Duration::from_secs(1);

/// An error as a client gets it.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub(super) status: StatusCode,
    /// The `type` of the body, such as `invalid_request_error`.
    pub(super) kind: &'static str,
    pub(super) message: String,
    /// The field of the request that is wrong.
    pub(super) param: Option<String>,
    pub(super) code: Option<&'static str>,
    /// The header `Retry-After`.
    pub(super) retry_after: Option<Duration>,
}

impl Failure {
    /// An error of any status.
    pub(super) fn new(
        status: StatusCode,
        kind: &'static str,
        code: &'static str,
        message: impl Into<String>,
    ) -> Self {
        let message = escape::message(&message.into()).into_owned();
        Self { status, kind, message, param: None, code: Some(code), retry_after: None }
    }

    /// The client has to change its request.
    pub(super) fn refused(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self::new(status, "invalid_request_error", code, message)
    }

    /// 400: a field of the request is wrong.
    pub(super) fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self { param: Some(param.into()), code: None, ..Self::bad_request(message) }
    }

    /// 400: a field of the request is wrong, which has this name there.
    pub(super) fn of(param: impl Into<String>, error: &Error) -> Self {
        Self::invalid(param, told(error))
    }

    /// 400: the request as a whole is wrong.
    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self { code: None, ..Self::refused(StatusCode::BAD_REQUEST, "", message) }
    }

    /// 400: a field of other servers that this one does not support.
    pub(super) fn unsupported(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: Some("unsupported_parameter"), ..Self::invalid(param, message) }
    }

    /// 404.
    pub(super) fn not_found(code: &'static str, message: impl Into<String>) -> Self {
        Self::refused(StatusCode::NOT_FOUND, code, message)
    }

    /// 503: try again later.
    pub(super) fn overloaded(message: impl Into<String>, retry_after: Duration) -> Self {
        let failure = Self::new(StatusCode::SERVICE_UNAVAILABLE, "server_error", OVERLOADED, message);
        Self { retry_after: Some(retry_after), ..failure }
    }

    /// 503: the model is still loading.
    pub(super) fn loading() -> Self {
        Self::overloaded("the server still loads its model; come again soon", LOADING_PAUSE)
            .with_code("loading")
    }

    /// 429: the client has more requests than its key allows.
    pub(super) fn rate_limited(message: impl Into<String>, retry_after: Duration) -> Self {
        let failure =
            Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", "rate_limit_exceeded", message);
        Self { retry_after: Some(retry_after), ..failure }
    }

    /// 500.
    pub(super) fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", INTERNAL, message)
    }

    /// 500: a panic, which has been printed.
    pub(super) fn panicked() -> Self {
        Self::internal("a defect of the server ended this request; its log says more")
    }

    /// The same error with a code.
    pub(super) fn with_code(self, code: &'static str) -> Self {
        Self { code: Some(code), ..self }
    }

    /// The same error about a field that the client knows by another name.
    pub(super) fn renamed(mut self, from: &str, to: &str) -> Self {
        if self.param.as_deref() == Some(from) {
            self.param = Some(to.to_owned());
        }
        self.message = self.message.replace(&format!("`{from}`"), &format!("`{to}`"));
        self
    }

    /// The body of the answer, or the last event of a stream.
    pub(super) fn body(&self) -> Value {
        let Self { kind, message, param, code, .. } = self;
        json!({ "error": { "message": message, "type": kind, "param": param, "code": code } })
    }

    /// Whether the same request can succeed later.
    fn is_passing(&self) -> bool {
        matches!(
            self.status,
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT
        )
    }
}

/// The text of an error, as clients speak: in JSON.
pub(super) fn told(error: &Error) -> String {
    error.in_words(&|mention| match mention {
        Mention::Unset => "null".to_owned(),
        other => other.plain(),
    })
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let message = told(&error);
        match error.kind() {
            ErrorKind::Config | ErrorKind::Input => {
                // A value of the model's file is none of the request's.
                let param = error.field().filter(|_| error.origin().is_none()).map(str::to_owned);
                Self { param, ..Self::bad_request(message) }
            }
            ErrorKind::Capacity => Self::overloaded(message, Duration::from_secs(1)),
            ErrorKind::Cancelled => {
                let message = "the server ended this request, because it is shutting down";
                Self { code: Some("shutting_down"), ..Self::overloaded(message, Duration::from_secs(1)) }
            }
            ErrorKind::Numerical => Self { code: Some(NUMERICAL), ..Self::internal(message) },
            _ => {
                log::error!(target: "rsgen::serve", "{}", escape::message(&message));
                Self::panicked()
            }
        }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = (self.status, axum::Json(self.body())).into_response();
        response.extensions_mut().insert(self.clone());
        let headers = response.headers_mut();
        headers.insert(
            "x-should-retry",
            HeaderValue::from_static(if self.is_passing() { "true" } else { "false" }),
        );
        if let Some(wait) = self.retry_after {
            let milliseconds = wait.as_millis().min(u128::from(u32::MAX)) as u64;
            headers.insert(header::RETRY_AFTER, HeaderValue::from(milliseconds.div_ceil(1000).max(1)));
            headers.insert("retry-after-ms", HeaderValue::from(milliseconds));
        }
        response
    }
}
