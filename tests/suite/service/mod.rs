//! Tests the server over real connections: client and server are different implementations of HTTP.

mod access;
mod fields;
mod keys;
mod limits;
mod loading;
mod playground;
mod streams;
mod threats;

use std::io::{BufRead, BufReader, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rsgen::cache::PoolStats;
use rsgen::serve::{Running, ServeOptions, Server};
use rsgen::{Generator, GeneratorOptions};
use serde_json::{Value, json};
use ureq::http::Response;

const PROMPT: &str = "Once upon a time";
const COMPLETIONS: &str = "/v1/completions";
const LATEST: Duration = Duration::from_secs(5);

/// A server on a port of its own, until it is dropped.
struct Service {
    running: Running,
    generator: Generator,
    url: String,
}

fn options() -> ServeOptions {
    ServeOptions { port: 0, ..ServeOptions::default() }
}

impl Service {
    fn new(generator: Generator, options: ServeOptions) -> Self {
        let running = Server::bind(options).unwrap().start(generator.clone()).unwrap();
        let url = running.url().to_owned();
        Self { running, generator, url }
    }

    fn bundled(options: ServeOptions) -> Self {
        Self::new(Generator::bundled().unwrap(), options)
    }

    fn address(&self) -> &str {
        self.url.strip_prefix("http://").unwrap()
    }

    fn stats(&self) -> PoolStats {
        self.generator.engine().pool().stats()
    }

    fn is_free(&self) -> bool {
        self.stats().available_blocks == self.stats().max_blocks
    }

    /// Waits until all blocks are free, and returns how long that took.
    fn wait_until_all_is_free(&self) -> Duration {
        let begin = Instant::now();
        while !self.is_free() {
            assert!(begin.elapsed() < LATEST, "still taken: {:?}", self.stats());
            std::thread::sleep(Duration::from_millis(2));
        }
        begin.elapsed()
    }

    /// The response, as soon as its status is known.
    fn post(&self, body: &Value) -> Response<ureq::Body> {
        self.post_with_key("none", body)
    }

    fn post_with_key(&self, key: &str, body: &Value) -> Response<ureq::Body> {
        let request =
            agent().post(format!("{}{COMPLETIONS}", self.url)).header("content-type", "application/json");
        request.header("authorization", format!("Bearer {key}")).send(body.to_string()).unwrap()
    }

    fn get(&self, path: &str, headers: &[(&str, &str)]) -> (u16, String) {
        let request = agent().get(format!("{}{path}", self.url));
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let mut response = request.call().unwrap();
        (response.status().as_u16(), response.body_mut().read_to_string().unwrap())
    }

    fn metric(&self, name: &str) -> f64 {
        let (_, text) = self.get("/metrics", &[]);
        let value =
            text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ').map(str::to_owned));
        value.unwrap_or_else(|| panic!("{name} in {text}")).parse().unwrap()
    }
}

fn agent() -> ureq::Agent {
    let config = ureq::Agent::config_builder().http_status_as_error(false).timeout_connect(Some(LATEST));
    config.build().into()
}

/// The data of a stream's events, as they arrive.
fn events(response: Response<ureq::Body>) -> impl Iterator<Item = String> {
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    assert_eq!(response.headers()["x-accel-buffering"], "no");
    let lines = BufReader::new(response.into_body().into_reader()).lines().map_while(Result::ok);
    lines.filter_map(|line| line.strip_prefix("data: ").map(str::to_owned))
}

fn text_of(events: impl Iterator<Item = String>) -> String {
    let chunks = events.take_while(|data| data != "[DONE]");
    let texts = chunks.map(|data| {
        let chunk: Value = serde_json::from_str(&data).unwrap();
        assert!(chunk["error"].is_null(), "{chunk}");
        chunk["choices"][0]["text"].as_str().unwrap_or_default().to_owned()
    });
    texts.collect()
}

fn stream_of(prompt: &str, max_tokens: usize) -> Value {
    json!({ "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "stream": true })
}

/// The story model without an end, and with a context that lets a prompt take seconds.
fn patient_model() -> Generator {
    let folder = tempfile::tempdir().unwrap();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/python/rsgen/models/story-3m");
    for file in ["model.safetensors", "tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(format!("{source}/{file}"), folder.path().join(file)).unwrap();
    }
    let config = std::fs::read_to_string(format!("{source}/config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&config).unwrap();
    config["max_position_embeddings"] = json!(1 << 16);
    config["eos_token_id"] = Value::Null;
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    let options = GeneratorOptions::new().num_threads(1).kv_cache_bytes(1 << 30);
    Generator::open_with(folder.path().to_str().unwrap(), &options).unwrap()
}

/// Text of about `words` tokens.
fn long_prompt(words: usize) -> String {
    "the little fox ".repeat(words / 3)
}

/// Sends these bytes, and leaves the connection open.
fn sent(address: &str, bytes: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(bytes.as_bytes()).unwrap();
    stream.set_read_timeout(Some(LATEST)).unwrap();
    stream
}

fn request_text(body: &str) -> String {
    format!("{HALF_A_HEAD}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

const HALF_A_HEAD: &str = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n";
const HALF_A_BODY: &str = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                           Content-Length: 100\r\n\r\n{\"prompt\"";
