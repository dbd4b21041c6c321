//! Anthropic's routes against OpenAI's, which they are translated to.

use serde_json::{Value, json};

use super::tools::WITH_TOOLS;
use super::*;

const PATH: &str = "/v1/messages";

fn hello() -> Value {
    json!({ "messages": [{ "role": "user", "content": "Tell me a story." }], "max_tokens": 8 })
}

/// The events of a stream, each of which has the name of its type.
fn stream(server: &Server, body: &Value) -> Vec<Value> {
    let body = with(body, json!({ "stream": true }));
    let (status, headers, text) = server.request("POST", PATH, body.to_string());
    assert_eq!((status, &headers["content-type"] == "text/event-stream"), (StatusCode::OK, true), "{text}");
    let event = |event: &str| {
        let (name, data) = event.strip_prefix("event: ").unwrap().split_once("\ndata: ").unwrap();
        let data: Value = serde_json::from_str(data).unwrap();
        assert_eq!(data["type"], name);
        data
    };
    text.split_terminator("\n\n").map(event).collect()
}

/// The message that the events of a stream make, as Anthropic's client puts it together.
fn joined(events: &[Value]) -> Value {
    let mut message = events[0]["message"].clone();
    let mut inputs: Vec<String> = Vec::new();
    for event in &events[1..] {
        let index = event["index"].as_u64().unwrap_or_default() as usize;
        match event["type"].as_str().unwrap() {
            "content_block_start" => {
                assert_eq!(index, inputs.len());
                message["content"].as_array_mut().unwrap().push(event["content_block"].clone());
                inputs.push(String::new());
            }
            "content_block_delta" => match event["delta"]["type"].as_str().unwrap() {
                "text_delta" => {
                    let text = &mut message["content"][index]["text"];
                    *text = format!("{}{}", text.as_str().unwrap(), event["delta"]["text"].as_str().unwrap())
                        .into();
                }
                _ => inputs[index].push_str(event["delta"]["partial_json"].as_str().unwrap()),
            },
            "content_block_stop" if message["content"][index]["type"] == "tool_use" => {
                message["content"][index]["input"] = serde_json::from_str(&inputs[index]).unwrap();
            }
            "message_delta" => {
                message["stop_reason"] = event["delta"]["stop_reason"].clone();
                message["stop_sequence"] = event["delta"]["stop_sequence"].clone();
                message["usage"] = event["usage"].clone();
            }
            _ => {}
        }
    }
    message
}

#[test]
fn a_message_is_the_reply_of_a_chat_whole_and_in_events() {
    for (fields, same) in [
        (json!({ "temperature": 0 }), json!({ "temperature": 0 })),
        (json!({ "seed": 4, "top_p": 0.9, "top_k": 20 }), json!({ "seed": 4, "top_p": 0.9, "top_k": 20 })),
        (json!({ "rsgen": { "num_beams": 3 } }), json!({ "num_beams": 3 })),
        (json!({ "temperature": 0, "stop_sequences": [" a"] }), json!({ "temperature": 0, "stop": [" a"] })),
        (
            json!({ "temperature": 0, "metadata": { "user_id": "x" }, "thinking": { "type": "disabled" } }),
            json!({ "temperature": 0 }),
        ),
    ] {
        let body = with(&hello(), fields.clone());
        let message = ok(PATH, &body);
        let chat = ok("/v1/chat/completions", &with(&hello(), same));
        let choice = &chat["choices"][0];
        let text = choice["message"]["content"].as_str().unwrap();
        let expected = if text.is_empty() { json!([]) } else { json!([{ "type": "text", "text": text }]) };
        assert_eq!(message["content"], expected, "{fields}");
        assert_eq!((&message["type"], &message["role"]), (&json!("message"), &json!("assistant")));
        let (reason, sequence) = match (choice["finish_reason"].as_str().unwrap(), &choice["stop_reason"]) {
            ("length", _) => ("max_tokens", Value::Null),
            (_, Value::String(text)) => ("stop_sequence", json!(text)),
            _ => ("end_turn", Value::Null),
        };
        assert_eq!((&message["stop_reason"], &message["stop_sequence"]), (&json!(reason), &sequence));
        let usage = &message["usage"];
        let input =
            usage["input_tokens"].as_u64().unwrap() + usage["cache_read_input_tokens"].as_u64().unwrap();
        assert_eq!(
            (input, &usage["output_tokens"]),
            (chat["usage"]["prompt_tokens"].as_u64().unwrap(), &chat["usage"]["completion_tokens"])
        );
        let events = stream(&SERVER, &body);
        let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
        assert_eq!(kinds[..2], ["message_start", "ping"]);
        assert_eq!(kinds[kinds.len() - 2..], ["message_delta", "message_stop"]);
        assert_eq!(events[0]["message"]["usage"]["output_tokens"], 0);
        let joined = joined(&events);
        for name in ["content", "stop_reason", "stop_sequence", "model", "role"] {
            assert_eq!(joined[name], message[name], "{fields}: {name}");
        }
        assert_eq!(joined["usage"]["output_tokens"], usage["output_tokens"]);
    }
    let body = with(
        &hello(),
        json!({ "output_config": { "format": {
        "type": "json_schema", "schema": { "type": "object", "properties": { "a": { "enum": [1, 2] } }, "required": ["a"], "additionalProperties": false },
    } }, "temperature": 0, "max_tokens": 30 }),
    );
    let text = ok(PATH, &body)["content"][0]["text"].as_str().unwrap().to_owned();
    let value: Value = serde_json::from_str(&text).unwrap();
    assert!(value["a"] == 1 || value["a"] == 2, "{text}");
}

