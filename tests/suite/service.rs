//! Tests the example of a service over real connections: `examples/sse_service.rs` is compiled into this test, and
//! client and server are different implementations of HTTP.

#[path = "../../examples/sse_service.rs"]
#[expect(dead_code, reason = "the test brings its own listener and its own signal")]
mod sse_service;

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rsgen::cache::PoolStats;
use rsgen::{GenerationConfig, GenerationOutput, Generator, GeneratorOptions};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;
use ureq::http::{Response, StatusCode};

use sse_service::{Limits, MAX_BODY, Service, send_tokens, serve};

const PROMPT: &str = "Once upon a time";

/// A service on a port of its own, until it is dropped.
struct Running {
    runtime: Runtime,
    service: Service,
    url: String,
    stop: Option<oneshot::Sender<()>>,
    served: JoinHandle<()>,
}

impl Running {
    fn new(generator: Generator) -> Self {
        Self::with_limits(generator, Limits::default())
    }

    fn with_limits(generator: Generator, limits: Limits) -> Self {
        let runtime = Runtime::new().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let service = Service { generator, places: Arc::new(Semaphore::new(8)), limits };
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped = async { stopped.await.unwrap_or_default() };
        let served = runtime.spawn(serve(listener, service.clone(), stopped, std::future::pending()));
        Self { runtime, service, url, stop: Some(stop), served }
    }

    fn bundled() -> Self {
        Self::new(Generator::bundled().unwrap())
    }

    fn stats(&self) -> PoolStats {
        self.service.generator.engine().pool().stats()
    }

    /// The response, as soon as its status is known.
    fn post(&self, body: &str) -> Response<ureq::Body> {
        let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let url = format!("{}/generate", self.url);
        agent.post(url).header("content-type", "application/json").send(body).unwrap()
    }

    fn refused(&self, body: &str) -> (StatusCode, String) {
        let mut response = self.post(body);
        let text = response.body_mut().read_to_string().unwrap();
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(answer["error"]["status"], response.status().as_u16(), "{text}");
        (response.status(), answer["error"]["message"].as_str().unwrap().to_owned())
    }

