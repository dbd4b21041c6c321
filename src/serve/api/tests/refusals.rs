//! What requests may not say: ranges, contradictions, unknown fields, and anything at random.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::fields::{self, CHAT, COMPLETIONS, GENERATE, Kind, RESPONSES};
use super::super::foreign;
use super::{PROMPT, SERVER, Server, post, with};
use crate::serve::ServeOptions;
use rsgen_generation::GenerationConfig;
use rsgen_generation::config::FieldKind;

#[test]
fn numbers_out_of_range_are_refused() {
    for (route, path) in [
        (COMPLETIONS, "/v1/completions"),
        (CHAT, "/v1/chat/completions"),
        (RESPONSES, "/v1/responses"),
        (GENERATE, "/rsgen/v1/generate"),
    ] {
        let body = match route {
            CHAT => json!({ "messages": [{ "role": "user", "content": "Hi" }] }),
            RESPONSES => json!({ "input": "Hi" }),
            _ => json!({ "prompt": PROMPT }),
        };
        for field in fields::of_route(route) {
            let beyond: Vec<Value> = match field.kind {
                Kind::Of(FieldKind::Int(least, most)) => {
                    // Some are beyond the integers of Rust.
                    let number = |value: i128| serde_json::from_str(&value.to_string()).unwrap();
                    vec![number(least - 1), number(most + 1), number(1 << 63), json!(0.5)]
                }
                Kind::Of(FieldKind::Float(least, most)) => {
                    vec![json!(least - 0.001), json!(most * 1.001 + 0.001), json!(1e300)]
                }
                _ => continue,
            };
            for value in beyond.into_iter().chain([
                json!("NaN"),
                json!({ "__float__": "NaN" }),
                json!([]),
                json!(true),
            ]) {
                let (status, answer) = post(path, &with(&body, json!({ field.name: value })));
                assert_eq!(
                    (status.as_u16(), &answer["error"]["param"]),
                    (400, &json!(field.name)),
                    "{value}: {answer}"
                );
            }
        }
    }
}

#[test]
fn each_field_that_is_refused_is_the_param() {
    let wrong = [
        json!("("),
        json!([]),
        json!([[]]),
        json!([-1]),
        json!([4_000_000_000_u32]),
        json!({ "not": {} }),
        json!(-1),
        json!(0),
        json!(1.5),
        json!(1e300),
        json!(u64::MAX),
        json!(4_000_000_000_u32),
    ];
    for info in GenerationConfig::FIELDS {
        let mut refused = 0;
        for value in &wrong {
            let body = json!({ "prompt": PROMPT, "max_new_tokens": 2, "stream": false });
            let (status, answer) = post("/rsgen/v1/generate", &with(&body, json!({ info.name: value })));
            if status != 400 {
                continue;
            }
            refused += 1;
            let error = &answer["error"];
            assert_eq!(error["param"], info.name, "{value}: {error}");
            let message = error["message"].as_str().unwrap();
            assert!(message.starts_with(&format!("`{}` ", info.name)), "{message}");
            assert!(!message.contains("; None "), "Python's word: {message}");
        }
        assert!(refused > 0, "{} takes everything", info.name);
    }
}