/// What the template of the server with tools makes of a conversation, as the count of its tokens and as text.
fn prompt(fields: &Value, same: &Value) -> (u64, String) {
    let ask = |path: &str, body: &Value| {
        let (status, _, text) = WITH_TOOLS.request("POST", path, body.to_string());
        assert_eq!(status, 200, "{text}");
        serde_json::from_str::<Value>(&text).unwrap()
    };
    let count = ask("/v1/messages/count_tokens", fields)["input_tokens"].as_u64().unwrap();
    assert_eq!(ask("/tokenize", same)["count"], count, "{fields}");
    let message = ask(PATH, &with(fields, json!({ "max_tokens": 1, "temperature": 0 })));
    let usage = &message["usage"];
    assert_eq!(
        usage["input_tokens"].as_u64().unwrap() + usage["cache_read_input_tokens"].as_u64().unwrap(),
        count
    );
    (count, ask("/apply-template", same)["prompt"].as_str().unwrap().to_owned())
}

#[test]
fn a_conversation_is_the_same_prompt_as_one_of_openai() {
    let tool =
        json!({ "name": "f", "description": "d", "input_schema": { "type": "object", "properties": {} } });
    let same_tool = json!({ "type": "function", "function": { "name": "f", "description": "d", "parameters": tool["input_schema"] } });
    let text = |text: &str| json!({ "type": "text", "text": text, "cache_control": { "type": "ephemeral" } });
    let fields = json!({
        "system": [text("Be"), text("brief")],
        "messages": [
            { "role": "user", "content": [text("a")] },
            { "role": "user", "content": "b" },
            { "role": "assistant", "content": [
                { "type": "thinking", "thinking": "hm", "signature": "" }, text("c"),
                { "type": "tool_use", "id": "call00001", "name": "f", "input": { "x": 1 } },
            ] },
            { "role": "user", "content": [
                { "type": "tool_result", "tool_use_id": "call00001", "content": [text("sun")] },
                { "type": "tool_result", "tool_use_id": "call00002" },
                text("d"),
            ] },
        ],
        "tools": [tool],
    });
    let call = json!({ "id": "call00001", "type": "function", "function": { "name": "f", "arguments": "{\"x\":1}" } });
    let same = json!({
        "messages": [
            { "role": "system", "content": "Be\nbrief" },
            { "role": "user", "content": "a\nb" },
            { "role": "assistant", "content": "c", "tool_calls": [call] },
            { "role": "tool", "tool_call_id": "call00001", "content": "sun" },
            { "role": "tool", "tool_call_id": "call00002", "content": "" },
            { "role": "user", "content": "d" },
        ],
        "tools": [same_tool],
    });
    let (_, shown) = prompt(&fields, &same);
    assert!(shown.contains("brief") && shown.contains("sun"), "{shown}");
    // A last turn of the model is gone on with.
    let turns = json!([{ "role": "user", "content": "a" }, { "role": "assistant", "content": "Once upon" }]);
    let same = json!({ "messages": turns, "continue_final_message": true, "add_generation_prompt": false });
    let (_, shown) = prompt(&json!({ "messages": turns }), &same);
    assert!(shown.ends_with("Once upon"), "{shown}");
}

