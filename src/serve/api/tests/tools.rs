//! Tool calls over HTTP: those that a grammar holds, since the bundled model would make none by itself.

use serde_json::{Value, json};

use super::*;

/// A template that shows tools, calls and results, in Hermes' form.
const TEMPLATE: &str = "{{ bos_token }}{% if tools %}{{ tools | tojson }}<tool_call>{% endif %}{% for m in messages %}\
    {{ '<|user|>' if m.role != 'assistant' else '<|assistant|>' }}{{ m.role }}: {{ m.content or '' }}\
    {% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}{% endfor %}\
    {% if add_generation_prompt %}<|assistant|>{% endif %}";

/// A server of the bundled model with a template.
pub(super) fn server(template: &str, tool_parser: Option<&str>, reasoning_parser: Option<&str>) -> Server {
    let folder = tempfile::tempdir().unwrap();
    let bundled = concat!(env!("CARGO_MANIFEST_DIR"), "/python/rsgen/models/story-3m");
    for file in std::fs::read_dir(bundled).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
    }
    std::fs::write(folder.path().join("chat_template.jinja"), template).unwrap();
    let generator = Generator::open(folder.path().to_str().unwrap()).unwrap();
    let options = ServeOptions {
        tool_parser: tool_parser.map(str::to_owned),
        reasoning_parser: reasoning_parser.map(str::to_owned),
        ..ServeOptions::default()
    };
    let router = router_with(generator.clone(), options).unwrap();
    Server { runtime: Runtime::new().unwrap(), generator, router }
}

pub(super) static WITH_TOOLS: LazyLock<Server> = LazyLock::new(|| server(TEMPLATE, None, None));

const PATH: &str = "/v1/chat/completions";

fn tool(name: &str, properties: &Value) -> Value {
    let required: Vec<&String> = properties.as_object().unwrap().keys().collect();
    let parameters = json!({ "type": "object", "properties": properties, "required": required });
    json!({ "type": "function", "function": { "name": name, "description": "", "parameters": parameters } })
}

fn body(fields: Value) -> Value {
    let weather =
        tool("weather", &json!({ "city": { "enum": ["Bern", "Rome"] }, "days": { "enum": [1, 2] } }));
    let body = json!({
        "messages": [{ "role": "user", "content": "Hi" }], "tools": [weather, tool("stop", &json!({}))],
        "temperature": 0, "max_tokens": 100,
    });
    with(&body, fields)
}

fn answer(server: &Server, fields: Value) -> Value {
    let (status, _, text) = server.request("POST", PATH, body(fields).to_string());
    assert_eq!(status, 200, "{text}");
    serde_json::from_str(&text).unwrap()
}

fn refusal(server: &Server, fields: Value) -> (Value, String) {
    let (status, _, text) = server.request("POST", PATH, body(fields).to_string());
    assert_eq!(status, 400, "{text}");
    let answer: Value = serde_json::from_str(&text).unwrap();
    (answer["error"]["param"].clone(), answer["error"]["message"].as_str().unwrap().to_owned())
}

/// Name and arguments of the calls of an answer.
fn calls(choice: &Value) -> Vec<(String, Value)> {
    let call = |call: &Value| {
        assert_eq!((&call["type"], call["id"].as_str().unwrap().len()), (&json!("function"), 9), "{call}");
        let arguments = serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
        (call["function"]["name"].as_str().unwrap().to_owned(), arguments)
    };
    choice["message"]["tool_calls"]
        .as_array()
        .map(|calls| calls.iter().map(call).collect())
        .unwrap_or_default()
}

fn is_right((name, arguments): &(String, Value)) -> bool {
    let of_weather = || {
        ["Bern", "Rome"].iter().any(|city| arguments["city"] == *city)
            && [1, 2].iter().any(|days| arguments["days"] == *days)
    };
    name == "stop" && *arguments == json!({}) || name == "weather" && of_weather()
}