#[test]
fn what_cannot_be_is_refused_with_the_name_of_its_field() {
    let long = "word ".repeat(600);
    for (fields, param, words) in [
        (json!({ "prompt": null }), "prompt", "is missing"),
        (json!({ "prompt": [] }), "prompt", "at least one prompt"),
        (json!({ "prompt": [1, "a"] }), "prompt", "token 1 must be a token id"),
        (json!({ "prompt": [[1], [99999]] }), "prompt", "the id 99999 (token 0)"),
        (json!({ "prompt": vec!["a"; 129] }), "prompt", "at most 128 prompts"),
        (json!({ "prompt": vec!["a"; 33], "n": 2 }), "prompt", "at most 64 rows"),
        (json!({ "prompt": long }), "max_tokens", "the context holds 512 tokens"),
        (json!({ "max_tokens": 510 }), "max_tokens", "asks for 510 more"),
        (json!({ "suffix": "end" }), "suffix", "not supported"),
        (json!({ "glossary": { "fox": "Fuchs" }, "num_beams": 2 }), "glossary", "have an encoder"),
        (json!({ "glossary": { "fox": "" }, "num_beams": 2 }), "glossary", "1 to 4096 bytes"),
        (json!({ "n": 3, "best_of": 2 }), "best_of", "at least `n`"),
        (json!({ "best_of": 2, "stream": true }), "best_of", "leave it out"),
        (json!({ "n": 2, "num_return_sequences": 3 }), "n", "leave out one"),
        (json!({ "max_tokens": 2, "max_new_tokens": 3 }), "max_tokens", "leave out one"),
        (json!({ "top_k": 2, "rsgen": { "top_k": 3 } }), "rsgen.top_k", "given twice"),
        (json!({ "rsgen": { "topk": 3 } }), "rsgen.topk", "did you mean `top_k`"),
        (json!({ "temperature": 0, "do_sample": true }), "temperature", "leave out one"),
        (json!({ "temperature": 0.7, "use_beam_search": true, "n": 2 }), "temperature", "does not sample"),
        (json!({ "strategy": "beam_search", "num_beams": 1 }), "num_beams", "2 or more"),
        (json!({ "guidance_scale": 1e9 }), "guidance_scale", "-100 to 100"),
        (json!({ "guidance_scale": 2, "negative_prompt": 5 }), "negative_prompt", "a text"),
        (json!({ "use_mtp": true }), "use_mtp", "not possible"),
        (json!({ "stop": vec!["a"; 17] }), "stop", "up to 16"),
        (json!({ "stop": "" }), "stop", "1 to 4096 bytes"),
        (json!({ "stop": ["a".repeat(4000), "b".repeat(4000)] }), "stop", "4096 bytes together"),
        (json!({ "logit_bias": { "99999": 1 } }), "logit_bias", "the id 99999"),
        (json!({ "logit_bias": { "1": 101 } }), "logit_bias", "-100 to 100"),
        (json!({ "stop_token_ids": [99999] }), "stop_token_ids", "the id 99999"),
        (json!({ "allowed_token_ids": [] }), "allowed_token_ids", "at least one"),
        (json!({ "prompt_logprobs": 1, "stream": true }), "prompt_logprobs", "stream"),
        (
            json!({ "stream": true, "stream_options": { "include_usage": 1 } }),
            "stream_options",
            "true or false",
        ),
        (json!({ "model": "gpt-4" }), "", "is not served"),
        (json!({ "cache_salt": "" }), "cache_salt", "1 to 1024 bytes"),
    ] {
        let body = with(&json!({ "prompt": PROMPT }), fields);
        let (status, answer) = post("/v1/completions", &body);
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(status.is_client_error() && message.contains(words), "{words}: {answer}");
        assert_eq!(answer["error"]["param"].as_str().unwrap_or_default(), param, "{answer}");
    }
    let messages = json!([{ "role": "user", "content": "Hi" }]);
    for (fields, param) in [
        (json!({ "chat_template": "{{ 1 }}" }), "chat_template"),
        (json!({ "response_format": { "type": "xml" } }), "response_format"),
        (json!({ "response_format": { "type": "json_schema" } }), "response_format"),
        (
            json!({ "response_format": { "type": "json_schema", "json_schema": { "schema": { "not": {} } } } }),
            "response_format",
        ),
        (json!({ "response_format": { "type": "json_object" }, "guided_regex": "a" }), "guided_regex"),
        (json!({ "regex": "a", "guided_json": {} }), "guided_json"),
        (json!({ "guided_json": 3 }), "guided_json"),
        (json!({ "guided_regex": "(" }), "guided_regex"),
        (json!({ "guided_grammar": "start: other" }), "guided_grammar"),
        (json!({ "guided_choice": [] }), "guided_choice"),
        (json!({ "structured_outputs": {} }), "structured_outputs"),
        (json!({ "structured_outputs": { "regex": "a", "json": {} } }), "structured_outputs"),
        (json!({ "structured_outputs": { "regex": 3 } }), "structured_outputs"),
        (json!({ "json_schema": { "type": "string", "format": 3 } }), "json_schema"),
        (json!({ "top_logprobs": 2 }), "top_logprobs"),
        (json!({ "chat_template_kwargs": { "eos_token": "x" } }), "chat_template_kwargs"),
        (json!({ "chat_template_kwargs": { "a": "x".repeat(20_000) } }), "chat_template_kwargs"),
        (json!({ "messages": [{ "content": "Hi" }] }), "messages[0]"),
        (json!({ "messages": [] }), "messages"),
        (json!({ "messages": null }), "messages"),
        (json!({ "tool_choice": "required" }), "tool_choice"),
        (json!({ "tool_choice": "some" }), "tool_choice"),
        (json!({ "tool_choice": { "type": "function", "function": {} } }), "tool_choice"),
        (json!({ "tools": [{ "type": "function", "function": { "name": "f" } }] }), "tools"),
        (json!({ "tools": [{ "type": "function" }] }), "tools"),
    ] {
        let (status, answer) = post("/v1/chat/completions", &with(&json!({ "messages": messages }), fields));
        assert_eq!((status.as_u16(), &answer["error"]["param"]), (400, &json!(param)), "{answer}");
    }
    let (status, answer) = post("/v1/completions", &json!({ "prompt": vec![5; 500], "max_tokens": 13 }));
    assert_eq!((status.as_u16(), &answer["error"]["code"]), (400, &json!("context_length_exceeded")));
    let body = json!({ "prompt": "a", "sequence_bias": [[[5, 6], -1.5], [[3], 1e300]], "seed": 3, "do_sample": true });
    for path in ["/v1/completions", "/rsgen/v1/generate"] {
        let (status, answer) = post(path, &with(&body, json!({ "stream": false })));
        assert_eq!((status.as_u16(), &answer["error"]["param"]), (400, &json!("sequence_bias")), "{answer}");
        let (_, _, text) = SERVER.request("POST", path, with(&body, json!({ "stream": true })).to_string());
        let last = text.trim_end().rsplit("data: ").next().unwrap();
        assert_eq!(serde_json::from_str::<Value>(last).unwrap()["error"]["param"], "sequence_bias", "{text}");
    }
    for name in ["output_scores", "output_logits", "output_hidden_states", "output_attentions"] {
        let (status, _) = post("/rsgen/v1/generate", &json!({ "prompt": PROMPT, name: true }));
        assert_eq!(status, 400);
    }
}

