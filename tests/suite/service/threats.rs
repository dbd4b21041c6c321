//! Attacks on a server that are no matter of one layer: each test is named after its threat, and SECURITY.md lists them all.

use std::io::Read as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rsgen::GenerationConfig;
use rsgen::generation::{LogitsProcessor, RowContext};
use rsgen::serve::{Secret, ServeOptions};
use serde_json::{Value, json};

use super::*;

/// The paths of the description of the API that take a body.
fn paths_with_bodies(service: &Service) -> Vec<String> {
    let (_, text) = service.get("/openapi.json", &[]);
    let description: Value = serde_json::from_str(&text).unwrap();
    let paths = description["paths"].as_object().unwrap().iter();
    let taking = paths.filter(|(_, methods)| methods.get("post").is_some());
    taking.map(|(path, _)| path.replace("{id}", "x")).collect()
}

/// The status and the text of an answer to bytes that are called JSON.
fn answer(service: &Service, path: &str, body: &[u8]) -> (u16, String) {
    let request = agent().post(format!("{}{path}", service.url)).header("content-type", "application/json");
    let mut response = request.send(body).unwrap();
    (response.status().as_u16(), response.body_mut().read_to_string().unwrap())
}

/// Asserts that an ordinary client is served.
fn assert_served(service: &Service) {
    assert!(!text_of(events(service.post(&stream_of(PROMPT, 3)))).is_empty());
}

#[test]
fn flood_of_long_prompts_the_queue_is_bounded_in_tokens_too() {
    let limits = ServeOptions { max_requests: 1, max_queued_tokens: 1500, ..options() };
    let service = Service::new(patient_model(), limits);
    let mut running = events(service.post(&stream_of(PROMPT, 60_000)));
    running.next().unwrap();
    let waits_for = |count: f64| {
        let begin = Instant::now();
        while service.metric("rsgen_requests_waiting") < count {
            assert!(begin.elapsed() < LATEST, "it does not wait");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let long = stream_of(&"the fox ".repeat(600), 2);
    let first = sent(service.address(), &request_text(&long.to_string()));
    waits_for(1.0);
    let refused = service.post(&long);
    assert_eq!(refused.status(), 503);
    assert!(refused.headers().contains_key("retry-after"));
    assert_eq!(service.metric("rsgen_admission_rejections_total{reason=\"queue_tokens\"}"), 1.0);
    // A short prompt still has room.
    let second = sent(service.address(), &request_text(&stream_of(PROMPT, 2).to_string()));
    waits_for(2.0);
    drop((first, second, running));
    service.wait_until_all_is_free();
}

/// A processor of a program, which panics at its fifth step.
struct Panics(AtomicUsize);

impl LogitsProcessor for Panics {
    fn name(&self) -> &'static str {
        "panics"
    }

    fn process_row(&self, _: &mut [f32], _: &mut RowContext<'_>) -> rsgen::Result<()> {
        assert!(self.0.fetch_add(1, Ordering::Relaxed) < 4, "on purpose");
        Ok(())
    }
}

#[test]
fn panic_in_a_call_beside_the_server_leaves_its_requests() {
    let service = Service::bundled(options());
    let expected = text_of(events(service.post(&stream_of(PROMPT, 60))));
    std::thread::scope(|scope| {
        let streams: Vec<_> =
            (0..4).map(|_| scope.spawn(|| text_of(events(service.post(&stream_of(PROMPT, 60)))))).collect();
        for _ in 0..20 {
            let config = GenerationConfig::new().max_new_tokens(60);
            let call = service.generator.call(PROMPT).config(&config);
            let call = call.processor(Arc::new(Panics(AtomicUsize::new(0))));
            let ended = catch_unwind(AssertUnwindSafe(|| call.run()));
            assert!(ended.is_err(), "it panics");
        }
        for stream in streams {
            assert_eq!(stream.join().unwrap(), expected);
        }
    });
    service.wait_until_all_is_free();
}

#[test]
fn grammar_bombs_end_soon_on_every_route_and_hold_up_nobody() {
    let service = Service::bundled(options());
    let schemas = [
        json!({ "$ref": "#" }),
        json!({ "$defs": { "a": { "$ref": "#/$defs/b" }, "b": { "$ref": "#/$defs/a" } }, "$ref": "#/$defs/a" }),
        json!({ "type": "array", "minItems": 1_000_000_000_u64, "items": { "type": "array", "minItems": 100_000 } }),
        json!({ "patternProperties": { "^(a|b)*a(a|b){30}$": {}, "(b|a)*b(b|a){30}": {} } }),
        json!({ "enum": (0..20_000).map(|number| format!("value {number}")).collect::<Vec<_>>() }),
    ];
    let hello = json!([{ "role": "user", "content": PROMPT }]);
    let mut bombs: Vec<(&str, Value)> = ["((a{1,1000}){1,1000}){1,1000}", "(a|b)*a(a|b){40}"]
        .map(|regex| (COMPLETIONS, json!({ "prompt": PROMPT, "regex": regex })))
        .into();
    let nested = format!("start: {}\"a\"{}", "(".repeat(30_000), ")".repeat(30_000));
    for grammar in ["start: (\"a\"{1,100000}){1,100000}", "start: start start | \"a\" | ", &nested] {
        bombs.push((COMPLETIONS, json!({ "prompt": PROMPT, "grammar": grammar })));
    }
    for schema in &schemas {
        let named = json!({ "type": "json_schema", "name": "n", "schema": schema, "strict": true });
        let nested = json!({ "type": "json_schema", "json_schema": { "name": "n", "schema": schema } });
        let tool = json!([{ "type": "function", "function": { "name": "f", "parameters": schema } }]);
        bombs.extend([
            ("/v1/chat/completions", json!({ "messages": hello, "response_format": nested })),
            ("/v1/chat/completions", json!({ "messages": hello, "tools": tool, "tool_choice": "required" })),
            ("/v1/responses", json!({ "input": hello, "text": { "format": named } })),
            ("/v1/messages", json!({ "messages": hello, "output_config": { "format": named } })),
            ("/api/chat", json!({ "messages": hello, "format": schema, "stream": false })),
        ]);
    }
    let (done, next) = (AtomicBool::new(false), AtomicUsize::new(0));
    let slowest = std::thread::scope(|scope| {
        let served = scope.spawn(|| {
            let mut slowest = Duration::ZERO;
            while !done.load(Ordering::Relaxed) {
                let begin = Instant::now();
                assert_eq!(service.get("/health/live", &[]).0, 200);
                assert_served(&service);
                slowest = slowest.max(begin.elapsed());
            }
            slowest
        });
        let attackers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    while let Some((path, body)) = bombs.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let mut body = body.clone();
                        body["max_tokens"] = 8.into();
                        let begin = Instant::now();
                        let (status, text) = answer(&service, path, body.to_string().as_bytes());
                        let shown = &body.to_string()[..body.to_string().len().min(200)];
                        assert!([200, 400].contains(&status), "{path} {shown}: {status} {text}");
                        assert!(text.len() < 5_000, "{path} {shown}: {} bytes", text.len());
                        assert!(begin.elapsed() < 6 * LATEST, "{path} {shown}: {:?}", begin.elapsed());
                    }
                })
            })
            .collect();
        for attacker in attackers {
            attacker.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
        served.join().unwrap()
    });
    assert!(slowest < 4 * LATEST, "{slowest:?}");
    service.wait_until_all_is_free();
    assert_eq!(service.metric("rsgen_internal_errors_total"), 0.0);
}

