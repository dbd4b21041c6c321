//! Structured output over HTTP: every form gives what the call with the same field gives.

use serde_json::{Value, json};

use super::*;

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": { "name": { "enum": ["Tom", "Lily"] }, "age": { "type": "integer", "minimum": 0, "maximum": 9 } },
        "required": ["name", "age"],
        "additionalProperties": false,
    })
}

fn expected(config: GenerationConfig) -> String {
    let config = config.do_sample(false).max_new_tokens(60);
    SERVER.generator.generate(PROMPT, &config).unwrap().text().to_owned()
}

#[test]
fn every_form_of_structured_output_equals_its_field() {
    let of_schema = expected(GenerationConfig::new().json_schema(schema()));
    assert!(serde_json::from_str::<Value>(&of_schema).unwrap()["age"].is_u64(), "{of_schema}");
    let of_regex = expected(GenerationConfig::new().regex("[a-c]{3,5}!"));
    let grammar = "start: \"The \" (\"cat\" | \"dog\") \" ran\"";
    let of_grammar = expected(GenerationConfig::new().grammar(grammar));
    let of_choice = expected(GenerationConfig::new().grammar("start: \" yes\" | \" no \\\"way\\\"\""));
    let choices = json!([" yes", " no \"way\""]);
    for (fields, text) in [
        (
            json!({ "response_format": { "type": "json_schema", "json_schema": { "name": "a", "strict": true, "schema": schema() } } }),
            &of_schema,
        ),
        (json!({ "response_format": { "type": "json_object", "value": schema() } }), &of_schema),
        (json!({ "structured_outputs": { "json": schema() } }), &of_schema),
        (json!({ "guided_json": schema() }), &of_schema),
        (json!({ "guided_json": schema().to_string() }), &of_schema),
        (json!({ "json_schema": schema() }), &of_schema),
        (json!({ "rsgen": { "json_schema": schema() } }), &of_schema),
        (json!({ "guided_regex": "[a-c]{3,5}!" }), &of_regex),
        (json!({ "structured_outputs": { "regex": "[a-c]{3,5}!", "json_object": false } }), &of_regex),
        (json!({ "regex": "[a-c]{3,5}!" }), &of_regex),
        (json!({ "guided_grammar": grammar }), &of_grammar),
        (json!({ "structured_outputs": { "grammar": grammar } }), &of_grammar),
        (json!({ "guided_choice": choices }), &of_choice),
        (json!({ "structured_outputs": { "choice": choices } }), &of_choice),
        (json!({ "response_format": { "type": "text" }, "regex": "[a-c]{3,5}!" }), &of_regex),
    ] {
        let body = with(&json!({ "prompt": PROMPT, "temperature": 0, "max_tokens": 60 }), fields.clone());
        let (status, answer) = post("/v1/completions", &body);
        assert!(status.is_success(), "{fields}: {answer}");
        assert_eq!(answer["choices"][0]["text"], **text, "{fields}");
        assert_eq!(answer["choices"][0]["finish_reason"], "stop", "{fields}");
    }
}

/// The objects of a schema where another can stand, open or closed, and told in advance to be open.
fn nested(inner: &Value) -> Value {
    let list =
        json!({ "type": "array", "prefixItems": [inner], "items": inner, "minItems": 1, "maxItems": 2 });
    let object =
        json!({ "type": "object", "properties": { "a": { "$ref": "#/$defs/list" } }, "required": ["a"] });
    json!({ "anyOf": [object], "$defs": { "list": list } })
}

#[test]
fn objects_are_closed_by_default_in_strict_mode() {
    let open = json!({ "type": "object", "properties": { "n": { "const": 1 } }, "required": ["n"] });
    let mut closed = open.clone();
    closed["additionalProperties"] = false.into();
    let mut by_hand = nested(&closed);
    by_hand["anyOf"][0]["additionalProperties"] = false.into();
    let stated = json!({ "type": "object", "properties": {}, "additionalProperties": { "const": 2 }, "maxProperties": 1 });
    for (schema, strict, same) in [
        (nested(&open), json!(true), by_hand),
        (nested(&open), json!(false), nested(&open)),
        (nested(&open), Value::Null, nested(&open)),
        (stated.clone(), json!(true), stated),
        (
            json!({ "allOf": [open.clone(), { "required": ["n"] }] }),
            json!(true),
            json!({ "allOf": [open, { "required": ["n"] }] }),
        ),
    ] {
        let mut closed = schema.clone();
        if strict == true {
            super::super::structure::close(&mut closed);
        }
        assert_eq!(closed, same);
        let body = json!({
            "prompt": PROMPT, "temperature": 0, "max_tokens": 40,
            "response_format": { "type": "json_schema", "json_schema": { "name": "a", "strict": strict, "schema": schema } },
        });
        let (status, answer) = post("/v1/completions", &body);
        assert!(status.is_success(), "{answer}");
        let config = GenerationConfig::new().json_schema(same).do_sample(false).max_new_tokens(40);
        let expected = SERVER.generator.generate(PROMPT, &config).unwrap();
        assert_eq!(answer["choices"][0]["text"], *expected.text());
    }
}

#[test]
fn a_chat_answers_with_an_object() {
    let body = json!({
        "messages": [{ "role": "user", "content": "Who is there?" }],
        "temperature": 0,
        "max_tokens": 80,
        "response_format": { "type": "json_schema", "json_schema": { "name": "person", "schema": schema() } },
    });
    let (status, answer) = post("/v1/chat/completions", &body);
    if status.is_success() {
        let text = answer["choices"][0]["message"]["content"].as_str().unwrap();
        assert!(serde_json::from_str::<Value>(text).unwrap()["name"].is_string(), "{text}");
    } else {
        // The bundled model may have no template.
        assert!(answer["error"]["message"].as_str().unwrap().contains("template"), "{answer}");
    }
}
