//! The thinking of chats over HTTP: a budget ends it, since the bundled model would not, and a grammar says the answer.

use serde_json::{Value, json};

use super::tools::server;
use super::*;

const PATH: &str = "/v1/chat/completions";

/// Its prompt begins the thinking unless it is told not to, as that of Qwen3.
const TEMPLATE: &str = "{{ bos_token }}{% if tools %}{{ tools | tojson }}<tool_call>{% endif %}{% for m in messages %}\
    {{ m.role }}: {% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}\
    {% endfor %}{{ reasoning_effort }}{% if add_generation_prompt %}<|assistant|><think>\n\
    {% if enable_thinking is false %}\n</think>\n\n{% endif %}{% endif %}";

/// Harmony, with the thinking begun.
const HARMONY: &str = "{% if tools %}{{ tools | tojson }}functions.{% endif %}{% for m in messages %}<|start|>{{ m.role }}\
    <|message|>{{ m.content }}<|end|>{% endfor %}<|start|>assistant<|channel|>analysis<|message|>";

pub(super) static THINKS: LazyLock<Server> = LazyLock::new(|| server(TEMPLATE, None, None));

fn body(fields: Value) -> Value {
    let body = json!({
        "messages": [{ "role": "user", "content": "Two and two?" }],
        "temperature": 0, "max_tokens": 40, "thinking_token_budget": 5,
        "structured_outputs": { "regex": " ?Four[.]" },
    });
    with(&body, fields)
}

fn answer(server: &Server, fields: Value) -> Value {
    let (status, _, text) = server.request("POST", PATH, body(fields).to_string());
    assert_eq!(status, 200, "{text}");
    serde_json::from_str(&text).unwrap()
}

