//! The thinking of chats in the answers of Anthropic's and Ollama's routes.

use serde_json::{Value, json};

use super::reasoning::THINKS;
use super::*;

const MESSAGES: &str = "/v1/messages";

fn asked(server: &Server, path: &str, body: &Value) -> String {
    let (status, _, text) = server.request("POST", path, body.to_string());
    assert_eq!(status, 200, "{body}: {text}");
    text
}

fn whole(path: &str, body: &Value) -> Value {
    serde_json::from_str(&asked(&THINKS, path, body)).unwrap()
}

/// What the same chat of OpenAI's route thinks, and how many tokens its answer has.
fn thought(fields: &Value) -> (String, Value) {
    let body = json!({ "messages": [{ "role": "user", "content": "Two and two?" }], "temperature": 0, "max_tokens": 40, "regex": " ?Four[.]" });
    let chat = whole("/v1/chat/completions", &with(&body, fields.clone()));
    let thought = chat["choices"][0]["message"]["reasoning"].as_str().unwrap().to_owned();
    (thought, chat["usage"]["completion_tokens"].clone())
}

fn claude(fields: Value) -> Value {
    let body = json!({ "messages": [{ "role": "user", "content": "Two and two?" }], "temperature": 0, "max_tokens": 40, "regex": " ?Four[.]" });
    with(&body, fields)
}

fn llama(fields: Value) -> Value {
    let options =
        json!({ "temperature": 0, "num_predict": 40, "regex": " ?Four[.]", "thinking_token_budget": 5 });
    let body = json!({ "messages": [{ "role": "user", "content": "Two and two?" }], "options": options, "stream": false });
    with(&body, fields)
}

#[test]
fn a_message_has_its_thinking_in_a_block() {
    let enabled = json!({ "thinking": { "type": "enabled", "budget_tokens": 5 } });
    let message = whole(MESSAGES, &claude(enabled.clone()));
    let (thought, count) = thought(&json!({ "thinking_token_budget": 5 }));
    let text = json!({ "type": "text", "text": "Four." });
    let block = json!({ "type": "thinking", "thinking": thought, "signature": "unsigned" });
    assert_eq!((&message["content"], &message["usage"]["output_tokens"]), (&json!([block, text]), &count));
    // As events: the signature comes last in its block.
    let events = asked(&THINKS, MESSAGES, &claude(with(&enabled, json!({ "stream": true }))));
    let events: Vec<Value> = events
        .split_terminator("\n\n")
        .map(|event| serde_json::from_str(event.split_once("\ndata: ").unwrap().1).unwrap())
        .collect();
    let started: Vec<&Value> = events.iter().filter(|event| event["type"] == "content_block_start").collect();
    let empty = json!({ "type": "thinking", "thinking": "", "signature": "" });
    assert_eq!(
        (&started[0]["content_block"], &started[1]["content_block"]["type"]),
        (&empty, &json!("text"))
    );
    let of_block = |index: i64| {
        let of_index =
            move |event: &&Value| event["index"] == index && event["type"] == "content_block_delta";
        events.iter().filter(of_index).map(|event| &event["delta"])
    };
    let (mut deltas, mut streamed): (Vec<&Value>, String) = (of_block(0).collect(), String::new());
    let signature = deltas.pop().unwrap();
    assert_eq!(*signature, json!({ "type": "signature_delta", "signature": "unsigned" }));
    for delta in deltas {
        assert_eq!(delta["type"], "thinking_delta");
        streamed.push_str(delta["thinking"].as_str().unwrap());
    }
    assert_eq!(streamed, thought);
    assert_eq!(of_block(1).map(|delta| delta["text"].as_str().unwrap()).collect::<String>(), "Four.");
    let omitted = json!({ "thinking": { "type": "enabled", "budget_tokens": 5, "display": "omitted" } });
    let block = json!({ "type": "thinking", "thinking": "", "signature": "unsigned" });
    assert_eq!(whole(MESSAGES, &claude(omitted))["content"], json!([block, text]));
    let adaptive =
        whole(MESSAGES, &claude(json!({ "thinking": { "type": "adaptive" }, "thinking_token_budget": 5 })));
    assert_eq!(adaptive["content"], message["content"]);
    // Without it the model is asked not to think; what the request says of the template counts.
    for fields in [json!({}), json!({ "thinking": { "type": "disabled" } })] {
        assert_eq!(whole(MESSAGES, &claude(fields))["content"], json!([text]));
    }
    let thinks = json!({ "chat_template_kwargs": { "enable_thinking": true }, "thinking_token_budget": 5 });
    let hidden = whole(MESSAGES, &claude(thinks));
    assert_eq!((&hidden["content"], &hidden["usage"]["output_tokens"]), (&json!([text]), &count));
    let cut = whole(MESSAGES, &claude(with(&enabled, json!({ "max_tokens": 3 }))));
    assert_eq!((&cut["stop_reason"], &cut["content"][0]["type"]), (&json!("max_tokens"), &json!("thinking")));
}

