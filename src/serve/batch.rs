//! Requests in the lines of a file instead of from connections: OpenAI's batch format.
//!
//! Each line is answered by the routes of the server, so every field and every error is theirs.

use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::http::{Request, StatusCode, header};
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::runtime;
use tokio::task::JoinSet;

use super::{ServeOptions, router_with};
use crate::engine::Interrupt;
use crate::generator::Generator;
use rsgen_core::error::{Error, Result};

/// The paths that a line may name.
pub const BATCH_URLS: [&str; 2] = ["/v1/chat/completions", "/v1/completions"];

/// How often an interrupt is polled while requests run.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A request: a line of the input.
#[derive(Debug, Clone, Deserialize)]
pub struct BatchRequest {
    /// The key of the answer, unique in the file.
    pub custom_id: String,
    /// `POST`.
    #[serde(default = "post")]
    pub method: String,
    /// One of [`BATCH_URLS`].
    pub url: String,
    /// The request as the server takes it.
    pub body: serde_json::Map<String, Value>,
}

fn post() -> String {
    "POST".to_owned()
}

/// An answer: a line of the output.
#[derive(Debug, Clone, Serialize)]
pub struct BatchAnswer {
    /// The answer's own id.
    pub id: String,
    /// The `custom_id` of the request.
    pub custom_id: String,
    /// The server's response, also an error.
    pub response: BatchResponse,
    /// Always `null`: errors of a request are in `response`, as in OpenAI's format.
    pub error: Option<Value>,
}

/// The server's response.
#[derive(Debug, Clone, Serialize)]
pub struct BatchResponse {
    /// 200, or the status of an error.
    pub status_code: u16,
    /// The id that logs of a server show.
    pub request_id: String,
    /// The completion, or an object with `error`.
    pub body: Value,
}

impl BatchRequest {
    /// Checks the rules that the types do not enforce.
    ///
    /// # Errors
    /// `Config`, naming the field.
    pub fn check(&self) -> Result<()> {
        let wrong = |field: &str, rule: String| Err(Error::config(format!("`{field}` must be {rule}")));
        if self.method != "POST" {
            return wrong("method", format!("\"POST\", but is {:?}", self.method));
        }
        if !BATCH_URLS.contains(&&*self.url) {
            return wrong("url", format!("one of {}, but is {:?}", BATCH_URLS.join(", "), self.url));
        }
        if self.body.get("stream").and_then(Value::as_bool) == Some(true) {
            return wrong("stream", "false in a batch; leave it out".to_owned());
        }
        Ok(())
    }

    /// The request's body. Without a seed of its own it gets one from `custom_id`, so that its answer depends
    /// neither on what else is in the file nor on how the file is divided.
    fn into_body(mut self) -> Vec<u8> {
        if self.body.get("seed").is_none_or(Value::is_null) {
            let digest = Sha256::digest(self.custom_id.as_bytes());
            let seed = u32::from_le_bytes([digest[0], digest[1], digest[2], digest[3]]) >> 1;
            self.body.insert("seed".to_owned(), seed.into());
        }
        Value::Object(self.body).to_string().into_bytes()
    }
}

/// Answers requests, at most `concurrency` at a time, which share the passes of the model. `requests` is
/// asked for the next one when there is room for it; `answered` gets each answer as soon as it is there, in
/// no fixed order.
///
/// # Errors
/// `Cancelled` when `interrupted` returns true: the running requests are abandoned. The first error of
/// `requests` or `answered`. An error of one request is its answer.
pub fn run_batch(
    generator: Generator,
    concurrency: usize,
    requests: &mut dyn Iterator<Item = Result<BatchRequest>>,
    answered: &mut dyn FnMut(BatchAnswer) -> Result<()>,
    interrupted: &mut Interrupt<'_>,
) -> Result<()> {
    let options =
        ServeOptions { max_requests: concurrency, max_body_bytes: 64 << 20, ..ServeOptions::default() };
    let router = router_with(generator, options)?;
    let failed = |error: std::io::Error| Error::internal(format!("no runtime for the requests: {error}"));
    let runtime = runtime::Builder::new_current_thread().enable_time().build().map_err(failed)?;
    let result = runtime.block_on(answer_all(&router, concurrency, requests, answered, interrupted));
    // Abandoned requests end at their next poll.
    runtime.shutdown_timeout(Duration::from_secs(5));
    result
}

async fn answer_all(
    router: &Router,
    concurrency: usize,
    requests: &mut dyn Iterator<Item = Result<BatchRequest>>,
    answered: &mut dyn FnMut(BatchAnswer) -> Result<()>,
    interrupted: &mut Interrupt<'_>,
) -> Result<()> {
    let mut running = JoinSet::new();
    loop {
        while running.len() < concurrency
            && let Some(request) = requests.next()
        {
            running.spawn(answer(router.clone(), request?));
        }
        if running.is_empty() {
            return Ok(());
        }
        if interrupted() {
            return Err(Error::cancelled());
        }
        match tokio::time::timeout(POLL_INTERVAL, running.join_next()).await {
            Ok(Some(Ok(answer))) => answered(answer)?,
            Ok(Some(Err(error))) => return Err(Error::internal(format!("a request ended early: {error}"))),
            Ok(None) | Err(_) => {}
        }
    }
}