#[test]
fn deep_huge_and_double_bodies_are_refused_on_every_route() {
    let service = Service::bundled(options());
    let paths = paths_with_bodies(&service);
    assert!(paths.len() >= 16, "{paths:?}");
    let (deep, values) = ("[".repeat(64) + &"]".repeat(64), "[],".repeat(600_000));
    let bodies = [
        (400, format!("{{\"prompt\": {deep}}}")),
        (400, "[".repeat(1 << 20)),
        (400, format!("{{\"prompt\": [{values}0]}}")),
        (400, "{\"prompt\": \"a\", \"prompt\": \"b\"}".to_owned()),
        (400, "[]".to_owned()),
        (400, "{\"prompt\": \"\u{0}".to_owned()),
        (413, format!("{{\"prompt\": \"{}\"}}", "a".repeat(2 << 20))),
    ];
    for path in &paths {
        for (expected, body) in &bodies {
            let begin = Instant::now();
            let (status, text) = answer(&service, path, body.as_bytes());
            let shown = &body[..body.len().min(40)];
            assert_eq!(status, *expected, "{path} {shown}: {text}");
            assert!(text.len() < 2_000 && text.contains("error"), "{path} {shown}: {text}");
            assert!(begin.elapsed() < LATEST, "{path} {shown}: {:?}", begin.elapsed());
        }
    }
    assert_served(&service);
    service.wait_until_all_is_free();
}

#[test]
fn auth_bypass_by_odd_paths_methods_and_headers_is_refused() {
    let service = Service::bundled(ServeOptions { api_keys: vec![Secret::new("canary")], ..options() });
    let status = |head: &str, headers: &str| {
        let request = format!("{head} HTTP/1.1\r\nHost: localhost\r\n{headers}Connection: close\r\n\r\n");
        let mut text = String::new();
        let _ = sent(service.address(), &request).read_to_string(&mut text);
        text.split(' ').nth(1).unwrap_or_default().to_owned()
    };
    assert_eq!(status("GET /v1/models", "Authorization: Bearer canary\r\n"), "200");
    // None of these is the path of a file of the page or of liveness; `.` and `%` mean nothing.
    for target in [
        "//v1/models",
        "/v1//models",
        "/./v1/models",
        "/ui/../v1/models",
        "/ui/%2e%2e/v1/models",
        "/health/live/../../v1/models",
        "/health/live/",
        "/health/live%2f..%2f..%2fv1/models",
        "/%761/models",
        "/v1/models/",
        "/v1/models?/health/live",
        "/V1/MODELS",
        "/metrics;/health/live",
        "http://localhost/v1/models",
        "http://localhost/health/live/../../v1/models",
        "*",
    ] {
        for method in ["GET", "HEAD", "POST", "OPTIONS", "PATCH", "get"] {
            let found = status(&format!("{method} {target}"), "");
            assert!(["401", "400"].contains(&&*found), "{method} {target}: {found}");
        }
    }
    for headers in [
        "X-Original-URL: /health/live\r\n",
        "X-Rewrite-URL: /health/live\r\n",
        "X-HTTP-Method-Override: OPTIONS\r\n",
        "X-Forwarded-For: 127.0.0.1\r\n",
        "Authorization: Bearer wrong\r\nAuthorization: Bearer canary\r\n",
        "Authorization: Bearer canary, Bearer wrong\r\n",
        "Authorization: Bearer wrong\r\nX-Api-Key: canary\r\n",
        "Cookie: api_key=canary\r\n",
        "Authorization: Bearer canary\u{e9}\r\n",
        "Authorization: Bearer\tcanary\r\n",
        "Authorization: Bearercanary\r\n",
        "Proxy-Authorization: Bearer canary\r\n",
    ] {
        let found = status("GET /v1/models", headers);
        assert!(["401", "400"].contains(&&*found), "{headers:?}: {found}");
    }
    assert_eq!(status("GET /v1/models?api_key=canary", ""), "401");
}