#[test]
fn calls_of_tools_are_blocks_whose_input_follows_the_schema() {
    let schema = json!({ "type": "object", "properties": { "city": { "enum": ["Bern", "Rome"] } }, "required": ["city"] });
    let tools = json!([{ "name": "weather", "input_schema": schema }, { "name": "stop", "input_schema": { "type": "object", "properties": {} } }]);
    for choice in [
        json!({ "type": "any", "disable_parallel_tool_use": true }),
        json!({ "type": "tool", "name": "weather", "disable_parallel_tool_use": true }),
    ] {
        let body = with(
            &hello(),
            json!({ "tools": tools, "tool_choice": choice, "temperature": 0, "max_tokens": 100 }),
        );
        let (status, _, text) = WITH_TOOLS.request("POST", PATH, body.to_string());
        assert_eq!(status, 200, "{text}");
        let message: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(message["stop_reason"], "tool_use", "{message}");
        let call = &message["content"][0];
        assert_eq!((&call["type"], message["content"].as_array().unwrap().len()), (&json!("tool_use"), 1));
        if choice["type"] == "tool" {
            assert!(["Bern", "Rome"].iter().any(|city| call["input"]["city"] == *city), "{call}");
        }
        let joined = joined(&stream(&WITH_TOOLS, &body));
        for name in ["name", "input"] {
            assert_eq!(joined["content"][0][name], call[name]);
        }
        assert_eq!(joined["stop_reason"], "tool_use");
    }
    let body = with(
        &hello(),
        json!({ "tools": tools, "tool_choice": { "type": "any" }, "temperature": 0, "max_tokens": 3 }),
    );
    let (_, _, text) = WITH_TOOLS.request("POST", PATH, body.to_string());
    let cut: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(cut["stop_reason"], "max_tokens", "{cut}");
}

