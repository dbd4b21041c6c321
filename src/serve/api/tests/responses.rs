//! `/v1/responses` against `/v1/chat/completions`, which it is translated to.

use serde_json::{Value, json};

use super::reasoning::THINKS;
use super::tools::WITH_TOOLS;
use super::*;

pub(super) const PATH: &str = "/v1/responses";

pub(super) fn hello(fields: Value) -> Value {
    with(&json!({ "input": "Tell me a story.", "temperature": 0, "max_output_tokens": 8 }), fields)
}

pub(super) fn ask(server: &Server, path: &str, body: &Value) -> Value {
    let (status, _, text) = server.request("POST", path, body.to_string());
    assert_eq!(status, 200, "{body}: {text}");
    serde_json::from_str(&text).unwrap()
}

/// The events of a stream: each has the name of its type and the next number.
fn stream(server: &Server, body: &Value) -> Vec<Value> {
    let body = with(body, json!({ "stream": true }));
    let (status, headers, text) = server.request("POST", PATH, body.to_string());
    assert_eq!((status, &headers["content-type"] == "text/event-stream"), (StatusCode::OK, true), "{text}");
    let event = |(number, event): (usize, &str)| {
        let (name, data) = event.strip_prefix("event: ").unwrap().split_once("\ndata: ").unwrap();
        let data: Value = serde_json::from_str(data).unwrap();
        assert_eq!((&data["type"], &data["sequence_number"]), (&json!(name), &json!(number)), "{text}");
        data
    };
    text.split_terminator("\n\n").enumerate().map(event).collect()
}

/// The items that the events make, each of which has to be opened, written and closed in this order.
fn items(events: &[Value]) -> Vec<Value> {
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds[..2], ["response.created", "response.in_progress"]);
    assert_eq!(events[0]["response"]["status"], "in_progress");
    let (mut items, mut open, mut text): (Vec<Value>, Option<Value>, String) = Default::default();
    for event in &events[2..events.len() - 1] {
        let kind = event["type"].as_str().unwrap().strip_prefix("response.").unwrap();
        assert_eq!(event["output_index"], items.len(), "{event}");
        if kind != "output_item.added" {
            let item = open.as_ref().unwrap();
            let id = if event["item"].is_object() { &event["item"]["id"] } else { &event["item_id"] };
            assert_eq!(*id, item["id"], "{event}");
        }
        match kind {
            "output_item.added" => {
                assert!(open.is_none(), "the item before is closed");
                assert_eq!(event["item"]["status"], "in_progress");
                open = Some(event["item"].clone());
                text.clear();
            }
            "content_part.added" => assert_eq!(event["part"]["text"], ""),
            "output_text.delta" | "reasoning_text.delta" | "function_call_arguments.delta" => {
                text.push_str(event["delta"].as_str().unwrap());
            }
            "output_text.done" | "reasoning_text.done" => assert_eq!(event["text"], text),
            "function_call_arguments.done" => assert_eq!(event["arguments"], text),
            "content_part.done" => assert_eq!(event["part"]["text"], text),
            "output_item.done" => {
                let item = &event["item"];
                let written = item["arguments"].as_str().or(item["content"][0]["text"].as_str());
                assert_eq!(written, Some(&*text), "{event}");
                items.push(item.clone());
                open = None;
            }
            _ => panic!("{event}"),
        }
    }
    assert!(open.is_none());
    items
}

/// A response without what differs each time.
fn comparable(mut response: Value) -> Value {
    for item in response["output"].as_array_mut().unwrap() {
        for name in ["id", "call_id"] {
            if item.get(name).is_some() {
                item[name] = Value::Null;
            }
        }
    }
    for name in ["id", "created_at", "completed_at"] {
        response[name] = Value::Null;
    }
    // The second one finds its prompt in the cache.
    response["usage"]["input_tokens_details"] = Value::Null;
    response
}