/// The answer of the routes to a request.
async fn answer(router: Router, request: BatchRequest) -> BatchAnswer {
    let (custom_id, url) = (request.custom_id.clone(), request.url.clone());
    let http = Request::post(url)
        .header(header::HOST, "localhost")
        .header(header::CONTENT_TYPE, "application/json")
        .body(Body::from(request.into_body()));
    let response = match http {
        Ok(http) => respond(router, http).await,
        Err(error) => failure(&error.to_string()),
    };
    BatchAnswer { id: format!("batch_req_{}", response.request_id), custom_id, response, error: None }
}

async fn respond(router: Router, http: Request<Body>) -> BatchResponse {
    let response = match TowerToHyperService::new(router).call(http).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    let id = response.headers().get("x-request-id").and_then(|id| id.to_str().ok());
    let (status, request_id) = (response.status(), id.unwrap_or_default().to_owned());
    // The routes bound their answers themselves.
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap_or_else(|_| Bytes::new());
    match serde_json::from_slice(&body) {
        Ok(body) => BatchResponse { status_code: status.as_u16(), request_id, body },
        Err(_) => failure("the answer is incomplete"),
    }
}

fn failure(message: &str) -> BatchResponse {
    let status_code = StatusCode::INTERNAL_SERVER_ERROR.as_u16();
    let body = json!({ "error": { "message": message, "type": "server_error" } });
    BatchResponse { status_code, request_id: String::new(), body }
}

#[cfg(all(test, feature = "bundled"))]
mod tests {
    use super::*;

    #[expect(clippy::unwrap_used, reason = "the helpers of tests fail as tests do")]
    fn request(id: usize, more: &Value) -> BatchRequest {
        let mut body = json!({ "prompt": "Once upon a time", "max_tokens": 6 });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let line = json!({ "custom_id": format!("row-{id}"), "method": "POST", "url": "/v1/completions", "body": body });
        serde_json::from_value(line).unwrap()
    }

    #[expect(clippy::unwrap_used, reason = "the helpers of tests fail as tests do")]
    fn texts(requests: Vec<BatchRequest>, concurrency: usize) -> Vec<(String, u16, String)> {
        let mut answers = Vec::new();
        run_batch(
            Generator::bundled().unwrap(),
            concurrency,
            &mut requests.into_iter().map(Ok),
            &mut |answer| {
                let text = answer.response.body["choices"][0]["text"].as_str().unwrap_or_default();
                answers.push((answer.custom_id, answer.response.status_code, text.to_owned()));
                Ok(())
            },
            &mut || false,
        )
        .unwrap();
        answers.sort();
        answers
    }

    #[test]
    fn an_answer_is_independent_of_the_other_lines() {
        let all = || (0..9).map(|id| request(id, &json!({ "temperature": 1.0 }))).collect::<Vec<_>>();
        let together = texts(all(), 4);
        assert_eq!(together.len(), 9);
        assert!(together.iter().all(|(_, status, text)| *status == 200 && !text.is_empty()));
        // Each has a seed of its own.
        assert!(together.iter().any(|(_, _, text)| *text != together[0].2));
        let mut apart = texts(all().split_off(4), 1);
        apart.extend(texts(all().drain(..4).collect(), 2));
        apart.sort();
        assert_eq!(together, apart);
    }

    #[test]
    fn an_error_of_a_request_is_its_answer() {
        let wrong = request(0, &json!({ "max_tokens": -1 }));
        let answers = texts(vec![wrong, request(1, &json!({}))], 2);
        assert_eq!(answers[0].1, 400);
        assert_eq!(answers[1].1, 200);
    }

    #[test]
    fn unsupported_methods_paths_and_streams_are_refused() {
        let refused = |change: &dyn Fn(&mut BatchRequest)| {
            let mut request = request(0, &json!({}));
            change(&mut request);
            request.check().unwrap_err().to_string()
        };
        assert!(refused(&|request| request.method = "GET".to_owned()).contains("`method` must be \"POST\""));
        assert!(refused(&|request| request.url = "/v1/files".to_owned()).contains("/v1/chat/completions"));
        assert!(
            refused(&|request| drop(request.body.insert("stream".to_owned(), true.into())))
                .contains("`stream`")
        );
    }

    #[test]
    fn an_interrupt_cancels_the_running_requests() {
        let mut polls = 0;
        let mut interrupted = || {
            polls += 1;
            polls > 2
        };
        let long = request(0, &json!({ "max_tokens": 400, "ignore_eos": true }));
        let mut requests = std::iter::repeat_with(|| Ok(long.clone()));
        let generator = Generator::bundled().unwrap();
        let result = run_batch(generator, 2, &mut requests, &mut |_| Ok(()), &mut interrupted);
        assert_eq!(result.unwrap_err().kind(), rsgen_core::error::ErrorKind::Cancelled);
    }
}
