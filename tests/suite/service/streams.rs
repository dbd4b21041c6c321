//! Requests from their beginning to their end: clients that stay, clients that leave, servers that stop.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use rsgen::GenerationConfig;
use rsgen::serve::ServeOptions;
use serde_json::{Value, json};

use super::*;

const GENERATE: &str = "/api/generate";

/// How long a client's blocks may stay after it has left. A test shares its cores with others, so the median counts.
const PROMPTLY: Duration = Duration::from_millis(250);

#[test]
fn eight_clients_at_once_get_what_generate_gives_each_alone() {
    let service = Service::bundled(options());
    let prompts = ["Once upon a time", "One day, a little fox", "Near the lake", "A"];
    std::thread::scope(|scope| {
        for client in 0..8 {
            let service = &service;
            scope.spawn(move || {
                let prompt = prompts[client % prompts.len()];
                let config =
                    GenerationConfig::new().do_sample(true).top_k(0).seed(client as u64).max_new_tokens(30);
                let expected = service.generator.generate(prompt, &config).unwrap();
                let mut request =
                    json!({ "prompt": prompt, "max_tokens": 30, "seed": client, "stream": true });
                assert_eq!(text_of(events(service.post(&request))), expected.text());
                request["stream"] = false.into();
                let mut answer = service.post(&request);
                let answer: Value =
                    serde_json::from_str(&answer.body_mut().read_to_string().unwrap()).unwrap();
                assert_eq!(answer["choices"][0]["text"], expected.text());
            });
        }
    });
    service.wait_until_all_is_free();
    assert_eq!(service.metric("rsgen_requests_running"), 0.0);
    assert_eq!(service.metric("rsgen_e2e_request_latency_seconds_count"), 16.0);
    assert_eq!(service.metric("rsgen_time_to_first_token_seconds_count"), 8.0);
    assert!(service.metric("rsgen_generation_tokens_total") > 100.0);
}

#[test]
fn a_client_that_leaves_frees_its_blocks_at_random_points_of_prompts_and_streams() {
    let service = Service::new(patient_model(), options());
    let (short, long) = (stream_of(PROMPT, 60_000), stream_of(&long_prompt(12_000), 30_000));
    let whole = json!({ "prompt": long_prompt(12_000), "max_tokens": 30_000, "temperature": 0 });
    let mut waits = Vec::new();
    for (round, pause) in [3, 40, 0, 75, 21, 110, 58, 9, 33].into_iter().enumerate() {
        let leave: Box<dyn FnOnce()> = match round % 3 {
            0 => {
                let mut events = events(service.post(&short));
                events.next().unwrap();
                Box::new(move || drop(events))
            }
            1 => {
                let response = service.post(&long);
                assert_eq!(response.status(), 200);
                Box::new(move || drop(response))
            }
            _ => {
                let connection = sent(service.address(), &request_text(&whole.to_string()));
                Box::new(move || drop(connection))
            }
        };
        std::thread::sleep(Duration::from_millis(pause));
        leave();
        let begin = Instant::now();
        while service.metric("rsgen_requests_running") > 0.0 {
            assert!(begin.elapsed() < LATEST);
            std::thread::sleep(Duration::from_millis(1));
        }
        service.wait_until_all_is_free();
        waits.push(begin.elapsed());
    }
    waits.sort_unstable();
    assert!(waits[waits.len() / 2] < PROMPTLY, "{waits:?}");
    assert!(service.metric("rsgen_cancelled_total{cause=\"client\"}") >= 6.0);
}

#[test]
fn fifty_clients_that_leave_at_once_at_random_points_leave_nothing() {
    let service = Service::new(patient_model(), ServeOptions { max_requests: 8, ..options() });
    let bodies = [stream_of(PROMPT, 60_000), stream_of(&long_prompt(3_000), 30_000)];
    let whole = json!({ "prompt": PROMPT, "max_tokens": 30_000, "num_beams": 2 });
    let start = Instant::now();
    let mut clients: Vec<(Duration, TcpStream)> = (0..50u64)
        .map(|index| {
            let body = bodies.get(index as usize % 3).unwrap_or(&whole);
            let stays = Duration::from_millis(index * 7919 % 200);
            (stays, sent(service.address(), &request_text(&body.to_string())))
        })
        .collect();
    clients.sort_by_key(|(stays, _)| *stays);
    for (stays, connection) in clients {
        std::thread::sleep(stays.saturating_sub(start.elapsed()));
        drop(connection);
    }
    let begin = Instant::now();
    while service.metric("rsgen_requests_running") + service.metric("rsgen_requests_waiting") > 0.0 {
        assert!(begin.elapsed() < LATEST);
        std::thread::sleep(Duration::from_millis(1));
    }
    service.wait_until_all_is_free();
    assert!(!text_of(events(service.post(&stream_of(PROMPT, 3)))).is_empty());
}

