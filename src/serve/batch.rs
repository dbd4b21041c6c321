//! Requests in the lines of a file instead of from connections: OpenAI's batch format.
//!
//! Each line is answered by the routes of the server, so every field and every error is theirs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::http::{Request, header};
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::runtime;
use tokio::task::JoinSet;

use super::api::IGNORED;
use super::failure::Failure;
use super::json::{self, Parsed};
use super::{ServeOptions, router_with};
use crate::engine::Interrupt;
use crate::generator::Generator;
use rsgen_core::error::{Error, Result};
use rsgen_generation::TokenTrie;

/// The paths that a line may name.
pub const BATCH_URLS: [&str; 3] = ["/v1/chat/completions", "/v1/completions", "/rsgen/v1/translate"];

/// How often an interrupt is polled while requests run.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A request: a line of the input.
#[derive(Debug, Clone, Deserialize)]
#[non_exhaustive]
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
    /// Why it is answered with an error, if it cannot be run.
    #[serde(skip)]
    pub error: Option<String>,
}

fn post() -> String {
    "POST".to_owned()
}

/// An answer: a line of the output.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct BatchAnswer {
    /// The `custom_id` of the request.
    pub custom_id: String,
    /// 200, or the status of an error.
    pub status_code: u16,
    /// The id that logs of a server show.
    pub request_id: String,
    /// The completion, or an object with `error`, as JSON text: as values it would take twenty times as much.
    pub body: String,
    /// The fields of the request that no route knows, which have no effect.
    pub ignored: Vec<String>,
}

impl BatchAnswer {
    /// An answer that is an error.
    fn failed(custom_id: String, failure: &Failure) -> Self {
        let (status_code, body) = (failure.status.as_u16(), failure.body().to_string());
        Self { custom_id, status_code, request_id: String::new(), body, ignored: Vec::new() }
    }

    /// The line, in OpenAI's format. Errors of a request are in its response.
    pub fn to_json(&self) -> String {
        let Self { custom_id, status_code, request_id, body, .. } = self;
        format!(
            r#"{{"id":"batch_req_{request_id}","custom_id":{},"response":{{"status_code":{status_code},"request_id":"{request_id}","body":{body}}},"error":null}}"#,
            Value::from(&**custom_id)
        )
    }
}

impl BatchRequest {
    /// Reads a line, with the limits that the server has for a body. A line that is no UTF-8 is answered with
    /// an error.
    ///
    /// # Errors
    /// `Input` when it is no request; `Config`, naming the field, when it is none that can be run.
    pub fn read(line: &[u8]) -> Result<Self> {
        let text = String::from_utf8_lossy(line);
        let wrong = |why: &dyn std::fmt::Display| {
            Error::input(format!("it must be a JSON object with `custom_id`, `url` and `body`, but {why}"))
        };
        let (fields, _) =
            json::object(text.as_bytes()).map_err(|rule| wrong(&format_args!("must be {rule}")))?;
        let request = serde_json::from_value(Value::Object(fields));
        let mut request: Self = request.map_err(|error| wrong(&error))?;
        if let Err(error) = std::str::from_utf8(line) {
            let byte = error.valid_up_to();
            request.error = Some(format!("the line must be UTF-8, but byte {byte} is not; convert it"));
        }
        request.check()?;
        Ok(request)
    }

