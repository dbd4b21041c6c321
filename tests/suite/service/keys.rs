//! Keys of several tenants: what they share, and what each may have.

use std::time::{Duration, Instant};

use rsgen::GenerationConfig;
use rsgen::serve::{Secret, ServeOptions, Server};
use serde_json::{Value, json};

use super::*;

const KEYS: [&str; 2] = ["one", "two"];

fn with_keys(keys: &[&str]) -> ServeOptions {
    ServeOptions { api_keys: keys.iter().map(|&key| Secret::new(key)).collect(), ..options() }
}

/// The cached tokens of the prompt of a request.
fn cached(service: &Service, key: &str, body: &Value) -> u64 {
    let mut response = service.post_with_key(key, body);
    let answer: Value = serde_json::from_str(&response.body_mut().read_to_string().unwrap()).unwrap();
    let details = &answer["usage"]["prompt_tokens_details"]["cached_tokens"];
    details.as_u64().unwrap_or_else(|| panic!("{answer}"))
}

#[test]
fn keys_do_not_share_prompts_whatever_salt_a_request_has() {
    let service = Service::bundled(with_keys(&KEYS));
    let body = json!({ "prompt": long_prompt(90), "max_tokens": 1 });
    let salted = json!({ "prompt": long_prompt(90), "max_tokens": 1, "cache_salt": "mine" });
    for key in KEYS {
        for body in [&body, &salted] {
            assert_eq!(cached(&service, key, body), 0, "{key}: {body}");
            assert!(cached(&service, key, body) > 32, "{key}: {body}");
        }
    }
    // Nor with the program that the server is part of.
    let prompt = long_prompt(90);
    let alone =
        service.generator.generate(prompt.as_str(), &GenerationConfig::new().max_new_tokens(1)).unwrap();
    assert_eq!(alone.usage.cached_prompt_tokens, 0);
}

#[test]
fn keys_do_not_share_the_texts_of_embeddings() {
    let service = Service::bundled(with_keys(&KEYS));
    let hits = || {
        let (_, metrics) = service.get("/metrics", &[("authorization", "Bearer one")]);
        let line = metrics.lines().find(|line| line.starts_with("rsgen_prefix_cache_hits_total ")).unwrap();
        line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
    };
    // The vector of the last token needs nothing of those before but what the cache has.
    let body = json!({ "input": long_prompt(90), "pooling": "last" });
    for key in KEYS {
        for shares in [false, true] {
            let before = hits();
            let request = agent().post(format!("{}/v1/embeddings", service.url));
            let request = request.header("authorization", format!("Bearer {key}"));
            let request = request.header("content-type", "application/json");
            assert_eq!(request.send(body.to_string()).unwrap().status(), 200);
            assert_eq!(hits() > before, shares, "{key}");
        }
    }
}

#[test]
fn all_share_prompts_where_there_is_one_key_or_none() {
    for keys in [&KEYS[..1], &[]] {
        let service = Service::bundled(with_keys(keys));
        let config = GenerationConfig::new().max_new_tokens(1);
        service.generator.generate(long_prompt(90).as_str(), &config).unwrap();
        let body = json!({ "prompt": long_prompt(90), "max_tokens": 1 });
        assert!(cached(&service, "one", &body) > 32);
    }
}

#[test]
fn a_key_has_no_more_requests_at_a_time_than_it_may() {
    let limits = ServeOptions { max_requests_per_key: Some(2), max_requests: 3, ..with_keys(&KEYS) };
    let service = Service::new(patient_model(), limits);
    let endless = stream_of(PROMPT, 60_000);
    let mut running = ["one", "one", "two"].map(|key| events(service.post_with_key(key, &endless)));
    for stream in &mut running {
        stream.next().unwrap();
    }
    let begin = Instant::now();
    let mut refused = service.post_with_key("one", &endless);
    assert!(begin.elapsed() < Duration::from_secs(1));
    assert_eq!(
        (refused.status().as_u16(), &refused.headers()["x-should-retry"]),
        (429, &"true".parse().unwrap())
    );
    assert!(refused.headers()["retry-after"].to_str().unwrap().parse::<u64>().unwrap() >= 1);
    let error: Value = serde_json::from_str(&refused.body_mut().read_to_string().unwrap()).unwrap();
    assert_eq!(error["error"]["code"], "rate_limit_exceeded");
    assert!(error["error"]["message"].as_str().unwrap().contains("2 requests at a time"), "{error}");
    let key = [("authorization", "Bearer two")];
    assert!(
        service
            .get("/metrics", &key)
            .1
            .contains("rsgen_admission_rejections_total{reason=\"key_limit\"} 1\n")
    );
    // A request that waits counts; the other key is not concerned; wrong requests give back what they had.
    let waiting = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| service.post_with_key("two", &stream_of(PROMPT, 1)).status());
        while !service.get("/metrics", &key).1.contains("rsgen_requests_waiting 1\n") {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(service.post_with_key("two", &endless).status(), 429);
        drop(running);
        waiting.join().unwrap()
    });
    assert_eq!(waiting, 200);
    while !service.get("/metrics", &key).1.contains("rsgen_requests_running 0\n") {
        std::thread::sleep(Duration::from_millis(1));
    }
    for _ in 0..5 {
        assert_eq!(service.post_with_key("one", &json!({ "prompt": PROMPT, "n": -1 })).status(), 400);
        assert!(!text_of(events(service.post_with_key("one", &stream_of(PROMPT, 1)))).is_empty());
    }
}

#[test]
fn a_key_has_no_more_tokens_a_minute_than_it_may() {
    let service = Service::bundled(ServeOptions { max_tokens_per_key: Some(40), ..with_keys(&KEYS) });
    let ask = |key, tokens: usize| {
        let body = json!({ "prompt": PROMPT, "max_tokens": tokens, "ignore_eos": true });
        service.post_with_key(key, &body)
    };
    assert_eq!(ask("one", 10).status(), 200);
    assert_eq!(ask("one", 50).status(), 200, "what it takes is known at its end");
    let mut refused = ask("one", 1);
    assert_eq!(
        (refused.status().as_u16(), &refused.headers()["x-should-retry"]),
        (429, &"true".parse().unwrap())
    );
    let wait: u64 = refused.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((20..=60).contains(&wait), "{wait}");
    let error: Value = serde_json::from_str(&refused.body_mut().read_to_string().unwrap()).unwrap();
    assert!(error["error"]["message"].as_str().unwrap().contains("40 tokens a minute"), "{error}");
    assert_eq!(error["error"]["code"], "rate_limit_exceeded");
    assert_eq!(ask("two", 10).status(), 200, "the other key is not concerned");
    let texts = json!({ "input": long_prompt(90) });
    let embed = || {
        let request = agent().post(format!("{}/v1/embeddings", service.url));
        let request =
            request.header("authorization", "Bearer two").header("content-type", "application/json");
        request.send(texts.to_string()).unwrap().status().as_u16()
    };
    assert_eq!([embed(), embed()], [200, 429]);
}

#[test]
fn a_limit_by_key_needs_a_key() {
    let limits = ServeOptions { max_requests_per_key: Some(2), ..options() };
    let error = Server::bind(limits.clone()).unwrap_err().to_string();
    assert!(error.contains("`max_requests_per_key`") && error.contains("`api_key`"), "{error}");
    let error = Server::bind(ServeOptions { max_requests_per_key: Some(0), ..with_keys(&KEYS) }).unwrap_err();
    assert!(error.to_string().contains("`max_requests_per_key` must be 1 or more"), "{error}");
}
