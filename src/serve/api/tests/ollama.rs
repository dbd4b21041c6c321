//! Ollama's routes against OpenAI's, which they are translated to.

use serde_json::{Value, json};

use super::tools::WITH_TOOLS;
use super::*;
use crate::generator::Pooling;

fn hello(options: &Value) -> Value {
    let options = with(&json!({ "num_predict": 8 }), options.clone());
    json!({ "messages": [{ "role": "user", "content": "Tell me a story." }], "options": options })
}

/// The lines of a stream.
fn lines(server: &Server, path: &str, body: &Value) -> Vec<Value> {
    let (status, headers, text) = server.request("POST", path, body.to_string());
    assert_eq!(
        (status, &headers["content-type"] == "application/x-ndjson"),
        (StatusCode::OK, true),
        "{text}"
    );
    assert!(text.ends_with('\n'));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn whole(server: &Server, path: &str, body: &Value) -> Value {
    let (status, _, text) = server.request("POST", path, with(body, json!({ "stream": false })).to_string());
    assert_eq!(status, 200, "{text}");
    serde_json::from_str(&text).unwrap()
}

/// The content of a whole answer, which the lines of a stream have together.
fn content(server: &Server, path: &str, body: &Value) -> Value {
    let whole = whole(server, path, body);
    let lines = lines(server, path, body);
    let text =
        |line: &Value| line["message"]["content"].as_str().or(line["response"].as_str()).unwrap().to_owned();
    assert_eq!(lines.iter().map(text).collect::<String>(), text(&whole), "{body}");
    let (last, before) = lines.split_last().unwrap();
    assert!(before.iter().all(|line| line["done"] == false && line["model"] == whole["model"]), "{lines:?}");
    for answer in [last, &whole] {
        assert_eq!(answer["done"], true);
        for name in ["total_duration", "load_duration", "prompt_eval_duration", "eval_duration"] {
            assert!(answer[name].is_u64(), "{name}: {answer}");
        }
        assert!(answer["created_at"].as_str().unwrap().ends_with('Z'));
    }
    for name in ["done_reason", "prompt_eval_count", "eval_count"] {
        assert_eq!(last[name], whole[name], "{name}");
    }
    whole
}

#[test]
fn a_chat_is_that_of_openai_with_the_options_of_ollama() {
    for (options, same) in [
        (json!({ "temperature": 0 }), json!({ "temperature": 0 })),
        (json!({ "seed": 4 }), json!({ "seed": 4, "temperature": 0.8, "top_k": 40, "top_p": 0.9 })),
        (
            json!({ "seed": 4, "temperature": 1.5, "top_k": 5, "top_p": 0.5, "min_p": 0.01, "repeat_penalty": 1.2, "repeat_last_n": -1 }),
            json!({ "seed": 4, "temperature": 1.5, "top_k": 5, "top_p": 0.5, "min_p": 0.01, "repetition_penalty": 1.2 }),
        ),
        (
            json!({ "seed": 4, "presence_penalty": 0.5, "frequency_penalty": 0.2, "typical_p": 0.9 }),
            json!({ "seed": 4, "presence_penalty": 0.5, "frequency_penalty": 0.2, "typical_p": 0.9, "temperature": 0.8, "top_k": 40, "top_p": 0.9 }),
        ),
        (json!({ "num_beams": 3 }), json!({ "num_beams": 3 })),
        (json!({ "temperature": 0, "stop": [" a"] }), json!({ "temperature": 0, "stop": [" a"] })),
        (
            json!({ "temperature": 0, "num_ctx": 4096, "num_gpu": 1, "mirostat": 0, "tfs_z": 1.0, "num_thread": 4, "repeat_last_n": 64 }),
            json!({ "temperature": 0 }),
        ),
        (json!({ "temperature": 0, "repeat_penalty": 1.3, "repeat_last_n": 0 }), json!({ "temperature": 0 })),
    ] {
        let body = hello(&options);
        let answer = content(&SERVER, "/api/chat", &body);
        let messages = json!({ "messages": body["messages"], "max_tokens": 8 });
        let chat = ok("/v1/chat/completions", &with(&messages, same));
        let choice = &chat["choices"][0];
        let expected = json!({ "role": "assistant", "content": choice["message"]["content"] });
        assert_eq!(answer["message"], expected, "{options}");
        assert_eq!(answer["done_reason"], choice["finish_reason"]);
        assert_eq!(answer["prompt_eval_count"], chat["usage"]["prompt_tokens"]);
        assert_eq!(answer["eval_count"], chat["usage"]["completion_tokens"]);
    }
    let long = with(
        &hello(&json!({ "temperature": 0 })),
        json!({ "options": { "temperature": 0, "num_predict": -1 } }),
    );
    assert!(
        whole(&SERVER, "/api/chat", &long)["eval_count"].as_u64().unwrap() > 16,
        "the rest of the context"
    );
}

#[test]
fn a_prompt_is_answered_through_the_template_or_as_it_is() {
    let options = json!({ "temperature": 0, "num_predict": 20 });
    let body = json!({ "prompt": "Tell me a story.", "system": "Be brief.", "options": options });
    let answer = content(&SERVER, "/api/generate", &body);
    let messages = json!([{ "role": "system", "content": "Be brief." }, { "role": "user", "content": "Tell me a story." }]);
    let chat =
        ok("/v1/chat/completions", &json!({ "messages": messages, "max_tokens": 20, "temperature": 0 }));
    assert_eq!(answer["response"], chat["choices"][0]["message"]["content"]);
    let raw =
        content(&SERVER, "/api/generate", &json!({ "prompt": PROMPT, "raw": true, "options": options }));
    let completion = ok("/v1/completions", &json!({ "prompt": PROMPT, "max_tokens": 20, "temperature": 0 }));
    assert_eq!(raw["response"], completion["choices"][0]["text"]);
    let unlimited =
        json!({ "prompt": PROMPT, "raw": true, "options": { "temperature": 0, "eos_token_id": [] } });
    let all = whole(&SERVER, "/api/generate", &unlimited);
    let total = all["prompt_eval_count"].as_u64().unwrap() + all["eval_count"].as_u64().unwrap();
    assert_eq!((total, &all["done_reason"]), (512, &json!("length")), "the whole context");
    for (path, body) in [
        ("/api/generate", json!({})),
        ("/api/generate", json!({ "prompt": "", "keep_alive": "10m" })),
        ("/api/chat", json!({ "messages": [] })),
    ] {
        let (status, answer) = post(path, &body);
        assert_eq!(
            (status.as_u16(), &answer["done"], &answer["done_reason"]),
            (200, &json!(true), &json!("load"))
        );
    }
    for time in [json!(0), json!("0s"), json!("0")] {
        assert_eq!(ok("/api/generate", &json!({ "keep_alive": time }))["done_reason"], "unload");
    }
}

#[test]
fn formats_hold_an_answer_to_json() {
    let options = json!({ "temperature": 0, "num_predict": 40 });
    let schema = json!({ "type": "object", "properties": { "a": { "enum": [1, 2] } }, "required": ["a"], "additionalProperties": false });
    let body = json!({ "prompt": "Hi", "format": schema, "options": options });
    let answer = content(&SERVER, "/api/generate", &body);
    let value: Value = serde_json::from_str(answer["response"].as_str().unwrap()).unwrap();
    assert!(value["a"] == 1 || value["a"] == 2, "{answer}");
    let body = with(&hello(&json!({ "temperature": 0 })), json!({ "format": "json" }));
    assert!(
        whole(&SERVER, "/api/chat", &body)["message"]["content"].as_str().unwrap().trim().starts_with('{')
    );
}

#[test]
fn calls_of_tools_are_objects_and_their_results_are_read() {
    let schema = json!({ "type": "object", "properties": { "city": { "enum": ["Bern"] } }, "required": ["city"], "additionalProperties": false });
    let tool = json!({ "type": "function", "function": { "name": "weather", "description": "", "parameters": schema } });
    // The model makes no call by itself: a grammar of the same form makes it.
    let grammar = "start: \"<tool_call>\\n{\\\"name\\\": \\\"weather\\\", \\\"arguments\\\": {\\\"city\\\": \\\"Bern\\\"}}\\n</tool_call>\"";
    let body = with(
        &hello(&json!({ "num_predict": 100, "temperature": 0, "grammar": grammar })),
        json!({ "tools": [tool] }),
    );
    let answer = content(&WITH_TOOLS, "/api/chat", &body);
    let call = json!({ "function": { "name": "weather", "arguments": { "city": "Bern" } } });
    assert_eq!(answer["message"]["tool_calls"], json!([call]), "{answer}");
    assert_eq!(answer["done_reason"], "stop");
    let messages = json!([
        { "role": "user", "content": "a" },
        { "role": "assistant", "content": "", "tool_calls": [call] },
        { "role": "tool", "tool_name": "weather", "content": "sun" },
    ]);
    let body =
        json!({ "messages": messages, "tools": [tool], "options": { "num_predict": 1, "temperature": 0 } });
    let answer = whole(&WITH_TOOLS, "/api/chat", &body);
    let function = json!({ "name": "weather", "arguments": "{\"city\":\"Bern\"}" });
    let same = json!({ "messages": [
        { "role": "user", "content": "a" },
        { "role": "assistant", "content": "", "tool_calls": [{ "id": "call00001", "type": "function", "function": function }] },
        { "role": "tool", "tool_call_id": "call00001", "name": "weather", "content": "sun" },
    ], "tools": [tool] });
    let (_, _, text) = WITH_TOOLS.request("POST", "/tokenize", same.to_string());
    assert_eq!(answer["prompt_eval_count"], serde_json::from_str::<Value>(&text).unwrap()["count"]);
}

#[test]
fn vectors_are_those_of_the_library() {
    let texts = ["Tom had a dog.", "It rained all day."];
    let expected = SERVER.generator.embed_texts(texts, Pooling::Mean, -1, true, &mut || false).unwrap();
    let answer = ok("/api/embed", &json!({ "input": texts, "keep_alive": 5, "options": { "num_ctx": 10 } }));
    let found: Vec<Vec<f32>> = serde_json::from_value(answer["embeddings"].clone()).unwrap();
    assert_eq!(found, expected);
    assert!(answer["prompt_eval_count"].as_u64().unwrap() > 5 && answer["total_duration"].is_u64());
    let one = ok("/api/embed", &json!({ "input": texts[0], "dimensions": 3 }));
    assert_eq!(one["embeddings"][0].as_array().unwrap().len(), 3);
    let long = "word ".repeat(600);
    assert_eq!(ok("/api/embed", &json!({ "input": long }))["prompt_eval_count"], 512);
    let (status, answer) = post("/api/embed", &json!({ "input": long, "truncate": false }));
    let error = answer["error"].as_str().unwrap();
    assert!(
        status == 400 && error.contains("the context holds 512; shorten it, or set `truncate`"),
        "{answer}"
    );
}

#[test]
fn models_are_listed_and_described() {
    let (_, models) = get("/v1/models");
    let id = models["data"][0]["id"].as_str().unwrap();
    let (status, tags) = get("/api/tags");
    let model = &tags["models"][0];
    assert_eq!((status.as_u16(), &model["name"], &model["model"]), (200, &json!(id), &json!(id)));
    assert!(model["size"].as_u64().unwrap() > 1000 && model["digest"].is_string(), "{model}");
    assert_eq!(get("/api/version").1["version"], env!("CARGO_PKG_VERSION"));
    for name in [json!({ "model": id }), json!({ "name": format!("{id}:latest") }), json!({})] {
        let shown = ok("/api/show", &name);
        let family = shown["details"]["family"].as_str().unwrap();
        assert_eq!(shown["model_info"][format!("{family}.context_length")], 512);
        assert!(shown["template"].as_str().unwrap().contains("messages"));
        assert_eq!(shown["capabilities"], json!(["completion", "embedding"]), "its template shows no tools");
    }
    let (_, _, text) = WITH_TOOLS.request("POST", "/api/show", "{}".to_owned());
    let shown: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(shown["capabilities"], json!(["completion", "embedding", "tools"]));
    let body = with(&hello(&json!({ "num_predict": 1 })), json!({ "model": format!("{id}:latest") }));
    assert_eq!(whole(&SERVER, "/api/chat", &body)["model"], id);
}

#[test]
fn errors_are_texts_that_name_what_is_wrong() {
    let options = |options: Value| json!({ "options": options });
    let message = |message: Value| json!({ "messages": [{ "role": "user", "content": "a" }, message] });
    for (fields, words) in [
        (options(json!({ "num_predict": 0 })), "`options.num_predict` must be"),
        (options(json!({ "num_predict": "x" })), "`options.num_predict` must be"),
        (options(json!({ "num_predict": 9999 })), "`options.num_predict` asks for"),
        (options(json!({ "temperature": -1 })), "`options.temperature` must be"),
        (options(json!({ "top_k": "x" })), "`options.top_k` must be"),
        (options(json!({ "top_p": 2 })), "`options.top_p` must be"),
        (options(json!({ "min_p": [] })), "`options.min_p` must be"),
        (options(json!({ "repeat_penalty": "x" })), "`options.repeat_penalty` must be"),
        (
            options(json!({ "repeat_penalty": 1.1, "repeat_last_n": 64 })),
            "`options.repeat_last_n` must be -1 or 0",
        ),
        (options(json!({ "seed": 1.5 })), "`options.seed` must be"),
        (options(json!({ "stop": 5 })), "`options.stop` must be"),
        (options(json!({ "num_ctx": 0 })), "`options.num_ctx` must be"),
        (options(json!({ "mirostat": 2 })), "`options.mirostat` is not supported"),
        (options(json!({ "tfs_z": 0.5 })), "`options.tfs_z` is not supported"),
        (options(json!({ "num_return_sequences": 2 })), "`options.num_return_sequences` must be 1"),
        (options(json!({ "num_beams": 0 })), "`num_beams` must be"),
        (options(json!(5)), "`options` must be"),
        (json!({ "format": "xml" }), "`format` must be \"json\""),
        (json!({ "format": { "not": {} } }), "`format`"),
        (json!({ "think": true }), "`think` asks for thinking, but"),
        (json!({ "stream": "yes" }), "`stream` must be"),
        (json!({ "keep_alive": [] }), "`keep_alive` must be"),
        (message(json!({ "content": "b" })), "`messages[1]` must have a `role`"),
        (message(json!({ "role": "user", "content": 5 })), "`messages[1]` must have `content`"),
        (
            message(json!({ "role": "user", "content": "b", "images": ["aGk="] })),
            "`messages[1].images` holds images",
        ),
        (
            message(json!({ "role": "assistant", "tool_calls": [{}] })),
            "`messages[1].tool_calls[0]` must have",
        ),
        (message(json!({ "role": "assistant", "tool_calls": 5 })), "`messages[1]` must have `tool_calls`"),
        (json!({ "tools": [{ "type": "function" }] }), "`tools"),
        (json!({ "mirostat": 1 }), "`mirostat` is not supported"),
    ] {
        let (status, answer) = post("/api/chat", &with(&hello(&json!({})), fields.clone()));
        assert_eq!(status, 400, "{fields}: {answer}");
        assert!(answer["error"].as_str().unwrap_or_default().contains(words), "{words}: {answer}");
    }
    for (path, body, status, words) in [
        ("/api/generate", json!({ "prompt": "a", "images": ["aGk="] }), 400, "`images` holds images"),
        ("/api/generate", json!({ "prompt": "a", "suffix": "b" }), 400, "`suffix` is not supported"),
        ("/api/generate", json!({ "prompt": "a", "template": "b" }), 400, "`template` is not supported"),
        ("/api/generate", json!({ "prompt": "a", "context": [1] }), 400, "`context` is not supported"),
        (
            "/api/generate",
            json!({ "prompt": "a", "raw": true, "system": "b" }),
            400,
            "`system` needs a template",
        ),
        ("/api/embed", json!({}), 400, "`input` is missing"),
        ("/api/show", json!({ "model": "other" }), 404, "is not served here"),
        ("/api/chat", json!({ "model": "other", "messages": [] }), 404, "is not served here"),
    ] {
        let (found, answer) = post(path, &body);
        assert_eq!(found.as_u16(), status, "{path}: {answer}");
        assert!(answer["error"].as_str().unwrap_or_default().contains(words), "{words}: {answer}");
    }
    let body = hello(&json!({ "no_such": 1, "temperature": 0 }));
    let (status, headers, _) = SERVER.request("POST", "/api/chat", body.to_string());
    assert_eq!((status.as_u16(), headers["x-rsgen-ignored"].to_str().unwrap()), (200, "options.no_such"));
    let strict = Server::new(ServeOptions { strict_api: true, ..ServeOptions::default() });
    let (status, _, text) = strict.request("POST", "/api/chat", body.to_string());
    assert!(status == 400 && text.contains("`options.no_such` is not a field"), "{text}");
    // What fails on the way is the last line.
    let body = hello(&json!({ "sequence_bias": [[[5, 6], -1.5], [[3], 1e300]] }));
    let lines = lines(&SERVER, "/api/chat", &body);
    assert!(lines.last().unwrap()["error"].as_str().unwrap().contains("`sequence_bias`"), "{lines:?}");
}