/// The whole response, which that of a stream equals.
fn whole(server: &Server, body: &Value) -> Value {
    let response = ask(server, PATH, body);
    let events = stream(server, body);
    let last = events.last().unwrap();
    let name = format!("response.{}", response["status"].as_str().unwrap());
    assert_eq!(last["type"], name, "{body}");
    assert_eq!(json!(items(&events)), last["response"]["output"], "{body}");
    assert_eq!(comparable(last["response"].clone()), comparable(response.clone()), "{body}");
    response
}

/// The text of the message of a response.
fn text(response: &Value) -> String {
    let message = response["output"].as_array().unwrap().iter().find(|item| item["type"] == "message");
    message.unwrap()["content"][0]["text"].as_str().unwrap().to_owned()
}

#[test]
fn a_response_is_the_reply_of_a_chat_whole_and_in_events() {
    for (fields, same) in [
        (json!({}), json!({ "temperature": 0 })),
        (
            json!({ "temperature": 0.7, "seed": 4, "top_p": 0.9 }),
            json!({ "temperature": 0.7, "seed": 4, "top_p": 0.9 }),
        ),
        (json!({ "temperature": null, "rsgen": { "num_beams": 3 } }), json!({ "num_beams": 3 })),
        (
            json!({ "text": { "format": { "type": "json_object" } } }),
            json!({ "temperature": 0, "response_format": { "type": "json_object" } }),
        ),
        (json!({ "max_output_tokens": 400 }), json!({ "temperature": 0, "max_tokens": 400 })),
    ] {
        let body = hello(fields);
        let response = whole(&SERVER, &body);
        let messages =
            json!({ "messages": [{ "role": "user", "content": "Tell me a story." }], "max_tokens": 8 });
        let chat = ok("/v1/chat/completions", &with(&messages, same));
        let choice = &chat["choices"][0];
        assert_eq!(text(&response), choice["message"]["content"].as_str().unwrap(), "{body}");
        let status = match choice["finish_reason"].as_str().unwrap() {
            "length" => ("incomplete", json!({ "reason": "max_output_tokens" })),
            _ => ("completed", Value::Null),
        };
        assert_eq!((response["status"].as_str().unwrap(), response["incomplete_details"].clone()), status);
        assert_eq!(response["output"][0]["status"], response["status"]);
        for (name, same) in [("input", "prompt"), ("output", "completion"), ("total", "total")] {
            assert_eq!(response["usage"][format!("{name}_tokens")], chat["usage"][format!("{same}_tokens")]);
        }
        assert_eq!((&response["object"], &response["model"]), (&json!("response"), &chat["model"]));
    }
    let schema = json!({ "type": "object", "properties": { "a": { "enum": [1, 2] } }, "required": ["a"] });
    let format = json!({ "type": "json_schema", "name": "n", "schema": schema, "strict": true });
    let response = whole(&SERVER, &hello(json!({ "text": { "format": format }, "max_output_tokens": 30 })));
    let value: Value = serde_json::from_str(&text(&response)).unwrap();
    assert!(value["a"] == 1 || value["a"] == 2, "{response}");
    assert_eq!(response["text"]["format"], format);
}