#[test]
fn unknown_fields_are_ignored_and_named_or_refused() {
    let body = json!({ "prompt": PROMPT, "max_tokens": 1, "store": true, "temprature": 0.1, "a\nb": 1 });
    let (status, headers, _) = SERVER.request("POST", "/v1/completions", body.to_string());
    assert_eq!(
        (status.as_u16(), headers["x-rsgen-ignored"].to_str().unwrap()),
        (200, "store, temprature, a?b")
    );
    for (path, wrong, field) in [
        ("/v1/completions", json!({ "promt": PROMPT }), "prompt"),
        ("/v1/chat/completions", json!({ "message": [] }), "messages"),
        ("/v1/responses", json!({ "messages": [] }), "input"),
        ("/rsgen/v1/generate", json!({ "message": [] }), "prompt"),
        ("/tokenize", json!({ "text": PROMPT }), "prompt"),
        ("/detokenize", json!({ "token": [1] }), "tokens"),
        ("/apply-template", json!({ "message": [] }), "messages"),
    ] {
        let (status, answer) = post(path, &wrong);
        assert_eq!((status.as_u16(), &answer["error"]["param"]), (400, &json!(field)));
        let message = answer["error"]["message"].as_str().unwrap();
        let unknown = wrong.as_object().unwrap().keys().next().unwrap();
        assert!(message.contains(&format!("`{field}` is missing")), "{message}");
        assert!(message.contains(&format!("`{unknown}` is no field")), "{message}");
    }
    let strict = Server::new(ServeOptions { strict_api: true, ..ServeOptions::default() });
    let (status, _, text) = strict.request("POST", "/v1/completions", body.to_string());
    assert!(status == 400 && text.contains("`store` is not a field of this request"), "{text}");
}

