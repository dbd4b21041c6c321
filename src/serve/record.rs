//! The line that the log has for each request: written when it has ended, which for a stream is after its last token.

use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderMap, HeaderName};
use serde_json::{Map, Value, json};

use super::metrics::Cancelled;
use super::options::LogFormat;
use crate::engine::GenerationOutput;
use rsgen_core::escape;
use rsgen_core::sync::Mutex;

/// The target of these lines; a logger that writes JSON finds an object in them.
pub(crate) const TARGET: &str = "rsgen::serve::request";

/// The headers by which a client tells the trace that its request belongs to (W3C Trace Context).
const TRACE_HEADERS: [&str; 2] = ["traceparent", "tracestate"];

/// Who is told of each request that has ended, besides the log.
pub(super) trait Observer: fmt::Debug + Send + Sync {
    fn ended(&self, request: &Record, told: &Told, observed: &Observed);
}

/// What an observer wants to know of a request and the log does not.
#[derive(Debug)]
#[cfg_attr(not(feature = "otel"), expect(dead_code, reason = "the one observer is behind the feature"))]
pub(super) struct Observed {
    /// Such as `/v1/models/{model}`; `None` for a path that there is no route for.
    pub(super) route: Option<String>,
    /// The [`TRACE_HEADERS`] that it came with.
    pub(super) headers: HeaderMap,
}

/// What is known of a request. The line is written when the last clone is dropped.
#[derive(Debug)]
pub(super) struct Record {
    format: LogFormat,
    pub(super) method: String,
    pub(super) path: String,
    pub(super) id: String,
    pub(super) started: Instant,
    told: Mutex<Told>,
    observer: Option<(Arc<dyn Observer>, Observed)>,
}

/// What becomes known while it runs.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) status: u16,
    pub(super) key: Option<Arc<str>>,
    pub(super) model: Option<String>,
    pub(super) prompt_tokens: Option<u64>,
    pub(super) cached_tokens: u64,
    pub(super) generated_tokens: u64,
    pub(super) queued: Option<Duration>,
    pub(super) encoder: Option<Duration>,
    pub(super) first_token: Option<Duration>,
    pub(super) last_token: Option<Duration>,
    pub(super) finish: Option<&'static str>,
}

impl Record {
    pub(super) fn new(format: LogFormat, method: &str, path: &str, id: &str) -> Self {
        let [method, path, id] = [method, path, id].map(str::to_owned);
        let (started, told, observer) = (Instant::now(), Mutex::default(), None);
        Self { format, method, path, id, started, told, observer }
    }

    /// The same with an observer, if there is one.
    pub(super) fn observed_by(mut self, observer: Option<&Arc<dyn Observer>>, request: &Request) -> Self {
        self.observer = observer.map(|observer| {
            let route = request.extensions().get().map(|route: &MatchedPath| route.as_str().to_owned());
            let of_trace = TRACE_HEADERS.iter().filter_map(|&name| {
                Some((HeaderName::from_static(name), request.headers().get(name)?.clone()))
            });
            (Arc::clone(observer), Observed { route, headers: of_trace.collect() })
        });
        self
    }

    /// Its answer has begun.
    pub(super) fn answered(&self, status: u16) {
        self.told.lock().status = status;
    }

    /// The name of its key.
    pub(super) fn of_key(&self, name: Option<Arc<str>>) {
        self.told.lock().key = name;
    }

    pub(super) fn of_model(&self, name: &str) {
        self.told.lock().model = Some(name.to_owned());
    }

    /// It has waited for its turn.
    pub(super) fn queued(&self, time: Duration) {
        self.told.lock().queued = Some(time);
    }

    /// A token of a stream has come.
    pub(super) fn token(&self) {
        let now = self.started.elapsed();
        let mut told = self.told.lock();
        told.first_token.get_or_insert(now);
        told.last_token = Some(now);
        told.generated_tokens += 1;
    }

    /// It ended early.
    pub(super) fn cancelled(&self, cause: Cancelled) {
        self.told.lock().finish = Some(cause.as_str());
    }

    /// All of its answers have ended.
    pub(super) fn finished(&self, output: &GenerationOutput) {
        let (now, timings) = (self.started.elapsed(), output.timings);
        let mut told = self.told.lock();
        // An answer that is no stream tells its times at its end.
        let before = timings.total.saturating_sub(timings.first_token);
        told.encoder = Some(timings.encoder).filter(|time| !time.is_zero());
        told.first_token.get_or_insert(now.saturating_sub(before));
        told.last_token.get_or_insert(now);
        told.prompt_tokens = Some(output.usage.prompt_tokens as u64);
        told.cached_tokens = output.usage.cached_prompt_tokens as u64;
        told.generated_tokens = output.usage.generated_tokens as u64;
        told.finish = output.rows.first().map(|row| row.generated.finish_reason.as_str());
    }