#[test]
fn a_response_says_what_was_asked() {
    let fields = json!({
        "instructions": "Be brief.", "metadata": { "a": "b" }, "user": "u", "store": false, "top_p": 0.5, "temperature": 0.5,
        "reasoning": { "effort": "low", "summary": "auto" }, "include": ["reasoning.encrypted_content"], "truncation": "disabled",
        "background": false, "service_tier": "auto", "prompt_cache_key": "k", "safety_identifier": "s", "max_tool_calls": 3,
        "stream_options": { "include_obfuscation": false }, "prompt_cache_retention": "24h", "top_logprobs": 0,
    });
    let (status, headers, text) = SERVER.request("POST", PATH, hello(fields.clone()).to_string());
    assert!(status == 200 && !headers.contains_key("x-rsgen-ignored"), "{text}");
    let response: Value = serde_json::from_str(&text).unwrap();
    for name in [
        "instructions",
        "metadata",
        "user",
        "store",
        "top_p",
        "temperature",
        "truncation",
        "background",
        "service_tier",
        "prompt_cache_key",
        "safety_identifier",
        "max_tool_calls",
    ] {
        assert_eq!(response[name], fields[name], "{name}");
    }
    assert_eq!(response["reasoning"], json!({ "effort": "low", "summary": null }));
    assert_eq!(response["max_output_tokens"], 8);
    let plain = ask(&SERVER, PATH, &json!({ "input": "Hi", "max_output_tokens": 1 }));
    for (name, value) in [
        ("store", json!(true)),
        ("temperature", json!(1.0)),
        ("tools", json!([])),
        ("tool_choice", json!("auto")),
        ("parallel_tool_calls", json!(true)),
        ("metadata", json!({})),
        ("previous_response_id", Value::Null),
        ("error", Value::Null),
        ("text", json!({ "format": { "type": "text" }, "verbosity": "medium" })),
    ] {
        assert_eq!(plain[name], value, "{name}");
    }
}

fn tool(name: &str, properties: &Value) -> Value {
    let required: Vec<&String> = properties.as_object().unwrap().keys().collect();
    let parameters = json!({ "type": "object", "properties": properties, "required": required });
    json!({ "type": "function", "name": name, "description": "", "parameters": parameters, "strict": true })
}

#[test]
fn calls_of_tools_are_items_that_follow_their_schemas() {
    let tools = json!([tool("weather", &json!({ "city": { "enum": ["Bern"] } })), tool("stop", &json!({}))]);
    for (choice, names) in [
        (json!("required"), &["weather", "stop"][..]),
        (json!({ "type": "function", "name": "stop" }), &["stop"]),
        (json!({ "type": "function", "name": "weather" }), &["weather"]),
    ] {
        let body = hello(json!({
            "tools": tools, "tool_choice": choice, "parallel_tool_calls": false, "max_output_tokens": 100,
        }));
        let response = whole(&WITH_TOOLS, &body);
        let [call] = &response["output"].as_array().unwrap()[..] else { panic!("{response}") };
        assert_eq!((&response["status"], &call["type"]), (&json!("completed"), &json!("function_call")));
        assert_eq!(call["call_id"].as_str().unwrap().len(), 9);
        let name = call["name"].as_str().unwrap();
        assert!(names.contains(&name), "{response}");
        let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
        assert_eq!(arguments, if name == "stop" { json!({}) } else { json!({ "city": "Bern" }) });
        assert_eq!((&response["tools"], &response["tool_choice"]), (&tools, &choice));
    }
    // A call that was cut is told from one that is complete.
    let named = json!({ "type": "function", "name": "weather" });
    let body = |most: u64| hello(json!({ "tools": tools, "tool_choice": named, "max_output_tokens": most }));
    let count = ask(&WITH_TOOLS, PATH, &body(100))["usage"]["output_tokens"].as_u64().unwrap();
    let response = whole(&WITH_TOOLS, &body(count - 16));
    let [call] = &response["output"].as_array().unwrap()[..] else { panic!("{response}") };
    assert_eq!((&response["status"], &call["status"]), (&json!("incomplete"), &json!("incomplete")));
    assert_eq!((&call["type"], &call["name"]), (&json!("function_call"), &json!("weather")));
    assert!(serde_json::from_str::<Value>(call["arguments"].as_str().unwrap()).is_err(), "{response}");
}

/// How many tokens a prompt has, and its text, for the same conversation in both forms.
fn same_prompt(server: &Server, fields: &Value, same: &Value) -> String {
    let count =
        &ask(server, PATH, &hello(with(fields, json!({ "max_output_tokens": 1 }))))["usage"]["input_tokens"];
    assert_eq!(*count, ask(server, "/tokenize", same)["count"], "{fields}");
    ask(server, "/apply-template", same)["prompt"].as_str().unwrap().to_owned()
}