#[test]
fn foreign_fields_are_refused_where_they_would_change_an_answer_and_taken_where_not() {
    let strict = Server::new(ServeOptions { strict_api: true, ..ServeOptions::default() });
    for (route, path) in [
        (COMPLETIONS, "/v1/completions"),
        (CHAT, "/v1/chat/completions"),
        (RESPONSES, "/v1/responses"),
        (GENERATE, "/rsgen/v1/generate"),
    ] {
        let body = match route {
            CHAT => json!({ "messages": [{ "role": "user", "content": "Hi" }], "max_tokens": 1 }),
            RESPONSES => json!({ "input": "Hi", "max_output_tokens": 1 }),
            COMPLETIONS => json!({ "prompt": PROMPT, "max_tokens": 1 }),
            _ => json!({ "prompt": PROMPT, "max_new_tokens": 1, "stream": false }),
        };
        for (name, neutral, instead) in foreign::fields() {
            if fields::of_route(route).any(|field| field.name == name) {
                continue;
            }
            let mut neutral: Vec<Value> = serde_json::from_str(neutral).unwrap();
            neutral.push(Value::Null);
            for value in neutral {
                let body = with(&body, json!({ name: value }));
                let (status, headers, text) = strict.request("POST", path, body.to_string());
                assert!(status == 200 && !headers.contains_key("x-rsgen-ignored"), "{body}: {text}");
            }
            for value in [json!(2.5), json!("x"), json!([1]), json!({ "a": 1 })] {
                let (status, answer) = post(path, &with(&body, json!({ name: value })));
                let error = &answer["error"];
                assert_eq!((status.as_u16(), &error["param"]), (400, &json!(name)), "{value}: {answer}");
                let message = error["message"].as_str().unwrap();
                assert!(
                    message.contains("would change the answer") && message.contains(instead),
                    "{message}"
                );
            }
        }
    }
    // What cannot change the tokens stays ignored.
    for name in [
        "user_name",
        "metadata",
        "store",
        "service_tier",
        "priority",
        "cache_prompt",
        "id_slot",
        "prediction",
        "mirostat_tau",
        "dry_base",
        "xtc_threshold",
        "spaces_between_special_tokens",
        "timings_per_token",
    ] {
        let body = json!({ "prompt": PROMPT, "max_tokens": 1, name: 3 });
        let (status, headers, text) = SERVER.request("POST", "/v1/completions", body.to_string());
        assert!(status == 200 && headers["x-rsgen-ignored"] == name, "{body}: {text}");
    }
    // Off, in the words of vLLM and llama.cpp.
    for top_k in [json!(-1), json!(0), Value::Null] {
        for own in [json!({ "top_k": top_k }), json!({ "rsgen": { "top_k": top_k } })] {
            let body = with(&json!({ "prompt": PROMPT, "max_tokens": 3, "seed": 5 }), own);
            let (status, answer) = post("/v1/completions", &body);
            let (_, expected) =
                post("/v1/completions", &json!({ "prompt": PROMPT, "max_tokens": 3, "seed": 5 }));
            assert_eq!((status.as_u16(), &answer["choices"]), (200, &expected["choices"]), "{body}");
        }
    }
}

#[test]
fn ranges_of_penalties_are_refused_beside_a_penalty_and_ignored_without_one() {
    let body = json!({ "prompt": PROMPT, "max_tokens": 1 });
    for (name, neutral, _) in foreign::ranges() {
        let mut neutral: Vec<Value> = serde_json::from_str(neutral).unwrap();
        neutral.push(Value::Null);
        for (penalty, off) in foreign::PENALTIES {
            for value in [json!(64), json!(0.5), json!("x")] {
                for on in [json!({ penalty: 1.5 }), json!({ "rsgen": { penalty: 1.5 } })] {
                    let (status, answer) =
                        post("/v1/completions", &with(&with(&body, on), json!({ name: value })));
                    assert_eq!((status.as_u16(), &answer["error"]["param"]), (400, &json!(name)), "{answer}");
                    let message = answer["error"]["message"].as_str().unwrap();
                    assert!(message.contains(penalty), "{message}");
                }
                for without in [json!({}), json!({ penalty: off }), json!({ "rsgen": { penalty: null } })] {
                    let body = with(&with(&body, without), json!({ name: value }));
                    let (status, headers, text) = SERVER.request("POST", "/v1/completions", body.to_string());
                    let ignored = headers.get("x-rsgen-ignored").map(|names| names.to_str().unwrap());
                    assert_eq!((status.as_u16(), ignored), (200, Some(name)), "{body}: {text}");
                }
            }
            for value in &neutral {
                let body = with(&body, json!({ name: value, penalty: 1.5 }));
                let (status, headers, text) = SERVER.request("POST", "/v1/completions", body.to_string());
                assert!(status == 200 && !headers.contains_key("x-rsgen-ignored"), "{body}: {text}");
            }
        }
    }
}