#[test]
fn errors_have_the_shape_of_anthropic_and_name_what_is_wrong() {
    let user = |content: Value| json!({ "messages": [{ "role": "user", "content": content }] });
    let block = |block: Value| user(json!([{ "type": "text", "text": "a" }, block]));
    let tool = |tool: Value| json!({ "tools": [tool] });
    for (fields, words) in [
        (json!({ "messages": null }), "`messages` is missing"),
        (json!({ "max_tokens": null }), "`max_tokens` is missing"),
        (json!({ "max_tokens": 0 }), "`max_tokens` must be"),
        (json!({ "max_tokens": 9999 }), "`max_tokens` asks for"),
        (json!({ "messages": [] }), "`messages`"),
        (json!({ "messages": [5] }), "`messages` must be"),
        (json!({ "messages": [{ "role": "system", "content": "a" }] }), "`messages[0]` must have a `role`"),
        (json!({ "messages": [{ "role": "user" }] }), "`messages[0]` must have `content`"),
        (user(json!(5)), "`messages[0]` must have `content`"),
        (block(json!(5)), "`messages[0].content[1]` must have a `type`"),
        (block(json!({ "type": "text" })), "`messages[0].content[1]` must have `text`"),
        (
            block(json!({ "type": "image", "source": { "type": "base64", "data": "" } })),
            "`messages[0].content[1]` is a block of the type \"image\", but the model reads text alone",
        ),
        (block(json!({ "type": "document" })), "\"document\""),
        (
            block(json!({ "type": "tool_use", "id": "a", "name": "f", "input": {} })),
            "no place in a turn of \"user\"",
        ),
        (block(json!({ "type": "tool_result" })), "`tool_use_id`"),
        (
            block(json!({ "type": "tool_result", "tool_use_id": "a", "content": [{ "type": "image" }] })),
            "`messages[0].content[1].content[0]` is a block of the type \"image\"",
        ),
        (
            block(json!({ "type": "tool_result", "tool_use_id": "a", "content": 5 })),
            "must be a text, or a list",
        ),
        (json!({ "system": 5 }), "`system` must be"),
        (json!({ "system": [{ "type": "image" }] }), "`system[0]`"),
        (json!({ "stop_sequences": ["a", 5] }), "`stop_sequences` must be"),
        (json!({ "stop_sequences": ["a".repeat(4000), "b".repeat(4000)] }), "`stop_sequences`"),
        (json!({ "temperature": "x" }), "`temperature` must be"),
        (json!({ "top_p": 2 }), "`top_p` must be"),
        (json!({ "num_return_sequences": 2 }), ""),
        (
            json!({ "thinking": { "type": "enabled", "budget_tokens": 1024 } }),
            "`thinking` asks for thinking, but",
        ),
        (json!({ "output_config": { "format": { "type": "xml" } } }), "`output_config.format`"),
        (json!({ "output_config": { "effort": "low" } }), "`output_config.effort`"),
        (
            json!({ "output_config": { "format": { "type": "json_schema", "schema": { "not": {} } } } }),
            "`output_config`",
        ),
        (json!({ "mcp_servers": [] }), "`mcp_servers` is not supported"),
        (json!({ "mirostat": 2 }), "`mirostat` is not supported"),
        (tool(json!({})), "`tools[0]` must have `name`"),
        (tool(json!({ "name": "f" })), "`tools[0]` must have `input_schema`"),
        (tool(json!({ "type": "web_search_20250305", "name": "web_search" })), "tool of another server"),
        (
            tool(json!({ "name": "f", "input_schema": { "type": "object" } })),
            "the chat template does not show tools",
        ),
        (json!({ "tool_choice": { "type": "some" } }), "`tool_choice` must have a `type`"),
        (json!({ "tool_choice": { "type": "tool" } }), "`tool_choice` must have `name`"),
        (json!({ "tool_choice": { "type": "any" } }), "`tool_choice`"),
    ] {
        let (status, headers, text) =
            SERVER.request("POST", PATH, with(&hello(), fields.clone()).to_string());
        let answer: Value = serde_json::from_str(&text).unwrap();
        if words.is_empty() {
            assert_eq!((status.as_u16(), &headers["x-rsgen-ignored"] == "num_return_sequences"), (200, true));
            continue;
        }
        let error = &answer["error"];
        assert_eq!((status.as_u16(), &answer["type"]), (400, &json!("error")), "{fields}: {answer}");
        assert_eq!(error["type"], "invalid_request_error");
        assert!(error["message"].as_str().unwrap().contains(words), "{words}: {answer}");
        assert!(headers.contains_key("request-id"));
    }
    for (path, body, status, kind) in [
        (PATH, with(&hello(), json!({ "model": "other" })), 404, "not_found_error"),
        ("/v1/messages/count_tokens", json!({}), 400, "invalid_request_error"),
        (PATH, json!([]), 400, "invalid_request_error"),
    ] {
        let (found, answer) = post(path, &body);
        assert_eq!((found.as_u16(), &answer["error"]["type"]), (status, &json!(kind)), "{answer}");
    }
    let (status, answer) = get(PATH);
    assert_eq!((status.as_u16(), &answer["type"]), (405, &json!("error")));
    // What fails on the way is the last event.
    let body = with(&hello(), json!({ "sequence_bias": [[[5, 6], -1.5], [[3], 1e300]], "stream": true }));
    let (_, _, text) = SERVER.request("POST", PATH, body.to_string());
    assert!(
        text.contains("event: error\ndata: {\"type\":\"error\"") && text.contains("sequence_bias"),
        "{text}"
    );
}
