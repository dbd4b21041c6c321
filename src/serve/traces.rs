//! A span of each request for an OpenTelemetry collector, over HTTP (OTLP in protobuf).
//!
//! The variables of OpenTelemetry's specification say where it is and what it gets: with
//! `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` or `OTEL_EXPORTER_OTLP_ENDPOINT` requests are traced, without them nothing is. A
//! request that comes with the header `traceparent` is a part of that trace. Attributes have the names of the conventions
//! for generative AI, and where these have none, vLLM's.

use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use axum::http::{Request, Response, Uri};
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::{Span as _, SpanKind, Status, Tracer as _, TracerProvider as _};
use opentelemetry::{Array, Key, KeyValue, StringValue, Value};
use opentelemetry_http::{Bytes, HeaderExtractor, HttpClient, HttpError};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use ureq::Agent;

use super::record::{Observed, Observer, Record, Told};
use rsgen_core::error::{Error, Result};

/// The variables with the collector's address, that for traces alone first.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
/// The variables with the protocol, that for traces alone first.
const PROTOCOLS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
/// The only protocol.
const PROTOCOL: &str = "http/protobuf";
/// The variable that switches all of it off.
const DISABLED: &str = "OTEL_SDK_DISABLED";
/// The variable that names exporters, `otlp` if it is not set.
const EXPORTERS: &str = "OTEL_TRACES_EXPORTER";
/// The time that the collector has for spans.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Paths that supervisors ask every few seconds begin with these.
const UNTRACED: [&str; 2] = ["/health", "/metrics"];

/// Sends a span of each request that has ended. Those that wait to be sent are sent when it is dropped.
#[derive(Debug)]
struct Traces {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
    propagator: TraceContextPropagator,
}

/// What the environment asks for: `None` if it names no collector.
///
/// # Errors
/// `Config` when the address is none.
pub(super) fn from_environment() -> Result<Option<Arc<dyn Observer>>> {
    let traces = Traces::of(|name| env::var(name).ok())?;
    Ok(traces.map(|traces| Arc::new(traces) as _))
}