    /// Checks the rules that the types do not enforce.
    ///
    /// # Errors
    /// `Config`, naming the field.
    fn check(&self) -> Result<()> {
        let wrong = |field: &str, rule: String| Err(Error::config(format!("must be {rule}")).about(field));
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

    /// The fields of the body. Without a seed of its own it gets one from `custom_id`, so that its answer
    /// depends neither on what else is in the file nor on how the file is divided.
    fn seeded(mut self) -> Parsed {
        if self.body.get("seed").is_none_or(Value::is_null) {
            let digest = Sha256::digest(self.custom_id.as_bytes());
            let seed = u32::from_le_bytes([digest[0], digest[1], digest[2], digest[3]]) >> 1;
            self.body.insert("seed".to_owned(), seed.into());
        }
        Parsed { fields: self.body, len: 0 }
    }
}

/// How requests are answered.
#[derive(Debug, Clone)]
pub struct BatchOptions {
    /// How many run at a time.
    pub concurrency: usize,
    /// The catalogues that requests may name as their `allowed_sequences`.
    pub catalogues: BTreeMap<String, Arc<TokenTrie>>,
}

impl BatchOptions {
    /// So many requests at a time, without catalogues.
    pub fn new(concurrency: usize) -> Self {
        Self { concurrency, catalogues: BTreeMap::new() }
    }
}

/// Answers requests, at most `concurrency` of the options at a time, which share the passes of the model. `requests` is
/// asked for the next one when there is room for it; `answered` gets each answer as soon as it is there, in
/// no fixed order.
///
/// # Errors
/// `Cancelled` when `interrupted` returns true: the running requests are abandoned. The first error of
/// `requests` or `answered`. An error of one request is its answer.
pub fn run_batch(
    generator: Generator,
    options: BatchOptions,
    requests: &mut dyn Iterator<Item = Result<BatchRequest>>,
    answered: &mut dyn FnMut(BatchAnswer) -> Result<()>,
    interrupted: &mut Interrupt<'_>,
) -> Result<()> {
    let BatchOptions { concurrency, catalogues } = options;
    let options = ServeOptions { max_requests: concurrency, catalogues, ..ServeOptions::default() };
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
    let custom_id = request.custom_id.clone();
    if let Some(error) = &request.error {
        return BatchAnswer::failed(custom_id, &Failure::bad_request(error));
    }
    let http = Request::post(&request.url).header(header::HOST, "localhost").extension(request.seeded());
    let http = match http.body(Body::empty()) {
        Ok(http) => http,
        Err(error) => return BatchAnswer::failed(custom_id, &Failure::internal(error.to_string())),
    };
    let response = match TowerToHyperService::new(router).call(http).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    let (head, body) = response.into_parts();
    // The routes bound their answers themselves.
    let body = to_bytes(body, usize::MAX).await.unwrap_or_else(|_| Bytes::new());
    let header = |name| head.headers.get(name).and_then(|id| id.to_str().ok()).unwrap_or_default();
    let (status_code, request_id) = (head.status.as_u16(), header("x-request-id").to_owned());
    let ignored = header(IGNORED).split(", ").filter(|name| !name.is_empty()).map(str::to_owned).collect();
    match String::from_utf8(body.into()) {
        Ok(body) if !body.is_empty() => BatchAnswer { custom_id, status_code, request_id, body, ignored },
        _ => BatchAnswer::failed(custom_id, &Failure::internal("the answer is incomplete")),
    }
}

#[cfg(all(test, feature = "bundled"))]
mod tests {
    use super::*;

    use serde_json::json;

    #[expect(clippy::unwrap_used, reason = "the helpers of tests fail as tests do")]
    fn request(id: usize, more: &Value) -> BatchRequest {
        let mut body = json!({ "prompt": "Once upon a time", "max_tokens": 6 });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let line = json!({ "custom_id": format!("row-{id}"), "method": "POST", "url": "/v1/completions", "body": body });
        BatchRequest::read(line.to_string().as_bytes()).unwrap()
    }