#[test]
fn a_call_that_has_to_be_made_follows_the_schema_of_its_tool() {
    for (fields, most) in [
        (json!({ "tool_choice": "required", "parallel_tool_calls": false }), 1),
        (json!({ "tool_choice": { "type": "function", "function": { "name": "weather" } } }), 1),
        (json!({ "tool_choice": "required", "do_sample": true, "temperature": 1.0, "seed": 3 }), usize::MAX),
        (json!({ "tool_choice": "required", "num_beams": 3, "parallel_tool_calls": false }), 1),
    ] {
        let answer = answer(&WITH_TOOLS, fields.clone());
        let choice = &answer["choices"][0];
        let count = choice["message"]["tool_calls"].as_array().map_or(0, Vec::len);
        assert!((1..=most).contains(&count), "{fields}: {answer}");
        // Several may be cut off: nothing ends them.
        assert!(most > 1 || choice["finish_reason"] == "tool_calls", "{answer}");
        if choice["finish_reason"] != "length" {
            assert!(calls(choice).iter().all(is_right), "{fields}: {answer}");
            assert_eq!(
                (&choice["finish_reason"], &choice["message"]["content"]),
                (&json!("tool_calls"), &Value::Null)
            );
        }
    }
    let named = json!({ "tool_choice": { "type": "function", "function": { "name": "stop" } } });
    assert_eq!(calls(&answer(&WITH_TOOLS, named)["choices"][0]), [("stop".to_owned(), json!({}))]);
}

#[test]
fn a_stream_has_the_name_first_and_then_the_arguments_of_the_whole_answer() {
    let fields = json!({ "tool_choice": { "type": "function", "function": { "name": "weather" } } });
    let whole = calls(&answer(&WITH_TOOLS, fields.clone())["choices"][0]);
    let body = body(with(&fields, json!({ "stream": true })));
    let (_, _, text) = WITH_TOOLS.request("POST", PATH, body.to_string());
    let events = events_of(PATH, &text);
    let deltas: Vec<&Value> = events.iter().map(|event| &event["choices"][0]["delta"]).collect();
    assert_eq!(deltas[0]["role"], "assistant");
    let parts: Vec<&Value> =
        deltas.iter().map(|delta| &delta["tool_calls"][0]).filter(|part| !part.is_null()).collect();
    assert_eq!(parts[0]["function"], json!({ "name": "weather", "arguments": "" }));
    assert_eq!((&parts[0]["index"], &parts[0]["type"]), (&json!(0), &json!("function")));
    assert!(
        parts.len() > 2 && parts[1..].iter().all(|part| part["id"].is_null() && part["index"] == 0),
        "{parts:?}"
    );
    let arguments: String =
        parts.iter().map(|part| part["function"]["arguments"].as_str().unwrap()).collect();
    assert_eq!(serde_json::from_str::<Value>(&arguments).unwrap(), whole[0].1);
    assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], "tool_calls");
    assert!(deltas.iter().all(|delta| delta["content"].as_str().unwrap_or_default().is_empty()), "{text}");
}

#[test]
fn a_call_that_the_model_begins_is_held_to_its_schema() {
    // The first tokens are those of the mark; what follows is the model's, within the grammar.
    let server = &*WITH_TOOLS;
    let mark = server.generator.tokenizer().unwrap().encode("<tool_call>", false).unwrap();
    for (sampled, seed) in [(false, 0), (true, 1), (true, 2), (true, 3)] {
        let bias: Vec<Value> = (0..mark.len())
            .map(|len| {
                json!([
                    mark[..=len].iter().map(|id| id.0).collect::<Vec<_>>(),
                    if len == 0 { 100.0 } else { 1000.0 }
                ])
            })
            .collect();
        let fields = json!({ "sequence_bias": bias, "do_sample": sampled, "temperature": if sampled { 1.0 } else { 0.0 }, "seed": seed, "parallel_tool_calls": false });
        let answer = answer(server, fields);
        let choice = &answer["choices"][0];
        if choice["finish_reason"] != "length" {
            assert!(calls(choice).iter().all(is_right) && calls(choice).len() == 1, "{answer}");
        }
        assert!(!choice["message"]["tool_calls"].is_null(), "{answer}");
    }
    // A tool whose schema no grammar can follow takes any object.
    let hard = tool("hard", &json!({ "a": { "contains": { "type": "string" } } }));
    answer(server, json!({ "tools": [hard], "max_tokens": 4 }));
}