#[test]
fn a_server_that_is_told_to_stop_finishes_its_streams_and_takes_no_new_ones() {
    let service = Service::new(patient_model(), options());
    let mut stream = events(service.post(&stream_of(PROMPT, 200)));
    stream.next().unwrap();
    // A connection from before, which is kept.
    let mut kept =
        BufReader::new(sent(service.address(), "GET /health/ready HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    let mut line = String::new();
    kept.read_line(&mut line).unwrap();
    assert!(line.contains("200"), "{line}");
    service.running.stop();
    assert_eq!(stream.last().unwrap(), "[DONE]");
    service.running.wait(&mut || false).unwrap();
    assert!(TcpStream::connect(service.address()).is_err());
    assert!(service.is_free());
}

#[test]
fn what_still_runs_after_the_grace_ends_with_an_error_event() {
    let grace = Duration::from_millis(50);
    let service = Service::new(patient_model(), ServeOptions { grace, ..options() });
    let mut stream = events(service.post(&stream_of(PROMPT, 60_000)));
    stream.next().unwrap();
    let mut whole = sent(
        service.address(),
        &request_text(&json!({ "prompt": PROMPT, "max_tokens": 60_000 }).to_string()),
    );
    while service.metric("rsgen_requests_running") < 2.0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    service.running.stop();
    service.running.wait(&mut || false).unwrap();
    let last: Value = serde_json::from_str(&stream.last().unwrap()).unwrap();
    assert_eq!(last["error"]["code"], "shutting_down", "{last}");
    let mut answer = String::new();
    whole.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("shutting_down"), "{answer}");
    service.wait_until_all_is_free();
}

#[test]
fn a_dropped_server_ends_its_streams() {
    let service = Service::new(patient_model(), options());
    let mut stream = events(service.post(&stream_of(PROMPT, 60_000)));
    stream.next().unwrap();
    let Service { running, generator, .. } = service;
    let begin = Instant::now();
    drop(running);
    assert!(begin.elapsed() < LATEST);
    let stats = generator.engine().pool().stats();
    assert_eq!(stats.available_blocks, stats.max_blocks);
}

#[test]
fn a_waiting_thread_can_be_interrupted_and_an_idle_server_ends_at_once() {
    let service = Service::bundled(options());
    let error = service.running.wait(&mut || true).unwrap_err();
    assert_eq!(error.kind(), rsgen::ErrorKind::Cancelled);
    assert_eq!(service.get("/health/live", &[]).0, 200);
    // An idle connection delays nothing.
    let idle = sent(service.address(), "");
    let begin = Instant::now();
    service.running.stop();
    service.running.wait(&mut || false).unwrap();
    assert!(begin.elapsed() < Duration::from_secs(1));
    drop(idle);
}

#[test]
fn a_client_that_shuts_down_its_sending_side_gets_its_answer() {
    let service = Service::new(patient_model(), options());
    let whole = json!({ "prompt": long_prompt(600), "max_tokens": 60, "temperature": 0 });
    let mut stream = whole.clone();
    stream["stream"] = true.into();
    let hello = json!([{ "role": "user", "content": long_prompt(600) }]);
    let messages = json!({ "messages": hello, "max_tokens": 20, "stream": true });
    let response = json!({ "input": hello, "max_output_tokens": 20, "stream": true });
    let options = json!({ "num_predict": 20, "temperature": 0 });
    let lines = json!({ "prompt": long_prompt(600), "raw": true, "options": options });
    for (path, body, end) in [
        (COMPLETIONS, &whole, "\"completion_tokens\":60"),
        (COMPLETIONS, &stream, "data: [DONE]"),
        ("/tokenize", &json!({ "prompt": PROMPT }), "\"count\""),
        ("/rsgen/v1/generate", &json!({ "prompt": PROMPT, "max_new_tokens": 9 }), "\"finish\""),
        ("/v1/messages", &messages, "event: message_stop"),
        ("/v1/responses", &response, "event: response.incomplete"),
        (GENERATE, &lines, "\"eval_count\":20"),
        ("/v1/embeddings", &json!({ "input": long_prompt(600) }), "\"total_tokens\""),
    ] {
        for version in ["HTTP/1.1", "HTTP/1.0"] {
            let request = request_text(&body.to_string()).replacen(COMPLETIONS, path, 1);
            let mut connection = sent(service.address(), &request.replacen("HTTP/1.1", version, 1));
            connection.shutdown(Shutdown::Write).unwrap();
            let mut answer = String::new();
            connection.read_to_string(&mut answer).unwrap();
            assert!(answer.contains(" 200 OK") && answer.contains(end), "{path} {version}: {answer}");
            assert!(version == "HTTP/1.1" || answer.starts_with("HTTP/1.0 200 "), "{answer}");
            // What the server sent to find out is no part of a line.
            if (path, version) == (GENERATE, "HTTP/1.0") {
                let (_, lines) = answer.split_once("\r\n\r\n").unwrap();
                assert!(lines.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{answer}");
            }
        }
    }
    service.wait_until_all_is_free();
}

#[test]
fn streams_and_vectors_of_every_protocol_end_when_their_client_leaves() {
    let service = Service::new(patient_model(), options());
    let hello = json!([{ "role": "user", "content": PROMPT }]);
    let endless = json!({ "num_predict": 60_000, "temperature": 0 });
    for (path, body, begin) in [
        (
            "/v1/messages",
            json!({ "messages": hello, "max_tokens": 60_000, "stream": true }),
            "content_block_delta",
        ),
        (
            "/v1/responses",
            json!({ "input": hello, "max_output_tokens": 60_000, "stream": true }),
            "response.output_text.delta",
        ),
        ("/api/chat", json!({ "messages": hello, "options": endless }), "\"done\":false"),
        (GENERATE, json!({ "prompt": PROMPT, "raw": true, "options": endless }), "\"done\":false"),
    ] {
        let request = request_text(&body.to_string()).replacen(COMPLETIONS, path, 1);
        let mut connection = sent(service.address(), &request);
        let (mut answer, mut bytes) = (String::new(), [0; 4096]);
        while !answer.contains(begin) {
            let count = connection.read(&mut bytes).unwrap();
            assert!(count > 0, "{path}: {answer}");
            answer += &String::from_utf8_lossy(&bytes[..count]);
        }
        drop(connection);
        service.wait_until_all_is_free();
    }
    // And an answer that is whole, before it is there.
    for (path, body) in [
        ("/v1/messages", json!({ "messages": hello, "max_tokens": 60_000 })),
        ("/v1/responses", json!({ "input": hello, "max_output_tokens": 60_000 })),
        ("/v1/embeddings", json!({ "input": vec![long_prompt(3000); 40] })),
        ("/v1/rerank", json!({ "query": "a", "documents": vec![long_prompt(3000); 40] })),
    ] {
        let request = request_text(&body.to_string()).replacen(COMPLETIONS, path, 1);
        let connection = sent(service.address(), &request);
        while service.metric("rsgen_requests_running") < 1.0 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        drop(connection);
        service.wait_until_all_is_free();
    }
}

#[test]
fn a_server_that_is_told_to_stop_lives_and_is_not_ready_until_its_end() {
    let keyed = ServeOptions { api_keys: vec![rsgen::serve::Secret::new("k")], ..options() };
    let service = Service::new(patient_model(), keyed);
    let mut stream = events(service.post_with_key("k", &stream_of(PROMPT, 60_000)));
    stream.next().unwrap();
    assert_eq!(service.get("/health/ready", &[]).0, 200);
    service.running.stop();
    // Connections of now, and not those from before.
    for _ in 0..3 {
        let (status, text) = service.get("/health/ready", &[]);
        assert!(status == 503 && text.contains("shutting down"), "{status} {text}");
        assert_eq!(service.get("/health/live", &[]).0, 200);
        assert_eq!(service.post_with_key("k", &stream_of(PROMPT, 2)).status(), 503);
    }
    stream.next().unwrap();
    drop(stream);
    service.running.wait(&mut || false).unwrap();
    assert!(TcpStream::connect(service.address()).is_err());
}
