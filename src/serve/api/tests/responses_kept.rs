//! Responses that are kept, and gone on with.

use serde_json::{Value, json};

use super::responses::{PATH, ask, hello};
use super::tools::WITH_TOOLS;
use super::*;
use crate::serve::options::Secret;

fn id(response: &Value) -> &str {
    response["id"].as_str().unwrap()
}

/// Sends a request with a key.
fn with_key(server: &Server, key: &str, (method, path): (&str, &str), body: &Value) -> (u16, Value) {
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    let request = request.header("authorization", format!("Bearer {key}"));
    let request = request.body(Body::from(body.to_string())).unwrap();
    let service = TowerToHyperService::new(server.router.clone());
    let (status, bytes) = server.runtime.block_on(async {
        let response = service.call(request).await.unwrap();
        let (parts, body) = response.into_parts();
        (parts.status.as_u16(), to_bytes(body, 64 << 20).await.unwrap())
    });
    (status, serde_json::from_slice(&bytes).unwrap())
}

#[test]
fn a_response_that_is_kept_is_got_and_forgotten() {
    for body in [hello(json!({})), hello(json!({ "stream": true }))] {
        let (_, _, text) = SERVER.request("POST", PATH, body.to_string());
        let response: Value = serde_json::from_str(&text).unwrap_or_else(|_| {
            let last = text.trim_end().rsplit("data: ").next().unwrap();
            serde_json::from_str::<Value>(last).unwrap()["response"].clone()
        });
        let path = format!("{PATH}/{}", id(&response));
        assert_eq!(get(&path), (StatusCode::OK, response.clone()));
        let (status, items) = get(&format!("{path}/input_items"));
        let [item] = &items["data"].as_array().unwrap()[..] else { panic!("{items}") };
        let part = json!({ "type": "input_text", "text": "Tell me a story." });
        assert_eq!((status.as_u16(), &item["role"], &item["content"]), (200, &json!("user"), &json!([part])));
        assert_eq!(
            (&items["first_id"], &items["last_id"], &items["has_more"]),
            (&item["id"], &item["id"], &json!(false))
        );
        let (status, _, text) = SERVER.request("DELETE", &path, String::new());
        let deleted = json!({ "id": id(&response), "object": "response", "deleted": true });
        assert_eq!((status.as_u16(), serde_json::from_str::<Value>(&text).unwrap()), (200, deleted));
        for (method, path) in [("GET", &path), ("DELETE", &path), ("GET", &format!("{path}/input_items"))] {
            let (status, _, text) = SERVER.request(method, path, String::new());
            assert!(status == 404 && text.contains("there is no response"), "{text}");
        }
        let (status, answer) = post(PATH, &hello(json!({ "previous_response_id": id(&response) })));
        assert_eq!((status.as_u16(), &answer["error"]["param"]), (400, &json!("previous_response_id")));
    }
    let response = ask(&SERVER, PATH, &hello(json!({ "store": false })));
    assert_eq!(get(&format!("{PATH}/{}", id(&response))).0, 404);
    let (status, answer) = get(&format!("{PATH}/x?stream=true"));
    assert_eq!((status.as_u16(), &answer["error"]["param"]), (400, &json!("stream")));
}

