//! Models with an adapter, which requests name as `base:adapter` or by the adapter's name.

use super::*;
use crate::generator::Call;

static WITH_ADAPTER: LazyLock<Server> = LazyLock::new(|| {
    let server = Server::new(ServeOptions::default());
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/adapters/story");
    server.generator.load_adapter(folder, "other", None, &mut || false).unwrap();
    server
});

fn answer(path: &str, body: &Value) -> (StatusCode, Value) {
    let (status, _, text) = WITH_ADAPTER.request("POST", path, body.to_string());
    (status, serde_json::from_str(&text).unwrap())
}

fn base() -> String {
    ok("/v1/completions", &json!({ "prompt": "a", "max_tokens": 1 }))["model"].as_str().unwrap().to_owned()
}

#[test]
fn a_model_with_an_adapter_answers_with_it() {
    let base = base();
    let expected = |adapter: Option<&str>| {
        let call = WITH_ADAPTER.generator.call("Once upon a time");
        let call = adapter.into_iter().fold(call, Call::adapter);
        let output = call.config(&GenerationConfig::new().max_new_tokens(12)).run().unwrap();
        output.text().to_owned()
    };
    assert_ne!(expected(None), expected(Some("other")));
    for (model, adapter) in
        [(base.clone(), None), (format!("{base}:other"), Some("other")), ("other".to_owned(), Some("other"))]
    {
        let body =
            json!({ "model": model, "prompt": "Once upon a time", "max_tokens": 12, "temperature": 0 });
        let (status, found) = answer("/v1/completions", &body);
        assert_eq!((status, &found["choices"][0]["text"]), (StatusCode::OK, &json!(expected(adapter))));
        assert_eq!(
            found["model"],
            json!(if adapter.is_some() { format!("{base}:other") } else { base.clone() })
        );
        let (_, _, text) = WITH_ADAPTER.request(
            "POST",
            "/v1/completions",
            with(&body, json!({ "stream": true })).to_string(),
        );
        let pieces = events_of("/v1/completions", &text);
        let text: String = pieces.iter().filter_map(|piece| piece["choices"][0]["text"].as_str()).collect();
        assert_eq!(text, expected(adapter));
        let body =
            json!({ "model": model, "prompt": "Once upon a time", "max_new_tokens": 12, "stream": false });
        let (_, found) = answer("/rsgen/v1/generate", &body);
        assert!(found.to_string().contains(&json!(expected(adapter)).to_string()), "{found}");
    }
}

#[test]
fn models_are_listed_with_each_adapter() {
    let base = base();
    let id = format!("{base}:other");
    let (_, _, text) = WITH_ADAPTER.request("GET", "/v1/models", String::new());
    let all: Value = serde_json::from_str(&text).unwrap();
    let ids: Vec<&Value> = all["data"].as_array().unwrap().iter().map(|model| &model["id"]).collect();
    assert_eq!(ids, [&json!(base), &json!(id)]);
    for name in [&id, "other"] {
        let (status, _, text) = WITH_ADAPTER.request("GET", &format!("/v1/models/{name}"), String::new());
        let model: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((status, &model["id"], &model["parent"]), (StatusCode::OK, &json!(id), &json!(base)));
    }
    let body = json!({ "model": format!("{base}:none"), "prompt": "a" });
    let (status, found) = answer("/v1/completions", &body);
    assert_eq!((status, &found["error"]["code"]), (StatusCode::NOT_FOUND, &json!("model_not_found")));
    assert!(found["error"]["message"].as_str().unwrap().contains(&id), "{found}");
}

#[test]
fn prompts_are_scored_with_the_adapter() {
    let scores = |generator: &Generator| generator.score("Once upon a time").unwrap();
    let adapted = scores(&WITH_ADAPTER.generator.with_adapter("other").unwrap());
    assert_ne!(adapted, scores(&WITH_ADAPTER.generator));
    let body = json!({ "model": "other", "prompt": "Once upon a time", "max_tokens": 1, "echo": true, "logprobs": 0 });
    let (status, found) = answer("/v1/completions", &body);
    assert_eq!(status, StatusCode::OK, "{found}");
    let logprobs = found["choices"][0]["logprobs"]["token_logprobs"].as_array().unwrap();
    for (found, expected) in logprobs[1..].iter().zip(&adapted[1..]) {
        assert!((found.as_f64().unwrap() - f64::from(*expected)).abs() < 1e-5, "{found} {expected}");
    }
}

#[test]
fn texts_have_the_vectors_of_the_adapter() {
    let base = base();
    let adapted = WITH_ADAPTER.generator.with_adapter("other").unwrap();
    let vectors = |generator: &Generator| {
        generator
            .embed_texts(["Tom had a dog."], crate::generator::Pooling::Last, -1, true, &mut || false)
            .unwrap()
    };
    assert_ne!(vectors(&adapted), vectors(&WITH_ADAPTER.generator));
    for (model, generator) in [
        (base.clone(), &WITH_ADAPTER.generator),
        (format!("{base}:other"), &adapted),
        ("other".to_owned(), &adapted),
    ] {
        let body = json!({ "model": model, "input": "Tom had a dog.", "pooling": "last" });
        let (status, found) = answer("/v1/embeddings", &body);
        let vector: Vec<f32> = serde_json::from_value(found["data"][0]["embedding"].clone()).unwrap();
        assert_eq!((status, vector), (StatusCode::OK, vectors(generator).remove(0)));
        let body = json!({ "model": model, "query": "a", "documents": ["b"] });
        let (status, ranked) = answer("/v1/rerank", &body);
        assert_eq!((status, &ranked["model"]), (StatusCode::OK, &found["model"]));
    }
}