#[test]
fn an_answer_without_a_call_is_text() {
    let without = answer(&WITH_TOOLS, json!({ "max_tokens": 12 }));
    let plain = answer(&WITH_TOOLS, json!({ "max_tokens": 12, "tool_choice": "none" }));
    for choice in [&without["choices"][0], &plain["choices"][0]] {
        assert!(choice["message"].get("tool_calls").is_none(), "{choice}");
        assert!(!choice["message"]["content"].as_str().unwrap().is_empty());
    }
    assert!(plain["usage"]["prompt_tokens"].as_u64() < without["usage"]["prompt_tokens"].as_u64());
}

#[test]
fn the_template_gets_calls_and_results() {
    let call = json!({ "id": "abcdefgh1", "type": "function", "function": { "name": "weather", "arguments": "{\"city\": \"Bern\"}" } });
    let messages = json!([
        { "role": "user", "content": "Hi" },
        { "role": "assistant", "content": null, "tool_calls": [call] },
        { "role": "tool", "tool_call_id": "abcdefgh1", "content": "sun" },
    ]);
    let (_, _, text) =
        WITH_TOOLS.request("POST", "/apply-template", json!({ "messages": messages }).to_string());
    let answered: Value = serde_json::from_str(&text).unwrap();
    let prompt = answered["prompt"].as_str().unwrap();
    assert!(
        prompt.contains("weather") && prompt.contains("Bern") && prompt.contains("tool: sun"),
        "{prompt}"
    );
    answer(&WITH_TOOLS, json!({ "messages": messages, "max_tokens": 4 }));
}

#[test]
fn what_cannot_be_is_refused_with_its_reason() {
    let named = |name: &str| json!({ "tool_choice": { "type": "function", "function": { "name": name } } });
    for (fields, param, why) in [
        (named("other"), "tool_choice", "weather"),
        (json!({ "tool_choice": "required", "tools": [] }), "tool_choice", "no `tools`"),
        (
            json!({ "tool_choice": "required", "response_format": { "type": "json_object" } }),
            "tool_choice",
            "`response_format`",
        ),
        (json!({ "tool_choice": { "type": "allowed_tools" } }), "tool_choice", "must be"),
        (json!({ "tools": [{ "type": "function", "function": {} }] }), "tools", "name"),
        (json!({ "tools": [tool("a", &json!({})), tool("a", &json!({}))] }), "tools", "of its own"),
        (json!({ "parallel_tool_calls": 3 }), "parallel_tool_calls", "true or false"),
    ] {
        let (at, message) = refusal(&WITH_TOOLS, fields.clone());
        assert_eq!(at, param, "{fields}: {message}");
        assert!(message.contains(why), "{message}");
    }
    // The schema of a tool that no grammar can follow.
    let hard = tool("hard", &json!({ "a": { "contains": { "type": "string" } } }));
    let (param, message) = refusal(&WITH_TOOLS, json!({ "tools": [hard], "tool_choice": "required" }));
    assert!(param == "tools" && message.contains("\"hard\"") && message.contains("contains"), "{message}");
    // A template that drops the tools.
    for template in ["{{ messages[0].content }}", "no tools: {{ messages[0].content }}"] {
        let (param, message) = refusal(&server(template, None, None), json!({}));
        assert!(param == "tools" && message.contains("does not show tools"), "{message}");
    }
}

#[test]
fn every_form_can_be_forced_and_is_read_again() {
    for form in rsgen_text::ToolForm::all() {
        let server = server(&format!("{{# {} #}}{TEMPLATE}", form.name), Some(form.name), None);
        let mut whole = 0;
        for fields in [
            json!({ "tool_choice": "required", "parallel_tool_calls": false }),
            json!({ "tool_choice": "required", "temperature": 1.0, "seed": 5 }),
        ] {
            let answer = answer(&server, with(&fields, json!({ "max_tokens": 220 })));
            let choice = &answer["choices"][0];
            if choice["finish_reason"] == "length" {
                continue;
            }
            whole += 1;
            let calls = calls(choice);
            assert!(!calls.is_empty() && calls.iter().all(is_right), "{}: {fields}: {answer}", form.name);
            assert_eq!(choice["message"]["content"], Value::Null, "{}: {answer}", form.name);
        }
        assert!(whole > 0, "{}", form.name);
    }
    let wrong = ServeOptions { tool_parser: Some("other".to_owned()), ..ServeOptions::default() };
    assert!(router_with(Generator::bundled().unwrap(), wrong).unwrap_err().to_string().contains("hermes"));
}
