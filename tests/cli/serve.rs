//! `rsgen serve`: its first lines, its signals, and few descriptors. `tests/suite/service.rs` tests the server itself.
#![cfg(unix)]

use std::fs::File;
use std::io::{BufRead as _, BufReader, Lines, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{PROMPT, command, failure, only_object};

const LATEST: Duration = Duration::from_secs(10);
const HALF_A_HEAD: &str = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n";
const HALF_A_BODY: &str = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                           Content-Length: 100\r\n\r\n{\"prompt\"";

/// A server in a process of its own, which ends with the test.
struct Served {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    url: String,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Served {
    fn new(mut command: Command) -> Self {
        Self::of(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// Of a process whose standard output is a pipe.
    fn of(mut child: Child) -> Self {
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = lines.next().unwrap().unwrap();
        let url = &first[first.find("http://").unwrap()..];
        let url = url.split([';', '"']).next().unwrap().to_owned();
        Self { child, lines, url }
    }

    fn start(options: &[&str]) -> Self {
        Self::new(command(&[&["serve", "--port", "0"], options].concat()))
    }

    fn send(&self, bytes: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.url.strip_prefix("http://").unwrap()).unwrap();
        stream.write_all(bytes.as_bytes()).unwrap();
        stream
    }

    fn complete(&self, max_tokens: usize) -> Value {
        self.complete_with(&json!({}), max_tokens)
    }

    fn complete_with(&self, more: &Value, max_tokens: usize) -> Value {
        let config = ureq::Agent::config_builder().timeout_global(Some(LATEST)).build();
        let request = ureq::Agent::from(config).post(format!("{}/v1/completions", self.url));
        let mut body = json!({ "prompt": PROMPT, "max_tokens": max_tokens, "temperature": 0 });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let mut response = request.header("content-type", "application/json").send(body.to_string()).unwrap();
        serde_json::from_str(&response.body_mut().read_to_string().unwrap()).unwrap()
    }

    /// Begins a stream that outlasts every test.
    fn begin_stream(&self) -> TcpStream {
        let body = json!({ "prompt": PROMPT, "max_tokens": 480, "ignore_eos": true, "stream": true, "temperature": 0 });
        let body = body.to_string();
        let head =
            format!("{HALF_A_HEAD}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
        let stream = self.send(&(head + &body));
        BufReader::new(&stream).read_line(&mut String::new()).unwrap();
        stream
    }

    fn signal(&self, name: &str) {
        assert!(Command::new("kill").args([name, &self.child.id().to_string()]).status().unwrap().success());
    }

    fn ended(mut self) -> ExitStatus {
        self.end()
    }

    /// Waits for its end.
    fn end(&mut self) -> ExitStatus {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(begin.elapsed() < LATEST, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A model of the package, with a name.
fn named(name: &str, model: &str) -> String {
    format!("{name}={}/python/rsgen/models/{model}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn several_models_have_names_and_adapters() {
    let (small, big) = (named("small", "story-draft"), named("big", "story-3m"));
    let adapter = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/adapters/story");
    let other = format!("big:other={adapter}");
    let served = Served::start(&[&*small, &*big, "--lora-modules", &*other, "--models-max", "1"]);
    let answer = |model: &str| served.complete_with(&json!({ "model": model }), 24);
    let text = |model: &str| answer(model)["choices"][0]["text"].as_str().unwrap().to_owned();
    assert_ne!(text("small"), text("big"));
    assert_eq!(served.complete(4)["model"], "small");
    for name in ["big:other", "other"] {
        assert_eq!(answer(name)["model"], "big:other");
    }
    // As vLLM has it: a list, which does not swallow the model behind it.
    let two = [format!("a={adapter}"), format!("b={adapter}")];
    let path = big.strip_prefix("big=").unwrap();
    for options in [
        vec![path, "--lora-modules", &*two[0], &*two[1]],
        vec!["--lora-modules", &*two[0], &*two[1], path],
        vec![path, "--adapter", &*two[0], "--lora-modules", &*two[1]],
    ] {
        let served = Served::start(&options);
        for name in ["a", "b"] {
            let answer = served.complete_with(&json!({ "model": name }), 1);
            assert_eq!(answer["model"], format!("story-3m:{name}"), "{options:?}: {answer}");
        }
    }
}

#[test]
fn models_that_cannot_be_served_together_are_refused_before_any_is_loaded() {
    let (small, big) = (&*named("small", "story-draft"), &*named("big", "story-3m"));
    for (arguments, exit, expected) in [
        (vec![small, small], 2, "\"small\" twice"),
        (vec![small, "big=/nowhere"], 3, "/nowhere"),
        (vec![small, big, "--served-model-name", "x"], 2, "--served-model-name"),
        (vec![small, big, "--adapter", "path/to/adapter"], 2, "--adapter"),
        (vec![small, big, "--assistant", "draft"], 2, "--assistant"),
        (vec![small, big, "--models-max", "1", "--load-on-startup", "all"], 2, "--models-max"),
        (vec![small, big, "--models-memory", "1M", "--load-on-startup", "all"], 2, "--models-memory"),
        (vec![small, big, "--models-memory", "1M"], 2, "--models-memory"),
        (vec![small, "--keep-alive", "soon"], 2, "--keep-alive"),
    ] {
        let (code, message) = failure(&[&["serve", "--port", "0"], &*arguments].concat());
        assert!(code == exit && message.contains(expected), "{arguments:?}: {code} {message}");
    }
}

#[test]
fn the_first_lines_tell_where_it_is_and_how_to_try_it() {
    let mut served = Served::start(&["--served-model-name", "tales"]);
    assert!(served.url.starts_with("http://127.0.0.1:") && !served.url.ends_with(":0"), "{}", served.url);
    let tip = served.lines.next().unwrap().unwrap();
    assert!(tip.starts_with("try: curl ") && tip.contains(&served.url), "{tip}");
    let page = served.lines.next().unwrap().unwrap();
    assert!(page.contains(&format!("open {}/ in a browser", served.url)), "{page}");
    let answer = served.complete(3);
    assert_eq!((&answer["model"], &answer["usage"]["completion_tokens"]), (&json!("tales"), &json!(3)));

    let mut child = command(&["serve", "--port=0", "--json"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let url = only_object(&line)["url"].as_str().unwrap().to_owned();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(url.starts_with("http://127.0.0.1:"));

    let port = served.url.rsplit(':').next().unwrap();
    let (code, message) = failure(&["serve", "--port", port]);
    assert!(code == 2 && message.contains("--port") && message.contains("is in use"), "{code} {message}");
    let (code, message) = failure(&["serve", "--host", "0.0.0.0"]);
    assert!(code == 2 && message.contains("--api-key"), "{code} {message}");
    let (code, message) = failure(&["serve", "--api-key-file", "/nowhere/key"]);
    assert!(code == 2 && message.contains("--api-key-file"), "{code} {message}");
}

#[test]
fn keys_come_from_options_files_and_the_environment_and_are_not_shown() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "from-file\n\n second \n").unwrap();
    let mut command = command(&["serve", "--port=0", "-vv", "--api-key-file", file.path().to_str().unwrap()]);
    command.env("RSGEN_API_KEY", "from-variable");
    let served = Served::new(command);
    let status = |key: &str| {
        let config = ureq::Agent::config_builder().http_status_as_error(false).build();
        let request = ureq::Agent::from(config).get(format!("{}/v1/models", served.url));
        request.header("authorization", format!("Bearer {key}")).call().unwrap().status().as_u16()
    };
    assert_eq!(["from-file", "second", "from-variable", "other"].map(status), [200, 200, 200, 401]);
}

#[test]
fn prompts_and_keys_are_in_no_log() {
    let mut command = command(&["serve", "--port=0", "-vv", "--api-key=canary-key"]);
    let mut served = Served::of(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let config =
        ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(LATEST)).build();
    let agent = ureq::Agent::from(config);
    let canary_chat = json!([{ "role": "user", "content": "canary-message" }]);
    for key in ["canary-key", "canary-wrong"] {
        for (path, body) in [
            ("completions", json!({ "prompt": "canary-prompt", "max_tokens": 2, "canary-field": 1 })),
            ("completions", json!({ "prompt": "canary-prompt", "stop": ["canary-stop"], "temperature": -1 })),
            (
                "chat/completions",
                json!({ "messages": [{ "role": "canary-role", "content": "canary-message" }], "max_tokens": 2 }),
            ),
            ("canary-path?canary-query=1", json!({})),
            (
                "completions",
                json!({ "prompt": "canary-prompt", "regex": "canary-regex(", "user": "canary-user" }),
            ),
            ("completions", json!({ "prompt": "canary-prompt", "model": "canary-model" })),
            ("responses", json!({ "input": "canary-input", "metadata": { "canary-name": "canary-value" } })),
            ("responses", json!({ "input": "a", "previous_response_id": "canary-response" })),
            ("messages", json!({ "system": "canary-system", "messages": canary_chat, "max_tokens": 2 })),
            ("messages/count_tokens", json!({ "messages": canary_chat })),
            ("chat/completions", json!({ "messages": canary_chat, "tools": [{ "type": "canary-tool" }] })),
            ("embeddings", json!({ "input": ["canary-text"], "pooling": "canary-pooling" })),
            ("score", json!({ "text_1": "canary-one", "text_2": ["canary-two"] })),
            ("rerank", json!({ "query": "canary-query", "documents": ["canary-document"] })),
            ("../api/chat", json!({ "messages": canary_chat, "options": { "num_predict": 2 } })),
            (
                "../api/generate",
                json!({ "prompt": "canary-prompt", "options": { "num_predict": 2, "stop": ["canary-stop"] } }),
            ),
            ("../api/show", json!({ "model": "canary-shown" })),
            ("../tokenize", json!({ "prompt": "canary-prompt" })),
            ("../detokenize", json!({ "tokens": [1], "canary-field": 1 })),
            ("../apply-template", json!({ "messages": canary_chat })),
            (
                "../translate",
                json!({ "q": "canary-source", "source": "en", "target": "de", "api_key": "canary-form-key" }),
            ),
            (
                "../rsgen/v1/generate",
                json!({ "prompt": "canary-prompt", "max_new_tokens": 2, "output_events": true }),
            ),
            ("../rsgen/v1/translate", json!({ "source": "canary-source" })),
        ] {
            let path = path.strip_prefix("../").map_or_else(|| format!("v1/{path}"), str::to_owned);
            let request =
                agent.post(format!("{}/{path}", served.url)).header("content-type", "application/json");
            let request = request.header("authorization", format!("Bearer {key}"));
            let answer = request.header("x-canary", "canary-header").send(body.to_string()).unwrap();
            assert!(answer.status() != 500, "{}", answer.status());
        }
    }
    served.signal("-TERM");
    let mut log = String::new();
    served.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    let out: String = served.lines.by_ref().map_while(Result::ok).collect();
    for path in
        ["/v1/completions", "/v1/responses", "/v1/messages", "/v1/rerank", "/api/chat", "/rsgen/v1/generate"]
    {
        assert!(log.contains(&format!("POST {path} 200")), "{path}: {log}");
    }
    let log = log.replace("/v1/canary-path", "");
    assert!(!log.contains("canary") && !out.contains("canary"), "{log} {out}");
}

#[test]
fn the_log_has_a_line_for_each_request_as_text_or_as_json() {
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys.txt");
    std::fs::write(&keys, "canary-one name=alice\ncanary-two priority=3\n").unwrap();
    let keys = format!("--api-key-file={}", keys.display());
    for options in [&[][..], &["--json"]] {
        let arguments = [&["serve", "--port=0", "-v", &*keys], options].concat();
        let mut child = command(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = child.stderr.take().unwrap();
        let mut served = Served::of(child);
        let agent: ureq::Agent = ureq::Agent::config_builder().timeout_global(Some(LATEST)).build().into();
        for (key, stream) in [("canary-one", true), ("canary-two", false)] {
            let body =
                json!({ "prompt": "Once upon a time", "max_tokens": 7, "stream": stream, "temperature": 0 });
            let request = agent.post(format!("{}/v1/completions", served.url));
            let request = request.header("content-type", "application/json").header("x-request-id", "mine");
            let mut answer =
                request.header("authorization", format!("Bearer {key}")).send(body.to_string()).unwrap();
            assert!(answer.body_mut().read_to_string().unwrap().contains("\"finish_reason\":\"length\""));
        }
        served.signal("-TERM");
        served.end();
        let mut log = String::new();
        stderr.read_to_string(&mut log).unwrap();
        let lines: Vec<&str> = log.lines().filter(|line| line.contains("/v1/completions")).collect();
        assert!(lines.len() == 2 && !log.contains("canary"), "{log}");
        if options.is_empty() {
            assert!(lines[0].starts_with("rsgen: info: POST /v1/completions 200 "), "{log}");
            assert!(lines[0].contains(" ms mine key=alice model=story-3m prompt_tokens="), "{log}");
            assert!(lines[0].ends_with(" finish=length") && !lines[1].contains("key="), "{log}");
        } else {
            for (line, key) in lines.iter().zip([json!("alice"), json!(null)]) {
                let line: Value = serde_json::from_str(line).unwrap();
                let request = &line["log"]["request"];
                assert_eq!((&request["key"], &request["generated_tokens"]), (&key, &json!(7)), "{line}");
                let [first, last, all] =
                    ["first_token_ms", "last_token_ms", "ms"].map(|name| request[name].as_f64().unwrap());
                assert!(0.0 < first && first <= last && last <= all, "{line}");
            }
        }
    }
    std::fs::write(folder.path().join("keys.txt"), "canary-one team\n").unwrap();
    let (code, message) = failure(&["serve", "--port", "0", &keys]);
    assert!(code == 2 && message.contains("line 1") && !message.contains("canary"), "{message}");
}

#[test]
fn text_of_clients_forges_no_line_of_the_log_and_no_label_of_a_metric() {
    let mut command = command(&["serve", "--port=0", "-v"]);
    let mut served = Served::of(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let forged = "x\r\nrsgen: error: POST /forged 500\u{1b}[31m\u{202e}</script><img src=x onerror=alert(1)>";
    let escaped = "/v1/%0d%0aforged%1b%5b31m/\u{e9}\u{202e}<script>";
    let lines_of_metrics = || {
        let text = ureq::get(format!("{}/metrics", served.url)).call().unwrap().body_mut().read_to_string();
        text.unwrap()
    };
    let before = lines_of_metrics().lines().count();
    let body = json!({ "prompt": forged, "max_tokens": 2, "model": forged, "user": forged, forged: forged });
    let bodies = [
        body.to_string(),
        json!({ "prompt": forged, "max_tokens": 2, "user": forged, forged: 1 }).to_string(),
    ];
    for (path, id) in [
        ("/v1/completions", "mine"),
        ("/v1/%0d%0arsgen:%20error:%1b%5b31m", "mine;<script>"),
        (escaped, "mine\u{1b}[31m"),
        ("/forged\u{1b}[31m", "mine"),
    ] {
        for body in &bodies {
            let head = format!(
                "POST {path} HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: {id}\r\nConnection: close\r\n\
                 Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
                body.len()
            );
            let mut answer = String::new();
            let _ = served.send(&(head + body)).read_to_string(&mut answer);
            let (head, text) = answer.split_once("\r\n\r\n").unwrap_or_default();
            let is_json = head.contains("content-type: application/json") || text.is_empty();
            assert!(is_json && !text.contains(['\u{1b}', '\n']), "{answer}");
            // A header that names ignored fields is one line, too.
            let is_line = |line: &str| line.starts_with("HTTP/1.1 ") || line.contains(": ");
            let has_control = head.contains(|char: char| char.is_control() && !"\r\n".contains(char));
            assert!(head.lines().all(is_line) && !has_control && !head.contains("\nrsgen"), "{answer}");
        }
    }
    let after = lines_of_metrics();
    assert!(after.lines().count() == before && !after.contains("forged"), "{after}");
    served.signal("-TERM");
    let mut log = String::new();
    served.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    assert!(log.lines().count() >= 4, "{log}");
    let is_plain =
        |line: &str| line.starts_with("rsgen: info: ") || line.starts_with("finishing the requests");
    assert!(log.lines().all(is_plain) && !log.contains(['\u{1b}', '\r', '\u{202e}']), "{log:?}");
}

#[test]
fn a_server_that_loads_is_not_ready_and_ends_at_once() {
    let folder = slow_model();
    // Free a moment ago.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("http://127.0.0.1:{port}");
    let (model, port) = (folder.path().to_str().unwrap(), format!("--port={port}"));
    for name in ["-INT", "-TERM"] {
        let mut command = command(&["serve", model, &port, "--dtype=bfloat16", "--num-threads=1"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut served = Served { child, lines, url: url.clone() };
        let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let begin = Instant::now();
        while !agent.get(format!("{url}/health/live")).call().is_ok_and(|answer| answer.status() == 200) {
            assert!(begin.elapsed() < LATEST, "it does not live");
            std::thread::sleep(Duration::from_millis(2));
        }
        let mut ready = agent.get(format!("{url}/health/ready")).call().unwrap();
        assert_eq!(ready.status(), 503);
        assert!(ready.body_mut().read_to_string().unwrap().contains("\"code\":\"loading\""));
        let begin = Instant::now();
        served.signal(name);
        served.end();
        assert!(begin.elapsed() < Duration::from_secs(1), "{name}: {:?}", begin.elapsed());
        assert!(served.lines.next().is_none(), "it was still loading");
    }
}

/// A model of zeros that takes seconds to load: its file has holes, and every number is converted.
fn slow_model() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let config = json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 131_072, "hidden_size": 1024, "intermediate_size": 8,
        "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 8,
        "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": true, "hidden_act": "silu",
    });
    let layer = [
        ("input_layernorm", vec![1024]),
        ("self_attn.q_proj", vec![8, 1024]),
        ("self_attn.k_proj", vec![8, 1024]),
        ("self_attn.v_proj", vec![8, 1024]),
        ("self_attn.o_proj", vec![1024, 8]),
        ("post_attention_layernorm", vec![1024]),
        ("mlp.gate_proj", vec![8, 1024]),
        ("mlp.up_proj", vec![8, 1024]),
        ("mlp.down_proj", vec![1024, 8]),
    ];
    let outer = [("model.embed_tokens", vec![131_072, 1024]), ("model.norm", vec![1024])];
    let layer = layer.map(|(name, shape)| (format!("model.layers.0.{name}"), shape));
    let (mut header, mut end) = (json!({}), 0);
    for (name, shape) in outer.map(|(name, shape)| (name.to_owned(), shape)).into_iter().chain(layer) {
        let begin = end;
        end += 2 * shape.iter().product::<u64>();
        header[format!("{name}.weight")] =
            json!({ "dtype": "F16", "shape": shape, "data_offsets": [begin, end] });
    }
    let header = header.to_string();
    let mut file = File::create(folder.path().join("model.safetensors")).unwrap();
    file.write_all(&[&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat()).unwrap();
    file.set_len(8 + header.len() as u64 + end).unwrap();
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    folder
}

#[test]
fn signals_end_an_idle_server_within_a_second_and_a_hang_up_does_not() {
    for name in ["-TERM", "-INT"] {
        let served = Served::start(&[]);
        served.signal("-HUP");
        assert_eq!(served.complete(2)["usage"]["completion_tokens"], 2);
        let begin = Instant::now();
        served.signal(name);
        assert_eq!(served.ended().code(), Some(0), "{name}");
        assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    }
}

#[test]
fn a_signal_lets_streams_finish_and_a_second_one_does_not_wait() {
    let served = Served::start(&[]);
    let stream = served.begin_stream();
    served.signal("-TERM");
    let last =
        BufReader::new(stream).lines().map_while(Result::ok).filter(|line| line.starts_with("data: ")).last();
    assert_eq!(last.unwrap(), "data: [DONE]");
    assert_eq!(served.ended().code(), Some(0));

    let served = Served::start(&[]);
    let streams: Vec<TcpStream> = (0..8).map(|_| served.begin_stream()).collect();
    served.signal("-TERM");
    std::thread::sleep(Duration::from_millis(120));
    served.signal("-INT");
    let code = served.ended().code();
    // A fast machine has finished by itself.
    assert!(code == Some(130) || code == Some(0), "{code:?}");
    drop(streams);
}

#[test]
fn a_hundred_half_sent_requests_shut_nobody_out_of_sixty_descriptors_nor_delay_the_end() {
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 60 && exec \"$0\" serve --port 0", env!("CARGO_BIN_EXE_rsgen")]);
    let served = Served::new(limited);
    let kinds = [HALF_A_HEAD, HALF_A_BODY, ""];
    let half_sent: Vec<TcpStream> = (0..100).map(|index| served.send(kinds[index % 3])).collect();
    for _ in 0..3 {
        assert_eq!(served.complete(3)["usage"]["completion_tokens"], 3);
    }
    // The newest connections are still there when the signal comes.
    let begin = Instant::now();
    served.signal("-TERM");
    assert_eq!(served.ended().code(), Some(0));
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    drop(half_sent);
}