/// A value, often one that some field takes.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3_i64..30).prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-2.0_f64..2.0).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z .日\u{0}]{0,6}".prop_map(Value::from),
        Just(json!("low")),
        Just(json!({ "__float__": "NaN" })),
        Just(json!([[[5, 6], -1.5], [[3], 1e300]])),
        Just(json!({ "7": -50.0, "5": 100 })),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec(("[a-z0-9]{1,3}", inner), 0..3)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

/// The routes whose fields get any values.
const HOSTILE: &[(fields::Routes, &str)] = &[
    (COMPLETIONS, "/v1/completions"),
    (CHAT, "/v1/chat/completions"),
    (GENERATE, "/rsgen/v1/generate"),
    (fields::EMBEDDINGS, "/v1/embeddings"),
    (fields::SCORE, "/v1/score"),
    (fields::RERANK, "/v1/rerank"),
    (RESPONSES, "/v1/responses"),
    (fields::MESSAGES, "/v1/messages"),
    (fields::COUNT_TOKENS, "/v1/messages/count_tokens"),
    (fields::OLLAMA_CHAT, "/api/chat"),
    (fields::OLLAMA_GENERATE, "/api/generate"),
    (fields::OLLAMA_EMBED, "/api/embed"),
    (fields::OLLAMA_SHOW, "/api/show"),
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 320, ..ProptestConfig::default() })]

    #[test]
    fn no_request_is_a_defect_of_the_server(
        route in 0..HOSTILE.len(),
        chosen in proptest::collection::vec((any::<prop::sample::Index>(), value()), 0..5),
        many in prop::bool::weighted(0.2),
    ) {
        let (mask, path) = HOSTILE[route];
        let names: Vec<&str> = fields::of_route(mask).map(|field| field.name).collect();
        let mut body = match mask {
            CHAT | fields::MESSAGES | fields::COUNT_TOKENS => {
                json!({ "messages": [{ "role": "user", "content": "Hi" }], "max_tokens": 2 })
            }
            RESPONSES => json!({ "input": "Hi", "max_output_tokens": 2 }),
            fields::OLLAMA_CHAT => {
                json!({ "messages": [{ "role": "user", "content": "Hi" }], "options": { "num_predict": 2 } })
            }
            fields::OLLAMA_GENERATE => json!({ "prompt": "Hi", "options": { "num_predict": 2 } }),
            fields::OLLAMA_EMBED => json!({ "input": "Hi" }),
            fields::OLLAMA_SHOW => json!({}),
            fields::EMBEDDINGS => json!({ "input": "a" }),
            fields::SCORE => json!({ "text_1": "a", "text_2": ["b", "c"] }),
            fields::RERANK => json!({ "query": "a", "documents": ["b", { "text": "c" }] }),
            COMPLETIONS => json!({ "prompt": if many { json!(["a", "b"]) } else { json!("a") }, "max_tokens": 2 }),
            _ => json!({ "prompt": "a", "max_new_tokens": 2 }),
        };
        for (index, value) in chosen {
            body[*index.get(&names)] = value;
        }
        let (status, _, text) = SERVER.request("POST", path, body.to_string());
        prop_assert!(status.is_success() || status.is_client_error(), "{body}: {text}");
        prop_assert!(!text.contains("\"server_error\""), "{body}: {text}");
        prop_assert!(!text.contains("\"api_error\""), "{body}: {text}");
    }
}
