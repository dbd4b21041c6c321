//! `rsgen serve`: its first lines, its signals, and few descriptors. `tests/suite/service.rs` tests the server itself.
#![cfg(unix)]

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::net::TcpStream;
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
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = lines.next().unwrap().unwrap();
        let url = first.split_once(" on ").unwrap().1.split(';').next().unwrap().to_owned();
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
        let config = ureq::Agent::config_builder().timeout_global(Some(LATEST)).build();
        let request = ureq::Agent::from(config).post(format!("{}/v1/completions", self.url));
        let body = json!({ "prompt": PROMPT, "max_tokens": max_tokens, "temperature": 0 });
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

#[test]
fn the_first_lines_tell_where_it_is_and_how_to_try_it() {
    let mut served = Served::start(&["--served-model-name", "tales"]);
    assert!(served.url.starts_with("http://127.0.0.1:") && !served.url.ends_with(":0"), "{}", served.url);
    let tip = served.lines.next().unwrap().unwrap();
    assert!(tip.starts_with("try: curl ") && tip.contains(&served.url), "{tip}");
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