    fn wait_until_all_is_free(&self, within: Duration) {
        let begin = Instant::now();
        while self.stats().available_blocks < self.stats().max_blocks {
            assert!(begin.elapsed() < within, "still taken: {:?}", self.stats());
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// The events of a response, as they arrive.
fn events(response: Response<ureq::Body>) -> impl Iterator<Item = (String, Value)> {
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut lines = BufReader::new(response.into_body().into_reader()).lines();
    std::iter::from_fn(move || {
        let name = lines.find(|line| line.as_ref().unwrap().starts_with("event: "))?.unwrap();
        let data = lines.next()?.unwrap();
        let data = data.strip_prefix("data: ").unwrap();
        Some((name["event: ".len()..].to_owned(), serde_json::from_str(data).unwrap()))
    })
}

/// Asserts that a response equals the output of a call.
fn assert_is(answer: Vec<(String, Value)>, expected: &GenerationOutput) {
    let row = &expected.rows[0].generated;
    let mut events = answer.into_iter();
    let mut text = String::new();
    for (index, (id, logprob)) in row.token_ids.iter().zip(&row.logprobs).enumerate() {
        let (name, token) = events.next().unwrap();
        assert_eq!((name.as_str(), &token["id"]), ("token", &json!(id.0)), "token {index}");
        assert_eq!(token["logprob"].as_f64().unwrap() as f32, *logprob, "token {index}");
        text.push_str(token["text"].as_str().unwrap());
        let last = index + 1 == row.token_ids.len();
        let finish_reason = last.then(|| row.finish_reason.as_str());
        assert_eq!(token["finish_reason"], json!(finish_reason), "token {index}");
    }
    assert_eq!(text, expected.text());
    let usage = json!({
        "prompt_tokens": expected.usage.prompt_tokens,
        "generated_tokens": expected.usage.generated_tokens,
    });
    assert_eq!(events.next().unwrap(), ("usage".to_owned(), usage));
    assert_eq!(events.next(), None);
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
    let options = GeneratorOptions {
        num_threads: Some(1),
        kv_cache_bytes: Some(1 << 30),
        ..GeneratorOptions::default()
    };
    Generator::open_with(folder.path().to_str().unwrap(), &options).unwrap()
}

/// Text of about `words` tokens.
fn long_prompt(words: usize) -> String {
    "the little fox ".repeat(words / 3)
}

#[test]
fn a_client_gets_the_tokens_of_generate() {
    let running = Running::bundled();
    let config = GenerationConfig::new().do_sample(true).temperature(0.8).top_k(40).top_p(0.9);
    let config = config.repetition_penalty(1.1).seed(7).max_new_tokens(40);
    let request = json!({
        "prompt": PROMPT, "do_sample": true, "temperature": 0.8, "top_k": 40, "top_p": 0.9, "repetition_penalty": 1.1,
        "seed": 7, "max_new_tokens": 40,
    });
    let expected = running.service.generator.generate(PROMPT, &config).unwrap();
    assert_is(events(running.post(&request.to_string())).collect(), &expected);

    let config = GenerationConfig::new().stop_strings(vec!["fox".to_owned(), ".".to_owned()]);
    let expected = running.service.generator.generate(PROMPT, &config.max_new_tokens(256)).unwrap();
    let request = json!({ "prompt": PROMPT, "stop": ["fox", "."] });
    assert_is(events(running.post(&request.to_string())).collect(), &expected);
    assert_eq!(expected.rows[0].generated.finish_reason, rsgen::FinishReason::Stop);
}

#[test]
fn eight_clients_at_once_get_what_each_gets_alone() {
    let running = Running::bundled();
    let prompts = ["Once upon a time", "One day, a little fox", "Near the lake", "A"];
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for client in 0..8 {
            let running = &running;
            scope.spawn(move || {
                let prompt = prompts[client % prompts.len()];
                let config = GenerationConfig::new().do_sample(true).seed(client as u64).max_new_tokens(60);
                let expected = Generator::bundled().unwrap().generate(prompt, &config).unwrap();
                let request =
                    json!({ "prompt": prompt, "do_sample": true, "seed": client, "max_new_tokens": 60 });
                assert_is(events(running.post(&request.to_string())).collect(), &expected);
            });
        }
    });
    running.wait_until_all_is_free(begin.elapsed());
}

#[test]
fn a_client_that_leaves_between_tokens_ends_its_work_and_frees_its_blocks() {
    let running = Running::new(patient_model());
    let request = json!({ "prompt": PROMPT, "max_new_tokens": 60_000 });
    let mut events = events(running.post(&request.to_string()));
    let begin = Instant::now();
    assert_eq!(events.by_ref().take(1000).filter(|(name, _)| name == "token").count(), 1000);
    let few_tokens = begin.elapsed();
    assert!(running.stats().available_blocks < running.stats().max_blocks);
    drop(events);
    running.wait_until_all_is_free(few_tokens);
}

#[test]
fn a_client_that_leaves_in_the_middle_of_a_long_prompt_ends_its_work_and_frees_its_blocks() {
    let running = Running::new(patient_model());
    let request = json!({ "prompt": long_prompt(12_000), "max_new_tokens": 1 }).to_string();
    let begin = Instant::now();
    assert_eq!(events(running.post(&request)).filter(|(name, _)| name == "token").count(), 1);
    let uninterrupted = begin.elapsed();
    for pause in [0, 20, 100, 300] {
        // The status comes when the prompt is encoded and its blocks are reserved, and before it is computed.
        let response = running.post(&request);
        assert_eq!(response.status(), 200);
        std::thread::sleep(Duration::from_millis(pause));
        let stats = running.stats();
        assert!(stats.available_blocks < stats.max_blocks, "{pause} ms: the prompt is done already");
        drop(response);
        running.wait_until_all_is_free(uninterrupted / 4);
    }
}

#[test]
fn wrong_requests_are_refused_with_the_field_that_is_wrong() {
    let running = Running::bundled();
    for (request, status, named) in [
        (json!({ "prompt": PROMPT, "temperature": -1.0, "do_sample": true }), 400, "`temperature`"),
        (json!({ "prompt": PROMPT, "top_p": 2.0, "do_sample": true }), 400, "`top_p`"),
        (json!({ "prompt": PROMPT, "max_new_tokens": 0 }), 400, "`max_new_tokens`"),
        (json!({ "prompt": PROMPT, "max_new_tokens": -3 }), 400, "max_new_tokens"),
        (json!({ "prompt": PROMPT, "seed": "x" }), 400, "seed"),
        (json!({ "prompt": PROMPT, "temprature": 1.0 }), 400, "temprature"),
        (json!({ "max_new_tokens": 3 }), 400, "prompt"),
        (json!({ "prompt": long_prompt(1000) }), 400, "512"),
        (json!({ "prompt": "a".repeat(MAX_BODY) }), 413, "length limit"),
    ] {
        let (actual, message) = running.refused(&request.to_string());
        assert!(actual.as_u16() == status && message.contains(named), "{named}: {actual} {message}");
    }
    for not_json in ["", "{", "[1, 2]", "\u{0}", r#"{"prompt": "\ud800"}"#] {
        let (status, message) = running.refused(not_json);
        assert_eq!(status, 400, "{not_json}: {message}");
    }
    running.wait_until_all_is_free(Duration::ZERO);
}

#[test]
fn what_does_not_fit_now_is_told_to_come_again() {
    let running = Running::bundled();
    let places = Arc::clone(&running.service.places);
    let taken = places.try_acquire_many(places.available_permits() as u32).unwrap();
    let request = json!({ "prompt": PROMPT, "max_new_tokens": 3 }).to_string();
    let response = running.post(&request);
    assert_eq!(
        (response.status().as_u16(), &response.headers()["retry-after"]),
        (503, &"1".parse().unwrap())
    );
    drop(taken);
    assert_eq!(events(running.post(&request)).count(), 4);

    let pool = running.service.generator.engine().pool();
    let taken = pool.reserve(pool.stats().available_blocks).unwrap();
    let response = running.post(&request);
    assert_eq!(
        (response.status().as_u16(), &response.headers()["retry-after"]),
        (503, &"1".parse().unwrap())
    );
    assert!(running.refused(&request).1.contains("kv_cache_bytes"));
    drop(taken);
    assert_eq!(events(running.post(&request)).count(), 4);
}

#[test]
fn health_tells_what_is_free() {
    let running = Running::bundled();
    let mut response = ureq::get(format!("{}/health", running.url)).call().unwrap();
    let health: Value = serde_json::from_str(&response.body_mut().read_to_string().unwrap()).unwrap();
    assert_eq!(health["free_places"], running.service.places.available_permits());
    assert_eq!(health["free_blocks"], running.stats().max_blocks);
}

#[test]
fn a_service_that_is_told_to_stop_finishes_its_streams_and_takes_no_new_ones() {
    let mut running = Running::new(patient_model());
    let request = json!({ "prompt": PROMPT, "max_new_tokens": 500 });
    let mut stream = events(running.post(&request.to_string()));
    stream.next().unwrap();
    running.stop.take().unwrap().send(()).unwrap();
    assert_eq!(stream.filter(|(name, _)| name == "token").count(), 499);
    let Running { runtime, served, url, .. } = running;
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(5), served).await }).unwrap().unwrap();
    assert!(ureq::get(format!("{url}/health")).call().is_err());
}