    /// Texts have been computed, and nothing generated.
    pub(super) fn embedded(&self, tokens: usize) {
        let prompts = &mut self.told.lock().prompt_tokens;
        *prompts = Some(prompts.unwrap_or_default() + tokens as u64);
    }

    /// What there is to tell, in the order of the line.
    fn fields(&self) -> Map<String, Value> {
        let told = self.told.lock();
        let ms = |time: Duration| json!((time.as_secs_f64() * 1e4).round() / 10.0);
        let has_tokens = told.prompt_tokens.is_some() || told.generated_tokens > 0;
        let all = [
            ("method", Some(json!(self.method))),
            ("path", Some(json!(escape::name(&self.path)))),
            ("status", Some(json!(told.status))),
            ("ms", Some(ms(self.started.elapsed()))),
            ("id", Some(json!(self.id))),
            ("key", told.key.as_deref().map(|name| json!(name))),
            ("model", told.model.as_ref().map(|name| json!(name))),
            ("prompt_tokens", told.prompt_tokens.map(|count| json!(count))),
            ("cached_tokens", told.prompt_tokens.map(|_| json!(told.cached_tokens))),
            ("generated_tokens", has_tokens.then(|| json!(told.generated_tokens))),
            ("queued_ms", told.queued.map(ms)),
            ("encoder_ms", told.encoder.map(ms)),
            ("first_token_ms", told.first_token.map(ms)),
            ("last_token_ms", told.last_token.map(ms)),
            ("finish", told.finish.map(|reason| json!(reason))),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }

    fn line(&self) -> String {
        let fields = self.fields();
        if self.format == LogFormat::Json {
            return Value::Object(fields).to_string();
        }
        let mut line = format!("{} {}", self.method, escape::name(&self.path));
        for (name, value) in fields.into_iter().skip(2) {
            let value =
                value.as_str().map_or_else(|| value.to_string(), |text| escape::name(text).to_string());
            // Writing to a string cannot fail.
            let _ = match &*name {
                "status" | "id" => write!(line, " {value}"),
                "ms" => write!(line, " {value} ms"),
                _ => write!(line, " {name}={value}"),
            };
        }
        line
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let is_defect = self.told.lock().status == 500;
        let level = if is_defect { log::Level::Error } else { log::Level::Info };
        if log::log_enabled!(target: TARGET, level) {
            log::log!(target: TARGET, level, "{}", self.line());
        }
        if let Some((observer, observed)) = self.observer.take() {
            observer.ended(self, &self.told.lock(), &observed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_encoder_took_is_told_where_there_is_one() {
        for (encoder, told) in [(Duration::ZERO, None), (Duration::from_micros(2500), Some(json!(2.5)))] {
            let record = Record::new(LogFormat::Json, "POST", "/v1/completions", "x");
            let mut output = GenerationOutput::default();
            output.timings.encoder = encoder;
            record.finished(&output);
            assert_eq!(record.fields().get("encoder_ms"), told.as_ref());
        }
    }

    #[test]
    fn a_line_has_what_is_known_of_a_request() {
        let record = |format| {
            let record = Record::new(format, "POST", "/v1/completions", "req-1");
            record.answered(200);
            record.of_key(Some("alice".into()));
            record.of_model("big");
            record.queued(Duration::ZERO);
            record.token();
            record.cancelled(Cancelled::Client);
            record
        };
        let line = record(LogFormat::Text).line();
        let begin = line.split_once(" ms ").unwrap();
        assert!(begin.0.starts_with("POST /v1/completions 200 "), "{line}");
        assert!(
            begin.1.starts_with("req-1 key=alice model=big generated_tokens=1 queued_ms=0.0 first_token_ms="),
            "{line}"
        );
        assert!(line.contains(" last_token_ms=") && line.ends_with(" finish=client"), "{line}");
        let fields: Value = serde_json::from_str(&record(LogFormat::Json).line()).unwrap();
        for (name, value) in [
            ("method", json!("POST")),
            ("path", json!("/v1/completions")),
            ("status", json!(200)),
            ("id", json!("req-1")),
            ("key", json!("alice")),
            ("model", json!("big")),
            ("generated_tokens", json!(1)),
            ("finish", json!("client")),
        ] {
            assert_eq!(fields[name], value, "{name}");
        }
        assert!(fields["ms"].is_number() && fields["last_token_ms"].is_number());
        let plain = Record::new(LogFormat::Text, "GET", "/a\nb", "x");
        plain.answered(404);
        let line = plain.line();
        assert!(!line.contains('\n') && line.contains(" 404 ") && line.ends_with(" x"), "{line}");
    }
}
