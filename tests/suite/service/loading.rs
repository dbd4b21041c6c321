//! A server whose model is still to be loaded.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use rsgen::Generator;
use rsgen::serve::{Secret, ServeOptions, Server};
use serde_json::Value;

use super::*;

/// Sends a request over a connection that is kept, and returns the answer.
fn ask(connection: &mut TcpStream, request: &str) -> String {
    connection.write_all(request.as_bytes()).unwrap();
    let (mut answer, mut bytes) = (String::new(), [0; 4096]);
    loop {
        let count = connection.read(&mut bytes).unwrap();
        assert!(count > 0, "closed after {answer}");
        answer += std::str::from_utf8(&bytes[..count]).unwrap();
        let Some((head, body)) = answer.split_once("\r\n\r\n") else { continue };
        let length =
            head.to_lowercase().lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        if length == Some(body.len()) {
            return answer;
        }
    }
}

#[test]
fn a_server_lives_and_is_not_ready_while_its_model_is_loaded() {
    let limits = ServeOptions { api_keys: vec![Secret::new("k")], ..options() };
    let loading = Server::bind(limits).unwrap().listen().unwrap();
    let address = loading.url().strip_prefix("http://").unwrap().to_owned();
    let mut connection = sent(&address, "");
    let get = |path: &str, key: &str| {
        format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n\r\n")
    };
    assert!(ask(&mut connection, &get("/health/live", "")).starts_with("HTTP/1.1 200 "));
    for path in ["/health", "/health/ready", "/v1/models", "/nowhere"] {
        let answer = ask(&mut connection, &get(path, "k"));
        assert!(answer.starts_with("HTTP/1.1 503 "), "{path}: {answer}");
        assert!(answer.contains("\r\nretry-after: 1\r\n"), "{answer}");
        let body: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
        assert_eq!(body["error"]["code"], "loading");
        assert!(ask(&mut connection, &get(path, "wrong")).starts_with("HTTP/1.1 401 "), "{path}");
    }
    let body = stream_of(PROMPT, 2).to_string();
    let post = request_text(&body).replacen("Host", "Authorization: Bearer k\r\nHost", 1);
    let answer = ask(&mut connection, &post);
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("loading"), "{answer}");
    // The same connection finds the model as soon as it is there.
    let running = loading.start(Generator::bundled().unwrap());
    assert!(ask(&mut connection, &get("/health/ready", "k")).starts_with("HTTP/1.1 200 "));
    running.stop();
    running.wait(&mut || false).unwrap();
}

#[test]
fn a_server_whose_model_cannot_be_loaded_closes_its_port() {
    let loading = Server::bind(options()).unwrap().listen().unwrap();
    let address = loading.url().strip_prefix("http://").unwrap().to_owned();
    let mut waiting = sent(&address, "");
    drop(loading);
    assert_eq!(waiting.read(&mut [0; 1]).unwrap_or(0), 0);
    assert!(TcpStream::connect(&address).is_err());
}