impl Traces {
    /// What variables with these values ask for.
    fn of(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>> {
        let given = |name: &str| variable(name).filter(|value| !value.is_empty());
        let first = |names: [&'static str; 2]| names.into_iter().find_map(|name| Some((name, given(name)?)));
        let is_disabled = given(DISABLED).is_some_and(|value| value.eq_ignore_ascii_case("true"));
        let has_others = given(EXPORTERS).is_some_and(|all| all.split(',').all(|name| name.trim() != "otlp"));
        if is_disabled || has_others {
            return Ok(None);
        }
        let Some((name, address)) = first(ENDPOINTS) else { return Ok(None) };
        if let Some((name, protocol)) = first(PROTOCOLS).filter(|(_, protocol)| protocol != PROTOCOL) {
            return Err(Error::config(format!(
                "{name} must be {PROTOCOL}, for which collectors listen on port 4318, but is {protocol:?}"
            )));
        }
        let wrong = |reason: &dyn std::fmt::Display| {
            Error::config(format!(
                "{name} must be the address of a collector for OTLP over HTTP, such as http://localhost:4318, but is \
                 {address:?}: {reason}"
            ))
        };
        let parsed: Uri = address.parse().map_err(|error| wrong(&error))?;
        if parsed.scheme_str() != Some("http") {
            return Err(wrong(
                &"it does not begin with http://; spans reach others through a collector on this machine",
            ));
        }
        // The address of all signals lacks the path of this one.
        let endpoint = if name == ENDPOINTS[0] {
            address.clone()
        } else {
            format!("{}/v1/traces", address.trim_end_matches('/'))
        };
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(Client::new())
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(endpoint)
            .build()
            .map_err(|error| Error::config(format!("the variables that begin with OTEL_: {error}")))?;
        let provider =
            SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource()).build();
        let tracer = provider.tracer("rsgen");
        Ok(Some(Self { provider, tracer, propagator: TraceContextPropagator::new() }))
    }
}

/// The attributes of this process, as the environment names them; by itself the service is `rsgen`.
fn resource() -> Resource {
    let named = Resource::builder().build();
    let name = named.get(&Key::new("service.name"));
    if name.is_none_or(|name| name.as_str().starts_with("unknown_service")) {
        return Resource::builder().with_service_name("rsgen").build();
    }
    named
}

impl Observer for Traces {
    fn ended(&self, request: &Record, told: &Told, observed: &Observed) {
        let Record { method, path, id, started, .. } = request;
        if UNTRACED.iter().any(|prefix| path.starts_with(prefix)) {
            return;
        }
        let end = SystemTime::now();
        // Not after its path, which may hold an id or be none of ours: a name is for a kind of request.
        let name =
            observed.route.as_ref().map_or_else(|| method.clone(), |route| format!("{method} {route}"));
        let mut span = self
            .tracer
            .span_builder(name)
            .with_kind(SpanKind::Server)
            .with_start_time(end - started.elapsed())
            .with_attributes(attributes(told))
            .start_with_context(&self.tracer, &self.propagator.extract(&HeaderExtractor(&observed.headers)));
        span.set_attribute(KeyValue::new("http.request.method", method.clone()));
        span.set_attribute(KeyValue::new("url.path", path.clone()));
        if let Some(route) = &observed.route {
            span.set_attribute(KeyValue::new("http.route", route.clone()));
        }
        span.set_attribute(KeyValue::new("gen_ai.request.id", id.clone()));
        if told.status >= 500 {
            span.set_status(Status::error(""));
        }
        span.end_with_timestamp(end);
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        if let Err(error) = self.provider.shutdown() {
            log::warn!("the last spans may not have reached the collector: {error}");
        }
    }
}

/// What is known of a request, with times in seconds.
fn attributes(told: &Told) -> Vec<KeyValue> {
    let count = |number: u64| Value::I64(i64::try_from(number).unwrap_or(i64::MAX));
    let seconds = |time: Duration| Value::F64(time.as_secs_f64());
    let reasons = |reason: &'static str| Value::Array(Array::String(vec![StringValue::from(reason)]));
    let has_tokens = told.prompt_tokens.is_some() || told.generated_tokens > 0;
    let all = [
        ("http.response.status_code", Some(count(u64::from(told.status)))),
        ("enduser.id", told.key.as_deref().map(|name| name.to_owned().into())),
        ("gen_ai.provider.name", has_tokens.then(|| "rsgen".into())),
        ("gen_ai.request.model", told.model.clone().map(Value::from)),
        ("gen_ai.usage.input_tokens", told.prompt_tokens.map(count)),
        ("gen_ai.usage.cache_read.input_tokens", told.prompt_tokens.map(|_| count(told.cached_tokens))),
        ("gen_ai.usage.output_tokens", has_tokens.then(|| count(told.generated_tokens))),
        ("gen_ai.response.finish_reasons", told.finish.map(reasons)),
        ("gen_ai.latency.time_in_queue", told.queued.map(seconds)),
        ("gen_ai.latency.time_in_encoder", told.encoder.map(seconds)),
        ("gen_ai.latency.time_to_first_token", told.first_token.map(seconds)),
        ("gen_ai.latency.time_to_last_token", told.last_token.map(seconds)),
    ];
    all.into_iter().filter_map(|(name, value)| Some(KeyValue::new(name, value?))).collect()
}

/// Sends requests from the thread of the exporter. The first failure of several is logged.
#[derive(Debug)]
struct Client {
    agent: Agent,
    has_failed: AtomicBool,
}

impl Client {
    fn new() -> Self {
        let agent = Agent::config_builder().timeout_global(Some(TIMEOUT)).http_status_as_error(false).build();
        Self { agent: agent.into(), has_failed: AtomicBool::new(false) }
    }

    fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (parts, body) = request.into_parts();
        let response = self.agent.run(Request::from_parts(parts, &body[..]))?;
        let (parts, mut body) = response.into_parts();
        Ok(Response::from_parts(parts, body.read_to_vec()?.into()))
    }
}

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let address = request.uri().clone();
        let answer = self.send(request);
        let failure = match &answer {
            Ok(response) if response.status().is_success() => None,
            Ok(response) => Some(format!("it answers {}", response.status())),
            Err(error) => Some(error.to_string()),
        };
        let had_failed = self.has_failed.swap(failure.is_some(), Ordering::Relaxed);
        if let Some(failure) = failure.filter(|_| !had_failed) {
            log::warn!("spans do not reach the collector at {address}, and are dropped: {failure}");
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    use std::net::TcpListener;
    use std::thread;

    use super::*;
    use crate::serve::options::LogFormat;
    use axum::body::Body;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    /// What these variables ask for.
    fn traces(variables: &[(&str, &str)]) -> Result<Option<Traces>> {
        let found = |asked: &str| variables.iter().find(|(name, _)| *name == asked);
        Traces::of(|asked| found(asked).map(|(_, value)| (*value).to_owned()))
    }

    fn observer(name: &str, address: &str) -> Arc<dyn Observer> {
        Arc::new(traces(&[(name, address)]).unwrap().unwrap())
    }

    fn record(observer: &Arc<dyn Observer>, path: &str) -> Record {
        let request = Request::post(path).header("traceparent", format!("00-{TRACE}-00f067aa0ba902b7-01"));
        let request = request.body(Body::empty()).unwrap();
        Record::new(LogFormat::Text, "POST", path, "req-1").observed_by(Some(observer), &request)
    }

    /// A collector that answers one request, and returns its path and body.
    fn collector() -> (String, thread::JoinHandle<(String, Vec<u8>)>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let received = thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            let mut reader = BufReader::new(&stream);
            let lines = reader.by_ref().lines().map(Result::unwrap).take_while(|line| !line.is_empty());
            let head: Vec<String> = lines.collect();
            let length = head
                .iter()
                .find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
            let mut body = vec![0; length.unwrap()];
            reader.read_exact(&mut body).unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
            (head[0].clone(), body)
        });
        (address, received)
    }

    fn contains(body: &[u8], part: &[u8]) -> bool {
        body.windows(part.len()).any(|window| window == part)
    }

    #[test]
    fn the_span_of_a_request_reaches_the_collector_as_a_part_of_its_trace() {
        let (address, received) = collector();
        let observer = observer(ENDPOINTS[1], &address);
        drop(record(&observer, "/health/live"));
        let record = record(&observer, "/v1/completions");
        record.answered(200);
        record.of_model("small");
        record.token();
        drop(record);
        drop(observer);
        let (head, body) = received.join().unwrap();
        assert_eq!(head, "POST /v1/traces HTTP/1.1");
        let trace: Vec<u8> =
            (0..16).map(|at| u8::from_str_radix(&TRACE[2 * at..2 * at + 2], 16).unwrap()).collect();
        assert!(contains(&body, &trace));
        let names = ["gen_ai.request.model", "gen_ai.usage.output_tokens", "service.name"];
        for told in ["POST", "/v1/completions", "small", "req-1", "rsgen"].into_iter().chain(names) {
            assert!(contains(&body, told.as_bytes()), "{told}");
        }
        assert!(!contains(&body, b"/health/live"), "supervisors ask every few seconds");
    }

    #[test]
    fn the_address_of_all_signals_gets_the_path_of_traces() {
        for (name, path, asked) in [
            (ENDPOINTS[1], "/", "/v1/traces"),
            (ENDPOINTS[1], "/otlp/", "/otlp/v1/traces"),
            (ENDPOINTS[0], "/otlp/traces", "/otlp/traces"),
        ] {
            let (address, received) = collector();
            drop(record(&observer(name, &(address + path)), "/v1/completions"));
            assert_eq!(received.join().unwrap().0, format!("POST {asked} HTTP/1.1"));
        }
    }

    #[test]
    fn without_a_collector_nothing_is_traced() {
        let collector = (ENDPOINTS[1], "http://localhost:4318");
        assert!(traces(&[]).unwrap().is_none());
        assert!(traces(&[(ENDPOINTS[1], "")]).unwrap().is_none());
        for (name, value, is_traced) in [
            (DISABLED, "True", false),
            (DISABLED, "false", true),
            (EXPORTERS, "none", false),
            (EXPORTERS, "console, zipkin", false),
            (EXPORTERS, "console, otlp", true),
            (PROTOCOLS[1], PROTOCOL, true),
        ] {
            assert_eq!(traces(&[collector, (name, value)]).unwrap().is_some(), is_traced, "{name}={value}");
        }
    }

    #[test]
    fn an_address_or_a_protocol_that_is_none_is_refused_by_its_variable() {
        let collector = (ENDPOINTS[1], "http://localhost:4317");
        for (name, value, told) in [
            (ENDPOINTS[0], "https://collector.example", "does not begin with http://"),
            (ENDPOINTS[0], "collector:4318", "does not begin with http://"),
            (ENDPOINTS[1], "localhost 4318", "such as http://localhost:4318"),
            (PROTOCOLS[0], "http/json", "must be http/protobuf"),
            (PROTOCOLS[1], "grpc", "port 4318"),
        ] {
            let message = traces(&[(name, value), collector]).unwrap_err().to_string();
            let has = |part: &str| message.contains(part);
            assert!(has(name) && has(value) && has(told), "{message}");
        }
    }
}