#[test]
fn items_are_the_same_prompt_as_the_messages_of_a_chat() {
    let part = |kind: &str, text: &str| json!({ "type": kind, "text": text });
    let call = |id: &str| json!({ "type": "function_call", "id": "fc_1", "call_id": id, "name": "f", "arguments": "{\"x\":1}" });
    let fields = json!({
        "instructions": "Be brief.",
        "input": [
            { "role": "developer", "content": "In English." },
            { "type": "message", "role": "user", "content": [part("input_text", "a"), part("input_text", "b")] },
            { "type": "message", "role": "assistant", "content": [part("output_text", "c")], "id": "msg_1", "status": "completed" },
            call("call00001"), call("call00002"),
            { "type": "function_call", "call_id": "call00003", "name": "f", "arguments": "{\"x", "status": "incomplete" },
            { "type": "function_call_output", "call_id": "call00001", "output": "sun" },
            { "type": "function_call_output", "call_id": "call00002", "output": [part("input_text", "rain")] },
            { "role": "assistant", "content": [{ "type": "refusal", "refusal": "no" }] },
            { "role": "assistant", "content": "e" },
            { "role": "user", "content": "d" },
        ],
        "tools": [{ "type": "function", "name": "f", "description": "d", "parameters": { "type": "object", "properties": {} } }],
    });
    let function = json!({ "name": "f", "arguments": "{\"x\":1}" });
    let call = |id: &str| json!({ "id": id, "type": "function", "function": function });
    let same = json!({
        "messages": [
            { "role": "system", "content": "Be brief." },
            { "role": "developer", "content": "In English." },
            { "role": "user", "content": [part("text", "a"), part("text", "b")] },
            { "role": "assistant", "content": "c", "tool_calls": [call("call00001"), call("call00002")] },
            { "role": "tool", "tool_call_id": "call00001", "content": "sun" },
            { "role": "tool", "tool_call_id": "call00002", "content": "rain" },
            { "role": "assistant", "content": "no" },
            { "role": "assistant", "content": "e" },
            { "role": "user", "content": "d" },
        ],
        "tools": [{ "type": "function", "function": { "name": "f", "description": "d", "parameters": { "type": "object", "properties": {} } } }],
    });
    let shown = same_prompt(&WITH_TOOLS, &fields, &same);
    assert!(shown.contains("Be brief.") && shown.contains("rain"), "{shown}");
    // Thinking that is given back is that of the turn after it.
    let thought = |name: &str| json!({ "type": "reasoning", "id": "rs_1", "summary": [], name: [{ "type": "x", "text": "So." }] });
    let same = json!({ "messages": [
        { "role": "user", "content": "a" },
        { "role": "assistant", "content": "b", "reasoning_content": "So." },
        { "role": "user", "content": "c" },
    ] });
    for name in ["content", "summary"] {
        let fields = json!({ "input": [
            { "role": "user", "content": "a" }, thought(name), { "role": "assistant", "content": "b" },
            { "role": "user", "content": "c" }, thought(name),
        ] });
        let shown = same_prompt(&THINKS, &fields, &same);
        assert!(shown.contains("<think>So.</think>b"), "{shown}");
    }
}