#[cfg(unix)]
#[test]
fn the_signals_that_end_services_are_noticed() {
    let runtime = Runtime::new().unwrap();
    for name in ["-TERM", "-INT"] {
        runtime.block_on(async {
            let mut signal = std::pin::pin!(sse_service::signal());
            // It listens from when it is first asked on; before, the signal would end this process.
            assert!(tokio::time::timeout(Duration::from_millis(10), &mut signal).await.is_err());
            let process = std::process::id().to_string();
            assert!(std::process::Command::new("kill").args([name, &process]).status().unwrap().success());
            tokio::time::timeout(Duration::from_secs(5), signal).await.unwrap();
        });
    }
}

#[test]
fn the_end_of_the_runtime_ends_streams_that_still_run() {
    let running = Running::new(patient_model());
    let request = json!({ "prompt": PROMPT, "max_new_tokens": 60_000 });
    let mut stream = events(running.post(&request.to_string()));
    stream.next().unwrap();
    let Running { runtime, service, .. } = running;
    let begin = Instant::now();
    drop(runtime);
    assert!(begin.elapsed() < Duration::from_secs(5));
    let stats = service.generator.engine().pool().stats();
    assert_eq!(stats.available_blocks, stats.max_blocks);
}

#[test]
fn a_client_that_reads_nothing_is_given_up() {
    let running = Running::bundled();
    let stream = running.service.generator.stream(PROMPT, &GenerationConfig::new()).unwrap();
    let (sender, receiver) = mpsc::channel(2);
    let sending =
        running.runtime.spawn_blocking(move || send_tokens(stream, &sender, Duration::from_millis(50)));
    running
        .runtime
        .block_on(async { tokio::time::timeout(Duration::from_secs(5), sending).await })
        .unwrap()
        .unwrap();
    assert_eq!(receiver.len(), 2);
    running.wait_until_all_is_free(Duration::ZERO);
}