    #[expect(clippy::unwrap_used, reason = "the helpers of tests fail as tests do")]
    fn texts(requests: Vec<BatchRequest>, concurrency: usize) -> Vec<(String, u16, String)> {
        let mut answers = Vec::new();
        run_batch(
            Generator::bundled().unwrap(),
            BatchOptions::new(concurrency),
            &mut requests.into_iter().map(Ok),
            &mut |answer| {
                let body: Value = serde_json::from_str(&answer.body).unwrap();
                let text = body["choices"][0]["text"].as_str().unwrap_or_default();
                answers.push((answer.custom_id, answer.status_code, text.to_owned()));
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
    fn lines_have_the_limits_of_bodies_and_a_line_that_is_no_utf_8_is_an_answer() {
        let line = |body: &str| format!(r#"{{"custom_id": "a", "url": "/v1/completions", "body": {body}}}"#);
        let many = format!("{{\"prompt\": [{}0]}}", "[],".repeat(1 << 20));
        for (body, why) in [
            (&*many, "67108864 bytes of memory"),
            (r#"{"a": 1, "a": 2}"#, "comes twice"),
            (&format!("{{\"a\": {}{}}}", "[".repeat(99), "]".repeat(99)), "at most 64 levels"),
            ("7", "map"),
            (r#"{"a": NaN}"#, "valid JSON"),
        ] {
            let error = BatchRequest::read(line(body).as_bytes()).unwrap_err().to_string();
            assert!(error.contains("`custom_id`") && error.contains(why), "{error}");
        }
        let mut bad = line(r#"{"prompt": "a?"}"#).into_bytes();
        let place = bad.iter().position(|&byte| byte == b'?').unwrap();
        bad[place] = 0xff;
        let answers = texts(vec![request_of(&bad), request(1, &json!({}))], 2);
        assert_eq!(answers.iter().map(|answer| answer.1).collect::<Vec<_>>(), [400, 200]);
    }

    #[expect(clippy::unwrap_used, reason = "the helpers of tests fail as tests do")]
    fn request_of(line: &[u8]) -> BatchRequest {
        BatchRequest::read(line).unwrap()
    }

    #[test]
    fn fields_without_effect_are_named_and_those_with_one_are_refused() {
        let mut answers = Vec::new();
        let requests =
            [request(0, &json!({ "user_data": 1, "topk": 2 })), request(1, &json!({ "mirostat": 2 }))];
        run_batch(
            Generator::bundled().unwrap(),
            BatchOptions::new(1),
            &mut requests.into_iter().map(Ok),
            &mut |answer| {
                answers.push((answer.status_code, answer.ignored.clone(), answer.to_json()));
                Ok(())
            },
            &mut || false,
        )
        .unwrap();
        assert_eq!((answers[0].0, &*answers[0].1.join(",")), (200, "user_data,topk"));
        let line: Value = serde_json::from_str(&answers[1].2).unwrap();
        assert_eq!((answers[1].0, &line["response"]["status_code"]), (400, &json!(400)));
        assert_eq!(line["response"]["body"]["error"]["param"], "mirostat");
        assert!(
            line["error"].is_null() && line["id"].as_str().unwrap().starts_with("batch_req_req-"),
            "{line}"
        );
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
    fn requests_name_catalogues_and_answers_their_entries() {
        let generator = Generator::bundled().unwrap();
        let trie = Arc::new(generator.token_trie([" fox", " little bird"]).unwrap());
        let catalogues = BTreeMap::from([("animals".to_owned(), trie)]);
        let (mut answers, options) = (Vec::new(), BatchOptions { catalogues, ..BatchOptions::new(2) });
        let named = |id, name: &str| request(id, &json!({ "allowed_sequences": name, "temperature": 0 }));
        let requests = [named(0, "animals"), named(1, "plants")];
        let mut answered = |answer: BatchAnswer| {
            answers.push((answer.custom_id, answer.status_code, answer.body));
            Ok(())
        };
        run_batch(generator, options, &mut requests.into_iter().map(Ok), &mut answered, &mut || false)
            .unwrap();
        answers.sort();
        let body: Value = serde_json::from_str(&answers[0].2).unwrap();
        let (choice, known) = (&body["choices"][0], [" fox", " little bird"]);
        let index = choice["entry"]["index"].as_u64().unwrap();
        assert_eq!(choice["text"], known[usize::try_from(index).unwrap()]);
        assert!(answers[1].1 == 400 && answers[1].2.contains("animals"), "{answers:?}");
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
        let result =
            run_batch(generator, BatchOptions::new(2), &mut requests, &mut |_| Ok(()), &mut interrupted);
        assert_eq!(result.unwrap_err().kind(), rsgen_core::error::ErrorKind::Cancelled);
    }
}