#[test]
fn thinking_is_an_item_before_the_answer() {
    let fields = json!({
        "max_output_tokens": 40, "thinking_token_budget": 5, "regex": " ?Four[.]",
    });
    let response = whole(&THINKS, &hello(fields.clone()));
    let [thought, message] = &response["output"].as_array().unwrap()[..] else { panic!("{response}") };
    assert_eq!((&thought["type"], &thought["summary"]), (&json!("reasoning"), &json!([])));
    assert_eq!(thought["content"][0]["type"], "reasoning_text");
    assert_eq!(message["content"][0]["text"], "Four.");
    let details = &response["usage"]["output_tokens_details"]["reasoning_tokens"];
    assert!((5..response["usage"]["output_tokens"].as_u64().unwrap()).contains(&details.as_u64().unwrap()));
    // An answer that was cut within its thinking is that alone.
    let cut = whole(&THINKS, &hello(with(&fields, json!({ "max_output_tokens": 3 }))));
    assert_eq!(cut["status"], "incomplete");
    assert_eq!(
        (cut["output"].as_array().unwrap().len(), &cut["output"][0]["status"]),
        (1, &json!("incomplete"))
    );
    let none = whole(&THINKS, &hello(with(&fields, json!({ "reasoning": { "effort": "none" } }))));
    assert_eq!((none["output"].as_array().unwrap().len(), text(&none).trim()), (1, "Four."), "{none}");
    let kwargs =
        json!({ "reasoning": { "effort": "none" }, "chat_template_kwargs": { "enable_thinking": true } });
    let both = whole(&THINKS, &hello(with(&fields, kwargs)));
    assert_eq!(both["output"].as_array().unwrap().len(), 2, "what the request says of the template counts");
}

#[test]
fn an_answer_without_a_word_is_a_message() {
    // The model's end-of-sequence token.
    let response = whole(&SERVER, &hello(json!({ "logit_bias": { "1": 100 } })));
    assert_eq!((&response["status"], &response["usage"]["output_tokens"]), (&json!("completed"), &json!(1)));
    assert_eq!(
        (response["output"].as_array().unwrap().len(), text(&response)),
        (1, String::new()),
        "{response}"
    );
}

