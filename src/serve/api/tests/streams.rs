//! Streams whose clients read slowly.

use std::time::Duration;

use axum::body::Bytes;
use tokio_stream::StreamExt as _;

use super::*;

/// The events of a stream whose client reads the first, and nothing more until all is computed.
fn read_late(server: &Server, path: &str, body: &Value) -> Vec<Value> {
    let request = Request::post(path).header("content-type", "application/json");
    let request = request.body(Body::from(body.to_string())).unwrap();
    let service = TowerToHyperService::new(server.router.clone());
    let response = server.runtime.block_on(service.call(request)).unwrap();
    let mut chunks = response.into_body().into_data_stream();
    let first = server.runtime.block_on(chunks.next()).unwrap().unwrap();
    while !server.request("GET", "/metrics", String::new()).2.contains("rsgen_requests_running 0\n") {
        std::thread::sleep(Duration::from_millis(2));
    }
    let rest: Result<Vec<Bytes>, _> = server.runtime.block_on(chunks.collect());
    let bytes = std::iter::once(first).chain(rest.unwrap()).collect::<Vec<_>>().concat();
    events_of(path, &String::from_utf8(bytes).unwrap())
}

#[test]
fn a_slow_client_gets_buffered_tokens_together_and_unchanged() {
    let server = Server::new(ServeOptions::default());
    let messages = json!([{ "role": "user", "content": "Tell me a story." }]);
    let common = json!({ "seed": 3, "ignore_eos": true, "max_tokens": 20 });
    for (path, fields) in [
        ("/v1/completions", json!({ "prompt": PROMPT, "logprobs": 2, "return_token_ids": true })),
        ("/v1/completions", json!({ "prompt": [PROMPT, "One day"], "n": 2 })),
        ("/v1/completions", json!({ "prompt": PROMPT, "temperature": 0, "n": 2, "stop": ["zzz"] })),
        ("/v1/chat/completions", json!({ "messages": messages, "logprobs": true, "n": 2 })),
    ] {
        let body = with(&common, fields);
        let whole = ok(path, &body);
        let parts = read_late(&server, path, &streamed(&body));
        compare(&body, &whole, &parts);
        let answers = whole["choices"].as_array().unwrap().len();
        // One part before the client paused, one after it, and the ends of chats and of the stream.
        assert!(parts.len() <= 4 * answers + 2, "{} parts of {answers} answers", parts.len());
        let ids = parts.iter().filter_map(|part| part["choices"][0]["token_ids"].as_array());
        assert_eq!(ids.flatten().count(), if body["return_token_ids"] == true { 20 } else { 0 });
    }
}