#[test]
fn blocks_of_thinking_that_are_given_back_go_to_the_template() {
    let messages = json!([
        { "role": "user", "content": "a" },
        { "role": "assistant", "content": [
            { "type": "thinking", "thinking": "So.", "signature": "unsigned" },
            { "type": "redacted_thinking", "data": "x" },
            { "type": "text", "text": "b" },
        ] },
        { "role": "user", "content": "c" },
        { "role": "assistant", "content": [{ "type": "thinking", "thinking": "So.", "signature": "" }] },
    ]);
    let same = json!({ "messages": [
        { "role": "user", "content": "a" },
        { "role": "assistant", "content": "b", "reasoning_content": "So." },
        { "role": "user", "content": "c" },
    ] });
    let thinking = json!({ "type": "enabled", "budget_tokens": 5 });
    let count = whole("/v1/messages/count_tokens", &json!({ "messages": messages, "thinking": thinking }));
    assert_eq!(count["input_tokens"], whole("/tokenize", &same)["count"]);
    let messages = json!([
        { "role": "user", "content": "a" }, { "role": "assistant", "content": "b", "thinking": "So." }, { "role": "user", "content": "c" },
    ]);
    let answer = whole("/api/chat", &llama(json!({ "messages": messages })));
    assert_eq!(answer["prompt_eval_count"], whole("/tokenize", &same)["count"]);
}

#[test]
fn ollamas_lines_have_the_thinking_beside_what_is_said() {
    let (thought, count) = thought(&json!({ "thinking_token_budget": 5 }));
    let message = json!({ "role": "assistant", "content": "Four.", "thinking": thought });
    for fields in [json!({ "think": true }), json!({})] {
        let answer = whole("/api/chat", &llama(fields.clone()));
        assert_eq!((&answer["message"], &answer["eval_count"]), (&message, &count), "{fields}");
        let lines = asked(&THINKS, "/api/chat", &llama(with(&fields, json!({ "stream": true }))));
        let (mut thinking, mut said) = (String::new(), String::new());
        for line in lines.lines() {
            let message = &serde_json::from_str::<Value>(line).unwrap()["message"];
            if let Some(more) = message["thinking"].as_str() {
                assert!(said.is_empty() && message["content"] == "", "{lines}");
                thinking.push_str(more);
            }
            said.push_str(message["content"].as_str().unwrap());
        }
        assert_eq!((thinking, &*said), (thought.clone(), "Four."), "{lines}");
    }
    let silent = whole("/api/chat", &llama(json!({ "think": false })));
    assert_eq!(silent["message"], json!({ "role": "assistant", "content": "Four." }));
    // The effort is a variable of the template.
    let plain = whole("/api/chat", &llama(json!({})))["prompt_eval_count"].as_u64().unwrap();
    for effort in ["low", "medium", "high"] {
        let answer = whole("/api/chat", &llama(json!({ "think": effort })));
        assert!(
            answer["prompt_eval_count"].as_u64().unwrap() > plain
                && answer["message"]["thinking"].is_string()
        );
    }
    let mut prompt = llama(json!({ "prompt": "Two and two?", "think": true }));
    prompt.as_object_mut().unwrap().remove("messages");
    let answer = whole("/api/generate", &prompt);
    assert_eq!((&answer["response"], &answer["thinking"]), (&json!("Four."), &json!(thought)), "{answer}");
    let shown: Value = serde_json::from_str(&asked(&THINKS, "/api/show", &json!({}))).unwrap();
    assert!(shown["capabilities"].as_array().unwrap().contains(&json!("thinking")), "{shown}");
}

#[test]
fn thinking_that_cannot_be_is_refused() {
    let thinking = |thinking: Value| claude(json!({ "thinking": thinking }));
    let prompt = |fields: Value| with(&json!({ "prompt": "a" }), fields);
    let (none, wrong) =
        ("asks for thinking, but the model's chat template has no form of it", "`think` must be true, false");
    for (server, path, body, words) in [
        (&SERVER, MESSAGES, thinking(json!({ "type": "enabled", "budget_tokens": 5 })), none),
        (&SERVER, MESSAGES, thinking(json!({ "type": "adaptive" })), none),
        (&SERVER, "/v1/messages/count_tokens", thinking(json!({ "type": "adaptive" })), none),
        (&SERVER, "/api/chat", llama(json!({ "think": true })), none),
        (&SERVER, "/api/chat", llama(json!({ "think": "low" })), none),
        (&SERVER, "/api/generate", prompt(json!({ "think": true })), none),
        (&THINKS, "/api/generate", prompt(json!({ "think": true, "raw": true })), "`think` needs a template"),
        (&THINKS, "/api/chat", llama(json!({ "think": "much" })), wrong),
        (&THINKS, "/api/chat", llama(json!({ "think": 1 })), "`think` must be"),
        (&THINKS, MESSAGES, thinking(json!({})), "`thinking` must be of the type"),
        (
            &THINKS,
            MESSAGES,
            thinking(json!({ "type": "between_tools" })),
            "\"between_tools\", which is not supported",
        ),
        (&THINKS, MESSAGES, thinking(json!({ "type": "enabled" })), "`thinking.budget_tokens` must be"),
        (
            &THINKS,
            MESSAGES,
            thinking(json!({ "type": "enabled", "budget_tokens": 0 })),
            "`thinking.budget_tokens` must be",
        ),
        (
            &THINKS,
            MESSAGES,
            thinking(json!({ "type": "adaptive", "display": "x" })),
            "`thinking.display` must be",
        ),
    ] {
        let (status, _, text) = server.request("POST", path, body.to_string());
        let answer: Value = serde_json::from_str(&text).unwrap();
        let message = answer["error"]["message"].as_str().or(answer["error"].as_str()).unwrap_or_default();
        assert!(status == 400 && message.contains(words), "{path} {body}: {answer}");
    }
}