/// The thinking, the answer and the arguments of calls of a stream, in the order in which they came.
fn streamed(server: &Server, fields: &Value) -> (Vec<(&'static str, String)>, Value) {
    let body = body(with(fields, json!({ "stream": true, "stream_options": { "include_usage": true } })));
    let (_, _, text) = server.request("POST", PATH, body.to_string());
    let events = events_of(PATH, &text);
    let mut parts: Vec<(&str, String)> = Vec::new();
    for event in &events {
        let delta = &event["choices"][0]["delta"];
        assert!(delta["content"].is_null() || delta["reasoning_content"].is_null(), "{delta}");
        assert_eq!(delta["reasoning_content"], delta["reasoning"], "{delta}");
        let call = &delta["tool_calls"][0]["function"]["arguments"];
        for (kind, value) in
            [("thinking", &delta["reasoning"]), ("answer", &delta["content"]), ("call", call)]
        {
            let Some(text) = value.as_str().filter(|text| !text.is_empty()) else { continue };
            match parts.last_mut() {
                Some((last, before)) if *last == kind => before.push_str(text),
                _ => parts.push((kind, text.to_owned())),
            }
        }
    }
    (parts, events.last().unwrap()["usage"].clone())
}

#[test]
fn thinking_comes_before_the_answer_and_is_none_of_it() {
    for fields in
        [json!({}), json!({ "do_sample": true, "temperature": 1.0, "seed": 3 }), json!({ "num_beams": 3 })]
    {
        let whole = answer(&THINKS, fields.clone());
        let message = &whole["choices"][0]["message"];
        assert_eq!(message["content"], "Four.", "{whole}");
        let thought = message["reasoning_content"].as_str().unwrap();
        assert!(!thought.is_empty() && !thought.contains("think>"), "{whole}");
        assert_eq!(message["reasoning"], message["reasoning_content"]);
        assert_eq!(whole["choices"][0]["finish_reason"], "stop");
        let (parts, usage) = streamed(&THINKS, &fields);
        assert_eq!(parts, [("thinking", thought.to_owned()), ("answer", "Four.".to_owned())], "{fields}");
        assert_eq!(usage["completion_tokens_details"], whole["usage"]["completion_tokens_details"]);
        let thinking = usage["completion_tokens_details"]["reasoning_tokens"].as_u64().unwrap();
        assert!((5..usage["completion_tokens"].as_u64().unwrap()).contains(&thinking), "{usage}");
    }
    let several = answer(&THINKS, json!({ "n": 3, "do_sample": true, "temperature": 1.0, "seed": 1 }));
    for choice in several["choices"].as_array().unwrap() {
        assert_eq!(choice["message"]["content"], "Four.", "{several}");
    }
}

#[test]
fn a_reply_that_was_cut_within_its_thinking_says_nothing() {
    let cut = answer(&THINKS, json!({ "max_tokens": 3 }));
    let choice = &cut["choices"][0];
    assert_eq!((&choice["message"]["content"], &choice["finish_reason"]), (&Value::Null, &json!("length")));
    assert!(choice["message"]["reasoning_content"].is_string(), "{cut}");
    // A stop string ends thinking as it ends an answer.
    let thought = choice["message"]["reasoning_content"].as_str().unwrap();
    let stop = thought.trim().chars().last().unwrap().to_string();
    let stopped = answer(&THINKS, json!({ "stop": stop }));
    assert_eq!(stopped["choices"][0]["finish_reason"], "stop");
    assert!(stopped["choices"][0]["message"]["content"].is_null(), "{stopped}");
}

#[test]
fn the_template_says_whether_and_how_much_it_thinks() {
    let silent = answer(&THINKS, json!({ "chat_template_kwargs": { "enable_thinking": false } }));
    let message = &silent["choices"][0]["message"];
    assert_eq!(message["content"], "Four.", "{silent}");
    assert!(message.get("reasoning_content").is_none() && message.get("reasoning").is_none(), "{silent}");
    assert!(silent["usage"].get("completion_tokens_details").is_none(), "{silent}");
    let prompt = |fields: Value| {
        let body = with(&json!({ "messages": [{ "role": "user", "content": "Hi" }] }), fields);
        let (status, _, text) = THINKS.request("POST", "/apply-template", body.to_string());
        assert_eq!(status, 200, "{text}");
        serde_json::from_str::<Value>(&text).unwrap()["prompt"].as_str().unwrap().to_owned()
    };
    assert!(prompt(json!({ "reasoning_effort": "low" })).contains("Hilow<|assistant|>"));
    assert!(!prompt(json!({})).contains("low"));
    let both = json!({ "reasoning_effort": "low", "chat_template_kwargs": { "reasoning_effort": "high" } });
    assert!(prompt(both).contains("Hihigh<|assistant|>"));
    let said = json!({ "messages": [{ "role": "assistant", "content": "Hi", "reasoning_content": "So." }] });
    assert!(prompt(said).contains("assistant: <think>So.</think>Hi"));
}

#[test]
fn calls_come_after_the_thinking() {
    let parameters =
        json!({ "type": "object", "properties": { "x": { "enum": [1, 2] } }, "required": ["x"] });
    let tool = json!({ "type": "function", "function": { "name": "f", "parameters": parameters } });
    let fields = json!({
        "tools": [tool], "tool_choice": "required", "parallel_tool_calls": false, "structured_outputs": null,
        "max_tokens": 120,
    });
    let harmony = server(HARMONY, None, None);
    for server in [&THINKS, &harmony] {
        let whole = answer(server, fields.clone());
        let choice = &whole["choices"][0];
        assert_eq!(
            (&choice["message"]["content"], &choice["finish_reason"]),
            (&Value::Null, &json!("tool_calls"))
        );
        let call = &choice["message"]["tool_calls"][0]["function"];
        assert_eq!(call["name"], "f", "{whole}");
        let arguments = call["arguments"].as_str().unwrap().to_owned();
        assert!(serde_json::from_str::<Value>(&arguments).unwrap()["x"].is_u64(), "{whole}");
        let thought = choice["message"]["reasoning_content"].as_str().unwrap().to_owned();
        assert!(!thought.contains("<|"), "{whole}");
        assert_eq!(streamed(server, &fields).0, [("thinking", thought), ("call", arguments)]);
    }
    // An answer of harmony has a head, which a grammar leads to.
    let fields = json!({ "max_tokens": 100, "structured_outputs": { "regex": "Four[.]" } });
    let whole = answer(&harmony, fields);
    assert_eq!(whole["choices"][0]["message"]["content"], "Four.", "{whole}");
}

#[test]
fn a_form_that_is_named_counts_and_none_leaves_all_in_the_answer() {
    let none = server(TEMPLATE, None, Some("none"));
    let whole = answer(&none, json!({ "thinking_token_budget": null }));
    let content = whole["choices"][0]["message"]["content"].as_str().unwrap();
    assert_eq!(content.trim(), "Four.", "the grammar holds the first token");
    assert!(whole["choices"][0]["message"].get("reasoning").is_none());
    let (status, _, text) = none.request("POST", PATH, body(json!({})).to_string());
    assert_eq!(status, 400);
    assert!(text.contains("`thinking_token_budget` needs the tokens that end"), "{text}");
    let plain = "{{ messages[0].content }}";
    let always = server(plain, None, Some("deepseek_r1"));
    let whole = answer(&always, json!({}));
    assert_eq!(whole["choices"][0]["message"]["content"], "Four.", "{whole}");
    assert!(whole["choices"][0]["message"]["reasoning"].is_string(), "{whole}");
    let options = ServeOptions { reasoning_parser: Some("other".to_owned()), ..ServeOptions::default() };
    let error = router_with(THINKS.generator.clone(), options).unwrap_err().to_string();
    assert!(error.contains("`reasoning_parser` must be one of"), "{error}");
}