/// Sends these bytes, and leaves the connection open.
fn half_sent(address: &str, bytes: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(bytes.as_bytes()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    stream
}

const HALF_A_HEADER: &str = "POST /generate HTTP/1.1\r\nHost: a\r\n";
const HALF_A_BODY: &str = "POST /generate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n\
                           Content-Length: 100\r\n\r\n{\"prompt\"";

#[test]
fn headers_and_bodies_have_a_time_limit() {
    let soon = Duration::from_millis(50);
    let limits = Limits { headers: soon, body: soon, ..Limits::default() };
    let running = Running::with_limits(Generator::bundled().unwrap(), limits);
    let address = running.url.strip_prefix("http://").unwrap();
    let begin = Instant::now();
    for (bytes, answer) in [("", ""), (HALF_A_HEADER, ""), (HALF_A_BODY, "body of a request must arrive")] {
        let mut text = String::new();
        half_sent(address, bytes).read_to_string(&mut text).unwrap();
        assert!(text.contains(answer) && text.contains("408") != answer.is_empty(), "{text}");
    }
    assert!(begin.elapsed() < Duration::from_secs(5));
    assert_eq!(Limits::default().headers, Duration::from_secs(10));
    assert_eq!(Limits::default().body, Duration::from_secs(30));
}

#[test]
fn a_client_that_leaves_while_its_prompt_is_encoded_frees_its_place() {
    let running = Running::new(patient_model());
    let address = running.url.strip_prefix("http://").unwrap();
    let body = json!({ "prompt": long_prompt(48_000), "max_new_tokens": 60_000 }).to_string();
    let head = HALF_A_BODY.split("Content-Length").next().unwrap();
    drop(half_sent(address, &format!("{head}Content-Length: {}\r\n\r\n{body}", body.len())));
    let begin = Instant::now();
    while running.service.places.available_permits() < 8 {
        assert!(begin.elapsed() < Duration::from_secs(10));
        std::thread::sleep(Duration::from_millis(2));
    }
    running.wait_until_all_is_free(Duration::ZERO);
}

/// The service of the test below, in a process of its own.
#[test]
#[ignore = "another test runs it"]
fn serve_in_this_process() {
    Runtime::new().unwrap().block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        println!("\nlistening on {}", listener.local_addr().unwrap());
        let generator = Generator::bundled_with(&GeneratorOptions {
            num_threads: Some(1),
            ..GeneratorOptions::default()
        });
        let limits = Limits { grace: Duration::from_secs(20), ..Limits::default() };
        let service = Service { generator: generator.unwrap(), places: Arc::new(Semaphore::new(16)), limits };
        serve(listener, service, sse_service::signal(), sse_service::signal()).await;
    });
}

/// A process that ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(unix)]
#[test]
fn a_hundred_half_sent_requests_shut_nobody_out_of_sixty_descriptors_nor_delay_the_end() {
    let mut child = Command::new("sh")
        .args([
            "-c",
            "ulimit -n 60 && exec \"$0\" service::serve_in_this_process --exact --ignored --nocapture",
        ])
        .arg(std::env::current_exe().unwrap())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut process = Process(child);
    let address = lines.find_map(|line| Some(line.strip_prefix("listening on ")?.to_owned())).unwrap();
    let get = |path: &str| {
        let config = ureq::Agent::config_builder().timeout_global(Some(Duration::from_secs(5))).build();
        ureq::Agent::from(config).get(format!("http://{address}{path}")).call()
    };
    let kinds = [HALF_A_HEADER, HALF_A_BODY, ""];
    let half_sent: Vec<_> = (0..100).map(|index| half_sent(&address, kinds[index % 3])).collect();
    for _ in 0..3 {
        assert_eq!(get("/health").unwrap().status(), 200);
        let request = json!({ "prompt": PROMPT, "max_new_tokens": 3 }).to_string();
        let url = format!("http://{address}/generate");
        let response = ureq::post(url).header("content-type", "application/json").send(&request).unwrap();
        assert_eq!(events(response).count(), 4);
    }
    // The newest connections are still there when the signal comes.
    let begin = Instant::now();
    assert!(Command::new("kill").arg(process.0.id().to_string()).status().unwrap().success());
    assert!(process.0.wait().unwrap().success());
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    drop(half_sent);
}