#[test]
fn a_response_is_gone_on_with_by_its_id() {
    let tool =
        json!({ "type": "function", "name": "f", "parameters": { "type": "object", "properties": {} } });
    let first = hello(json!({
        "instructions": "Be brief.", "tools": [tool], "tool_choice": { "type": "function", "name": "f" },
        "max_output_tokens": 60,
    }));
    let first = ask(&WITH_TOOLS, PATH, &first);
    let call = &first["output"][0];
    let output = json!({ "type": "function_call_output", "call_id": call["call_id"], "output": "sun" });
    let second = hello(
        json!({ "previous_response_id": id(&first), "input": [output], "tools": [tool], "instructions": "Be kind." }),
    );
    let second = ask(&WITH_TOOLS, PATH, &second);
    assert_eq!(second["previous_response_id"], first["id"]);
    let answered = second["output"][0]["content"][0]["text"].as_str().unwrap();
    let third = ask(
        &WITH_TOOLS,
        PATH,
        &hello(json!({ "previous_response_id": id(&second), "input": "And then?", "tools": [tool] })),
    );
    let function = json!({ "name": "f", "arguments": call["arguments"] });
    let said = |role: &str, content: &str| json!({ "role": role, "content": content });
    let mut messages = vec![
        said("user", "Tell me a story."),
        json!({ "role": "assistant", "content": null, "tool_calls": [{ "id": call["call_id"], "type": "function", "function": function }] }),
        json!({ "role": "tool", "tool_call_id": call["call_id"], "content": "sun" }),
    ];
    let tools =
        json!([{ "type": "function", "function": { "name": "f", "parameters": tool["parameters"] } }]);
    let count = |messages: &[Value]| {
        ask(&WITH_TOOLS, "/tokenize", &json!({ "messages": messages, "tools": tools }))["count"].clone()
    };
    let instructed: Vec<Value> =
        std::iter::once(said("system", "Be kind.")).chain(messages.clone()).collect();
    assert_eq!(
        second["usage"]["input_tokens"],
        count(&instructed),
        "the instructions are those of the request"
    );
    messages.extend([said("assistant", answered), said("user", "And then?")]);
    assert_eq!(third["usage"]["input_tokens"], count(&messages));
    // The first one may go: the third has what it needs.
    let (status, ..) = WITH_TOOLS.request("DELETE", &format!("{PATH}/{}", id(&second)), String::new());
    assert_eq!(status, 200);
    let ids = |query: &str| {
        let path = format!("{PATH}/{}/input_items{query}", id(&third));
        let (status, _, text) = WITH_TOOLS.request("GET", &path, String::new());
        assert_eq!(status, 200, "{text}");
        let list: Value = serde_json::from_str(&text).unwrap();
        let ids: Vec<String> = list["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["id"].as_str().unwrap().to_owned())
            .collect();
        (ids, list["has_more"] == true)
    };
    let (rising, _) = ids("?order=asc");
    assert_eq!(rising.len(), 5, "{rising:?}");
    let mut falling = rising.clone();
    falling.reverse();
    assert_eq!(ids(""), (falling.clone(), false));
    assert_eq!(ids("?limit=2"), (falling[..2].to_vec(), true));
    assert_eq!(ids(&format!("?limit=3&after={}", falling[1])), (falling[2..].to_vec(), false));
    for query in ["limit=0", "limit=101", "limit=x", "order=up", "after=other"] {
        let (status, _, text) =
            WITH_TOOLS.request("GET", &format!("{PATH}/{}/input_items?{query}", id(&third)), String::new());
        let answer: Value = serde_json::from_str(&text).unwrap();
        let name = query.split('=').next().unwrap();
        assert_eq!((status.as_u16(), &answer["error"]["param"]), (400, &json!(name)), "{text}");
    }
}

#[test]
fn no_key_reaches_the_responses_of_another_one() {
    let server = Server::new(ServeOptions {
        api_keys: vec![Secret::new("one"), Secret::new("two")],
        ..ServeOptions::default()
    });
    let (status, response) = with_key(&server, "one", ("POST", PATH), &hello(json!({})));
    assert_eq!(status, 200, "{response}");
    let path = format!("{PATH}/{}", id(&response));
    let items = format!("{path}/input_items");
    for (method, path) in [("GET", &*path), ("GET", &items), ("DELETE", &path)] {
        assert_eq!(with_key(&server, "two", (method, path), &Value::Null).0, 404, "{method} {path}");
    }
    let next = hello(json!({ "previous_response_id": id(&response) }));
    let (status, answer) = with_key(&server, "two", ("POST", PATH), &next);
    assert_eq!((status, &answer["error"]["code"]), (400, &json!("previous_response_not_found")));
    assert_eq!(with_key(&server, "one", ("POST", PATH), &next).0, 200);
    assert_eq!(with_key(&server, "one", ("GET", &path), &Value::Null).1, response);
    assert_eq!(with_key(&server, "three", ("GET", &path), &Value::Null).0, 401);
}

#[test]
fn a_full_store_forgets_what_was_not_used_for_longest_and_none_keeps_nothing() {
    let server = Server::new(ServeOptions { max_stored_responses: 2, ..ServeOptions::default() });
    let ask_one = |server: &Server| {
        let (status, _, text) =
            server.request("POST", PATH, hello(json!({ "max_output_tokens": 1 })).to_string());
        assert_eq!(status, 200, "{text}");
        serde_json::from_str::<Value>(&text).unwrap()
    };
    let status = |server: &Server, response: &Value| {
        server.request("GET", &format!("{PATH}/{}", id(response)), String::new()).0.as_u16()
    };
    let (first, second) = (ask_one(&server), ask_one(&server));
    assert_eq!(status(&server, &first), 200);
    let third = ask_one(&server);
    let found: Vec<u16> =
        [&first, &second, &third].iter().map(|response| status(&server, response)).collect();
    assert_eq!(found, [200, 404, 200]);
    let none = Server::new(ServeOptions { max_stored_responses: 0, ..ServeOptions::default() });
    let response = ask_one(&none);
    assert_eq!((&response["store"], status(&none, &response)), (&json!(false), 404));
}

#[test]
fn a_conversation_that_is_longer_than_a_body_is_not_gone_on_with() {
    let server = Server::new(ServeOptions { max_body_bytes: 600, ..ServeOptions::default() });
    let (mut previous, mut turns) = (Value::Null, 0);
    loop {
        let body = hello(
            json!({ "input": "a ".repeat(40), "previous_response_id": previous, "max_output_tokens": 1 }),
        );
        let (status, _, text) = server.request("POST", PATH, body.to_string());
        let answer: Value = serde_json::from_str(&text).unwrap();
        if status != 200 {
            assert_eq!(
                (status.as_u16(), &answer["error"]["code"]),
                (413, &json!("request_too_large")),
                "{answer}"
            );
            break;
        }
        (previous, turns) = (answer["id"].clone(), turns + 1);
        assert!(turns < 20);
    }
    assert!(turns > 1);
}
