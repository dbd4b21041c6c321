//! Answers that are entries of a catalogue.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use rsgen_generation::TokenTrieBuilder;

const ANIMALS: [&str; 4] = [" fox", " little bird", " little bird named", " horse"];

static WITH_CATALOGUE: LazyLock<Server> = LazyLock::new(|| {
    let mut builder = TokenTrieBuilder::default();
    for (index, ids) in SERVER.generator.token_trie(ANIMALS).unwrap().iter().enumerate() {
        builder.add(&ids, Some(&json!({ "id": 100 + index }))).unwrap();
    }
    let trie = Arc::new(builder.build(&mut || false).unwrap());
    let catalogues = BTreeMap::from([("animals".to_owned(), trie)]);
    Server::new(ServeOptions { catalogues, ..ServeOptions::default() })
});

fn answer(path: &str, body: &Value) -> Value {
    let (status, _, text) = WITH_CATALOGUE.request("POST", path, body.to_string());
    assert_eq!(status, 200, "{body}: {text}");
    serde_json::from_str(&text).unwrap()
}

fn body(fields: Value) -> Value {
    let all =
        json!({ "prompt": "Once upon a time there was a", "max_tokens": 8, "allowed_sequences": "animals" });
    with(&all, fields)
}

/// The entries that the choices of an answer name.
fn entries(choices: &Value) -> Vec<&Value> {
    choices.as_array().unwrap().iter().map(|choice| &choice["entry"]).collect()
}

#[test]
fn choices_are_entries_with_their_log_probability() {
    let body = body(json!({ "use_beam_search": true, "n": 4, "logprobs": 0 }));
    let whole = answer("/v1/completions", &body);
    for choice in whole["choices"].as_array().unwrap() {
        let (entry, text) = (&choice["entry"], choice["text"].as_str().unwrap());
        assert_eq!(text, ANIMALS[entry["index"].as_u64().unwrap() as usize]);
        assert_eq!(entry["payload"], json!({ "id": 100 + entry["index"].as_u64().unwrap() }));
        let logprobs = choice["logprobs"]["token_logprobs"].as_array().unwrap();
        let sum: f64 = logprobs.iter().map(|one| one.as_f64().unwrap()).sum();
        assert!((entry["logprob"].as_f64().unwrap() - sum).abs() < 1e-5, "{choice}");
    }
    let mut indices: Vec<u64> =
        entries(&whole["choices"]).iter().map(|entry| entry["index"].as_u64().unwrap()).collect();
    indices.sort_unstable();
    assert_eq!(indices, [0, 1, 2, 3]);
    let (_, _, text) = WITH_CATALOGUE.request("POST", "/v1/completions", streamed(&body).to_string());
    let ends: Vec<Value> = events_of("/v1/completions", &text)
        .into_iter()
        .filter(|event| event["choices"][0]["finish_reason"].is_string())
        .map(|event| event["choices"][0]["entry"].clone())
        .collect();
    assert_eq!(ends, entries(&whole["choices"]).into_iter().cloned().collect::<Vec<_>>());
}

#[test]
fn an_entry_is_named_once_and_a_cut_one_not_at_all() {
    let whole = answer("/v1/completions", &body(json!({ "use_beam_search": true, "n": 8 })));
    let mut named: Vec<_> = entries(&whole["choices"]).into_iter().filter(|entry| !entry.is_null()).collect();
    named.sort_by_key(|entry| entry["index"].as_u64());
    named.dedup_by_key(|entry| entry["index"].as_u64());
    assert_eq!(named.len(), 4);
    assert!(whole["choices"].as_array().unwrap().iter().all(|choice| choice.get("entry").is_some()));
    let cut = answer("/v1/completions", &body(json!({ "max_tokens": 1, "logit_bias": { "388": 100 } })));
    assert_eq!(cut["choices"][0]["entry"], Value::Null);
    let free = answer("/v1/completions", &body(json!({ "allowed_sequences": null })));
    assert_eq!(free["choices"][0].get("entry"), None);
}

#[test]
fn chats_and_generate_take_catalogues_too() {
    let messages = json!([{ "role": "user", "content": "Which animal?" }]);
    let chat = json!({ "messages": messages, "max_tokens": 8, "allowed_sequences": "animals" });
    let reply = answer("/v1/chat/completions", &chat);
    assert!(reply["choices"][0]["entry"]["index"].is_u64(), "{reply}");
    let body =
        json!({ "prompt": PROMPT, "allowed_sequences": "animals", "stream": false, "max_new_tokens": 8 });
    let output = answer("/rsgen/v1/generate", &body);
    assert_eq!(output["entries"][0]["payload"]["id"].as_u64().unwrap() - 100, output["entries"][0]["index"]);
    let body = with(&body, json!({ "stream": true }));
    let (_, _, text) = WITH_CATALOGUE.request("POST", "/rsgen/v1/generate", body.to_string());
    let finish = events_of("/rsgen/v1/generate", &text).pop().unwrap();
    assert_eq!(finish["rows"][0]["entry"], output["entries"][0]);
}

#[test]
fn a_name_that_is_no_catalogue_is_refused() {
    let refused = |server: &Server| {
        let (status, _, text) = server.request(
            "POST",
            "/v1/completions",
            body(json!({ "allowed_sequences": "plants" })).to_string(),
        );
        let error: Value = serde_json::from_str(&text).unwrap();
        (status, error["error"]["param"].clone(), error["error"]["message"].as_str().unwrap().to_owned())
    };
    let (status, param, message) = refused(&WITH_CATALOGUE);
    assert_eq!((status, param), (StatusCode::BAD_REQUEST, json!("allowed_sequences")));
    assert!(message.contains("must be one of \"animals\"") && message.contains("is \"plants\""), "{message}");
    assert!(refused(&SERVER).2.contains("which has none"));
}