#[test]
fn what_cannot_be_is_refused_with_the_name_of_its_field() {
    let item = |item: Value| json!({ "input": [{ "role": "user", "content": "a" }, item] });
    let content = |content: Value| item(json!({ "role": "user", "content": content }));
    let tool = |tool: Value| json!({ "tools": [tool] });
    let call = |fields: Value| {
        item(with(
            &json!({ "type": "function_call", "call_id": "a", "name": "f", "arguments": "{}" }),
            fields,
        ))
    };
    let many: serde_json::Map<_, _> = (0..17).map(|key| (key.to_string(), json!("a"))).collect();
    for (fields, param, words) in [
        (json!({ "input": null }), "input", "is missing"),
        (json!({ "input": [] }), "input", "at least one message"),
        (json!({ "input": 5 }), "input", "must be"),
        (json!({ "input": [{ "type": "reasoning", "summary": [] }] }), "input", "at least one message"),
        (item(json!({})), "input[1]", "a `type`"),
        (item(json!({ "role": "tool", "content": "a" })), "input[1]", "a `role`"),
        (item(json!({ "type": "web_search_call" })), "input[1]", "\"web_search_call\""),
        (item(json!({ "type": "item_reference", "id": "msg_1" })), "input[1]", "give the item itself"),
        (item(json!({ "type": "reasoning", "summary": 5 })), "input[1].summary", "a list of parts"),
        (content(json!(5)), "input[1].content", "must be a text"),
        (content(json!([5])), "input[1].content[0]", "a `type`"),
        (content(json!([{ "type": "input_text" }])), "input[1].content[0]", "must have `text`"),
        (
            content(json!([{ "type": "input_image", "image_url": "x" }])),
            "input[1].content[0]",
            "reads text alone",
        ),
        (content(json!([{ "type": "input_file" }])), "input[1].content[0]", "\"input_file\""),
        (call(json!({ "name": null })), "input[1]", "must have `name`"),
        (call(json!({ "call_id": null })), "input[1]", "must have `call_id`"),
        (call(json!({ "arguments": "{" })), "input[1].arguments", "valid JSON"),
        (item(json!({ "type": "function_call_output", "output": "a" })), "input[1]", "must have `call_id`"),
        (
            item(json!({ "type": "function_call_output", "call_id": "a" })),
            "input[1].output",
            "must be a text",
        ),
        (tool(json!({})), "tools[0]", "the type \"function\""),
        (tool(json!({ "type": "web_search" })), "tools[0]", "is of the type \"web_search\""),
        (tool(json!({ "type": "function", "function": { "name": "f" } })), "tools[0]", "must have `name`"),
        (tool(json!({ "type": "function", "name": "f" })), "tools", "does not show tools"),
        (json!({ "tool_choice": "required" }), "tool_choice", "there are no `tools`"),
        (json!({ "tool_choice": "some" }), "tool_choice", "must be"),
        (json!({ "tool_choice": { "type": "function" } }), "tool_choice", "must be"),
        (json!({ "tool_choice": { "type": "file_search" } }), "tool_choice", "\"file_search\""),
        (json!({ "text": { "format": { "type": "xml" } } }), "text.format", "must have the type"),
        (json!({ "text": { "format": { "type": "json_schema" } } }), "text.format", "must have `schema`"),
        (
            json!({ "text": { "format": { "type": "json_schema", "schema": { "not": {} } } } }),
            "text.format",
            "`text.format`",
        ),
        (json!({ "text": { "verbosity": "low" } }), "text.verbosity", "must be \"medium\""),
        (json!({ "reasoning": { "effort": 5 } }), "reasoning.effort", "must be a text"),
        (json!({ "max_output_tokens": 0 }), "max_output_tokens", "must be"),
        (json!({ "max_output_tokens": 9999 }), "max_output_tokens", "asks for"),
        (json!({ "max_new_tokens": 5 }), "max_output_tokens", "leave out one"),
        (json!({ "metadata": { "a": 5 } }), "metadata", "up to 16 pairs"),
        (json!({ "metadata": many }), "metadata", "up to 16 pairs"),
        (json!({ "background": true }), "background", "must be false"),
        (json!({ "truncation": "auto" }), "truncation", "must be \"disabled\""),
        (json!({ "top_logprobs": 2 }), "top_logprobs", "`/v1/chat/completions`"),
        (json!({ "include": ["message.output_text.logprobs"] }), "include", "`/v1/chat/completions`"),
        (json!({ "include": ["other"] }), "include", "must be"),
        (json!({ "conversation": "conv_1" }), "conversation", "`previous_response_id`"),
        (json!({ "prompt": { "id": "pmpt_1" } }), "prompt", "not supported"),
        (json!({ "previous_response_id": "resp_1" }), "previous_response_id", "is not kept"),
        (json!({ "mirostat": 2 }), "mirostat", "not supported"),
    ] {
        let (status, answer) = post(PATH, &hello(fields.clone()));
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        assert_eq!((status.as_u16(), &answer["error"]["param"]), (400, &json!(param)), "{fields}: {answer}");
        assert!(message.contains(words) && message.contains('`'), "{words}: {answer}");
    }
    let (_, answer) = post(PATH, &hello(json!({ "previous_response_id": "resp_1" })));
    assert_eq!(answer["error"]["code"], "previous_response_not_found");
}

#[test]
fn what_fails_on_the_way_is_an_event_with_the_next_number() {
    let body = hello(json!({ "temperature": 1, "seed": 3, "sequence_bias": [[[5, 6], -1.5], [[3], 1e300]] }));
    let events = stream(&SERVER, &body);
    let last = events.last().unwrap();
    assert_eq!((&last["type"], &last["response"]["status"]), (&json!("response.failed"), &json!("failed")));
    let error = &last["response"]["error"];
    assert!(
        error["code"] == "invalid_prompt" && error["message"].as_str().unwrap().contains("sequence_bias"),
        "{last}"
    );
    let (status, answer) = post(PATH, &body);
    assert_eq!((status.as_u16(), &answer["error"]["param"]), (400, &json!("sequence_bias")));
}
