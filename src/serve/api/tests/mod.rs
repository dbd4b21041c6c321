//! The API against the library: answers over HTTP equal the calls with the same fields.
#![expect(clippy::unwrap_used, reason = "tests")]

mod adapters;
mod anthropic;
mod catalogues;
mod described;
mod ollama;
mod pooled;
mod reasoning;
mod refusals;
mod responses;
mod responses_kept;
mod several;
mod streams;
mod structured;
mod texts;
mod thinking;
mod tools;

use std::sync::LazyLock;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, StatusCode};
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::generator::Generator;
use crate::serve::{ServeOptions, router_with};
use rsgen_core::types::TokenId;
use rsgen_generation::{GenerationConfig, Strategy};
use rsgen_text::{ChatOptions, Message};

const PROMPT: &str = "Once upon a time";

struct Server {
    runtime: Runtime,
    generator: Generator,
    router: Router,
}

static SERVER: LazyLock<Server> = LazyLock::new(|| Server::new(ServeOptions::default()));

impl Server {
    fn new(options: ServeOptions) -> Self {
        let generator = Generator::bundled().unwrap();
        let router = router_with(generator.clone(), options).unwrap();
        Self { runtime: Runtime::new().unwrap(), generator, router }
    }

    fn request(&self, method: &str, path: &str, body: String) -> (StatusCode, HeaderMap, String) {
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let request = request.body(Body::from(body)).unwrap();
        let service = TowerToHyperService::new(self.router.clone());
        self.runtime.block_on(async {
            let response = service.call(request).await.unwrap();
            let (parts, body) = response.into_parts();
            let text = to_bytes(body, 64 << 20).await.unwrap();
            (parts.status, parts.headers, String::from_utf8(text.to_vec()).unwrap())
        })
    }
}

fn post(path: &str, body: &Value) -> (StatusCode, Value) {
    let (status, _, text) = SERVER.request("POST", path, body.to_string());
    (status, serde_json::from_str(&text).unwrap())
}

fn ok(path: &str, body: &Value) -> Value {
    let (status, answer) = post(path, body);
    assert_eq!(status, 200, "{body}: {answer}");
    answer
}

fn get(path: &str) -> (StatusCode, Value) {
    let (status, _, text) = SERVER.request("GET", path, String::new());
    (status, serde_json::from_str(&text).unwrap())
}

/// The events of a stream; its last line is `[DONE]` on OpenAI's routes.
fn events(path: &str, body: &Value) -> Vec<Value> {
    let (status, headers, text) = SERVER.request("POST", path, body.to_string());
    assert_eq!((status, &headers["content-type"] == "text/event-stream"), (StatusCode::OK, true), "{text}");
    events_of(path, &text)
}

fn events_of(path: &str, text: &str) -> Vec<Value> {
    let data: Vec<&str> =
        text.split_terminator("\n\n").filter_map(|event| event.strip_prefix("data: ")).collect();
    let (last, data) = data.split_last().unwrap();
    let mut events: Vec<Value> = data.iter().map(|data| serde_json::from_str(data).unwrap()).collect();
    match path {
        "/rsgen/v1/generate" => events.push(serde_json::from_str(last).unwrap()),
        _ => assert_eq!(*last, "[DONE]"),
    }
    events
}

/// The body with further fields.
fn with(body: &Value, fields: Value) -> Value {
    let Value::Object(fields) = fields else { panic!("{fields} is no object") };
    let mut body = body.clone();
    body.as_object_mut().unwrap().extend(fields);
    body
}

fn texts(answer: &Value) -> Vec<&str> {
    answer["choices"].as_array().unwrap().iter().map(|choice| choice["text"].as_str().unwrap()).collect()
}

/// The texts that the library generates.
fn generated(prompts: Vec<&str>, config: &GenerationConfig) -> Vec<String> {
    let output = SERVER.generator.generate(prompts, config).unwrap();
    output.texts().map(str::to_owned).collect()
}

#[test]
fn completions_are_what_the_library_generates() {
    let config = || GenerationConfig::new().max_new_tokens(6);
    let greedy = config().do_sample(false);
    let drawn = config().do_sample(true).temperature(1.0).top_p(1.0).top_k(0);
    for (fields, expected) in vec![
        (json!({ "temperature": 0 }), greedy.clone()),
        (json!({ "seed": 7 }), drawn.clone().seed(7)),
        (
            json!({ "seed": -1, "temperature": 0.5, "top_p": 0.9, "top_k": 20, "min_p": 0.01 }),
            drawn.clone().seed(u64::MAX).temperature(0.5).top_p(0.9).top_k(20).min_p(0.01),
        ),
        (
            json!({ "seed": 7, "top_k": -1, "n": 2, "presence_penalty": 1.0, "frequency_penalty": -0.5, "repetition_penalty": 1.1 }),
            drawn
                .clone()
                .seed(7)
                .num_return_sequences(2)
                .presence_penalty(1.0)
                .frequency_penalty(-0.5)
                .repetition_penalty(1.1),
        ),
        (
            json!({ "n": 3, "use_beam_search": true, "length_penalty": 0.5 }),
            greedy.clone().num_beams(3).num_return_sequences(3).length_penalty(0.5),
        ),
        (
            json!({ "num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 0.5, "n": 2 }),
            greedy.clone().num_beams(4).num_beam_groups(2).diversity_penalty(0.5).num_return_sequences(2),
        ),
        (json!({ "penalty_alpha": 0.6, "top_k": 4 }), greedy.clone().penalty_alpha(0.6).top_k(4)),
        (json!({ "temperature": 0, "prompt_lookup_num_tokens": 4 }), greedy.clone()),
        (
            json!({ "rsgen": { "dola_layers": "low", "repetition_penalty": 1.2 } }),
            greedy.clone().dola_layers(rsgen_generation::DolaLayers::Low).repetition_penalty(1.2),
        ),
        (
            json!({ "temperature": 0, "logit_bias": { "262": -100, "13": 2.5 } }),
            greedy
                .clone()
                .logit_bias(rsgen_generation::LogitBias::new([(TokenId(262), -100.0), (TokenId(13), 2.5)])),
        ),
        (
            json!({ "temperature": 0, "ignore_eos": true, "min_tokens": 6 }),
            greedy.clone().eos_token_id(Vec::new()).min_new_tokens(6),
        ),
        (
            json!({ "force_words_ids": [[262]], "num_beams": 2 }),
            greedy
                .clone()
                .num_beams(2)
                .force_words_ids(vec![rsgen_generation::config::ForcedWord::Phrase(vec![TokenId(262)])]),
        ),
    ] {
        let body = with(&json!({ "prompt": [PROMPT, "One day"], "max_tokens": 6 }), fields);
        let answer = ok("/v1/completions", &body);
        assert_eq!(texts(&answer), generated(vec![PROMPT, "One day"], &expected), "{body}");
        assert_eq!(answer["object"], "text_completion");
        let ids: Vec<u32> = SERVER
            .generator
            .tokenizer()
            .unwrap()
            .encode(PROMPT, true)
            .unwrap()
            .iter()
            .map(|id| id.0)
            .collect();
        let of_ids = ok("/v1/completions", &with(&body, json!({ "prompt": [ids] })));
        assert_eq!(texts(&of_ids), &texts(&answer)[..texts(&of_ids).len()]);
    }
}

/// The same request as a stream with its usage.
fn streamed(body: &Value) -> Value {
    with(body, json!({ "stream": true, "stream_options": { "include_usage": true } }))
}

/// Compares a whole answer with the parts of a stream.
fn compare(body: &Value, whole: &Value, parts: &[Value]) {
    let mut joined: Vec<Value> = whole["choices"].as_array().unwrap().iter().map(|choice| {
        json!({ "index": choice["index"], "text": "", "finish_reason": null, "stop_reason": null, "logprobs": null })
    }).collect();
    let (last, parts) = parts.split_last().unwrap();
    for part in parts {
        assert_eq!(part["usage"], Value::Null);
        let choice = &part["choices"][0];
        let into = &mut joined[choice["index"].as_u64().unwrap() as usize];
        assert_eq!(into["finish_reason"], Value::Null, "nothing follows the end");
        let text = choice["text"].as_str().or(choice["delta"]["content"].as_str()).unwrap_or_default();
        into["text"] = format!("{}{text}", into["text"].as_str().unwrap()).into();
        into["finish_reason"] = choice["finish_reason"].clone();
        into["stop_reason"] = choice["stop_reason"].clone();
        for (name, values) in choice["logprobs"].as_object().into_iter().flatten() {
            let Some(values) = values.as_array() else { continue };
            if into["logprobs"][name].is_null() {
                into["logprobs"][name] = json!([]);
            }
            into["logprobs"][name].as_array_mut().unwrap().extend(values.clone());
        }
    }
    assert_eq!(last["choices"], json!([]), "{body}");
    for name in ["prompt_tokens", "completion_tokens", "total_tokens"] {
        assert_eq!(last["usage"][name], whole["usage"][name], "{body}: {name}");
    }
    for (choice, joined) in whole["choices"].as_array().unwrap().iter().zip(joined) {
        let text = choice["text"].as_str().or(choice["message"]["content"].as_str()).unwrap();
        assert_eq!(joined["text"], text, "{body}");
        for name in ["finish_reason", "stop_reason", "index"] {
            assert_eq!(joined[name], choice[name], "{body}: {name}");
        }
        for (name, values) in choice["logprobs"].as_object().into_iter().flatten() {
            if values.is_array() {
                assert_eq!(&joined["logprobs"][name], values, "{body}: {name}");
            }
        }
    }
}

#[test]
fn the_parts_of_a_stream_joined_are_the_whole_answer() {
    let body = json!({ "prompt": PROMPT, "max_tokens": 5, "seed": 3 });
    for fields in [
        json!({}),
        json!({ "logprobs": 3 }),
        json!({ "n": 2, "logprobs": 0 }),
        json!({ "temperature": 0, "n": 2 }),
        json!({ "prompt": [PROMPT, "One day"], "n": 2 }),
        json!({ "use_beam_search": true, "n": 3, "logprobs": 2 }),
        json!({ "num_beams": 3, "early_stopping": true }),
        json!({ "echo": true, "logprobs": 2 }),
        json!({ "echo": true, "max_tokens": 0, "logprobs": 1 }),
        json!({ "temperature": 0, "stop": ["there was", " little"] }),
        json!({ "temperature": 0, "stop": " w", "include_stop_str_in_output": true }),
        json!({ "strategy": "contrastive", "logprobs": 2, "seed": null }),
        json!({ "prompt_lookup_num_tokens": 3, "logprobs": 2 }),
        json!({ "logit_bias": { "200": 100 }, "max_tokens": 4, "return_token_ids": true }),
    ] {
        let (path, body) = ("/v1/completions", with(&body, fields));
        compare(&body, &ok(path, &body), &events(path, &streamed(&body)));
    }
    let messages = json!([{ "role": "user", "content": "Tell me a story." }]);
    let body = json!({ "messages": messages, "max_tokens": 4, "seed": 3 });
    for fields in
        [json!({}), json!({ "logprobs": true, "top_logprobs": 2, "n": 2 }), json!({ "num_beams": 2 })]
    {
        let (path, body) = ("/v1/chat/completions", with(&body, fields));
        compare(&body, &ok(path, &body), &events(path, &streamed(&body)));
    }
}

#[test]
fn a_prompt_is_scored_exactly() {
    let scores = SERVER.generator.token_scores([PROMPT], 2).unwrap().remove(0);
    for max_tokens in [0, 1] {
        let body = json!({ "prompt": PROMPT, "max_tokens": max_tokens, "echo": true, "logprobs": 2, "temperature": 0, "prompt_logprobs": 1 });
        let answer = ok("/v1/completions", &body);
        let choice = &answer["choices"][0];
        assert_eq!(answer["usage"]["completion_tokens"], max_tokens);
        assert!(choice["text"].as_str().unwrap().starts_with(PROMPT));
        let logprobs = &choice["logprobs"];
        let numbers = logprobs["token_logprobs"].as_array().unwrap();
        assert_eq!(numbers.len(), scores.len() + max_tokens);
        assert_eq!((&numbers[0], &logprobs["top_logprobs"][0]), (&Value::Null, &Value::Null));
        for (index, score) in scores.iter().enumerate().skip(1) {
            assert_eq!(numbers[index], f64::from(score.logprob));
            let prompt = &choice["prompt_logprobs"][index][score.token_id.to_string()];
            assert_eq!((&prompt["logprob"], &prompt["rank"]), (&numbers[index], &json!(score.rank)));
        }
        for (index, name) in logprobs["tokens"].as_array().unwrap().iter().enumerate().skip(1) {
            let top = logprobs["top_logprobs"][index].as_object().unwrap();
            assert_eq!(
                top[name.as_str().unwrap()],
                numbers[index],
                "the token is there, with the same number"
            );
            let best = top.values().filter_map(Value::as_f64).fold(f64::NEG_INFINITY, f64::max);
            let is_best = scores.get(index).is_none_or(|score| score.rank == 1);
            assert_eq!(numbers[index] == best, is_best, "the best token is the one with the best number");
        }
        let text: String =
            logprobs["tokens"].as_array().unwrap().iter().map(|token| token.as_str().unwrap()).collect();
        assert!(text.ends_with(choice["text"].as_str().unwrap()), "{text}");
    }
    let many: Vec<&str> = vec![PROMPT; 128];
    assert_eq!(
        ok("/v1/completions", &json!({ "prompt": many, "max_tokens": 0 }))["choices"]
            .as_array()
            .unwrap()
            .len(),
        128
    );
}

#[test]
fn every_strategy_is_reached_by_its_name() {
    for strategy in Strategy::ALL {
        let mut fields = json!({ "strategy": strategy.name, "max_new_tokens": 5, "seed": 5 });
        let mut config = GenerationConfig::new().max_new_tokens(5).seed(5);
        match strategy.name {
            "constrained_beam_search" => {
                fields["force_words_ids"] = json!([[262]]);
                config = config
                    .force_words_ids(vec![rsgen_generation::config::ForcedWord::Phrase(vec![TokenId(262)])]);
            }
            "assisted_decoding" => {
                fields["assistant_early_exit"] = 1.into();
                config = config.assistant_early_exit(1);
            }
            _ => {}
        }
        let config = strategy.apply(&config, &GenerationConfig::new()).unwrap();
        let whole = ok("/rsgen/v1/generate", &with(&fields, json!({ "prompt": PROMPT, "stream": false })));
        let expected = SERVER.generator.generate(PROMPT, &config).unwrap();
        assert_eq!(whole["rows"][0]["text"], expected.text(), "{}", strategy.name);
        let stream = events("/rsgen/v1/generate", &with(&fields, json!({ "prompt": PROMPT })));
        assert_eq!((&stream[0]["type"], &stream[0]["strategy"]), (&json!("start"), &json!(strategy.name)));
        assert_eq!(stream.last().unwrap()["type"], "finish");
        assert!(stream.iter().zip(0..).all(|(event, seq)| event["seq"] == seq), "no gap");
        let tokens = stream.iter().filter(|event| event["type"] == "token");
        let text: String = tokens.map(|event| event["text"].as_str().unwrap()).collect();
        assert_eq!(text, expected.text(), "{}", strategy.name);
        // On OpenAI's routes too, where sampling has OpenAI's defaults.
        if config.do_sample != Some(true) {
            let own = fields.as_object().unwrap().clone();
            let answer = ok("/v1/completions", &json!({ "prompt": PROMPT, "rsgen": own }));
            assert_eq!(texts(&answer), [expected.text()], "{}", strategy.name);
        }
    }
    let (status, answer) = post("/v1/completions", &json!({ "prompt": PROMPT, "strategy": "guess" }));
    assert_eq!((status.as_u16(), &answer["error"]["param"]), (400, &json!("strategy")));
}

#[test]
fn a_chat_is_what_the_library_replies() {
    let messages = [Message::system("Be brief."), Message::user("Tell me a story.")];
    let config = GenerationConfig::new().do_sample(false).max_new_tokens(6);
    let expected = SERVER.generator.chat(&messages, &ChatOptions::default(), &config).unwrap();
    let messages: Vec<_> = messages.iter().map(|message| Value::Object(message.fields().clone())).collect();
    let body = json!({ "messages": messages, "max_completion_tokens": 6, "temperature": 0, "logprobs": true, "top_logprobs": 3 });
    let answer = ok("/v1/chat/completions", &body);
    let choice = &answer["choices"][0];
    assert_eq!(
        choice["message"],
        json!({ "role": "assistant", "content": expected.text(), "refusal": null })
    );
    assert_eq!(choice["finish_reason"], "length");
    for (entry, logprob) in
        choice["logprobs"]["content"].as_array().unwrap().iter().zip(&expected.rows[0].generated.logprobs)
    {
        assert_eq!(entry["logprob"], f64::from(*logprob));
        assert_eq!(entry["top_logprobs"].as_array().unwrap().len(), 3);
        assert_eq!(entry["top_logprobs"][0]["token"], entry["token"]);
        let bytes: Vec<u8> = serde_json::from_value(entry["bytes"].clone()).unwrap();
        assert_eq!(String::from_utf8(bytes).unwrap(), entry["token"].as_str().unwrap());
    }
    let parts = events("/v1/chat/completions", &with(&body, json!({ "stream": true })));
    assert_eq!(parts[0]["choices"][0]["delta"]["role"], "assistant", "the role comes first");
    let rendered = ok("/apply-template", &json!({ "messages": messages }));
    let tokens = ok("/tokenize", &json!({ "messages": messages }));
    assert_eq!(tokens["count"], answer["usage"]["prompt_tokens"]);
    assert!(rendered["prompt"].as_str().unwrap().contains("Tell me a story."));
}

#[test]
fn the_best_of_several_answers_have_the_greatest_average() {
    let body = json!({ "prompt": PROMPT, "max_tokens": 5, "seed": 9, "logprobs": 0 });
    let all = ok("/v1/completions", &with(&body, json!({ "n": 5 })));
    let mean = |choice: &Value| {
        let numbers = choice["logprobs"]["token_logprobs"].as_array().unwrap();
        numbers.iter().filter_map(Value::as_f64).sum::<f64>() / numbers.len() as f64
    };
    let mut choices = all["choices"].as_array().unwrap().clone();
    choices.sort_by(|a, b| mean(b).total_cmp(&mean(a)));
    let best = ok("/v1/completions", &with(&body, json!({ "n": 2, "best_of": 5 })));
    assert_eq!(texts(&best), texts(&json!({ "choices": choices[..2] })));
    let generated = |answer: &Value| answer["usage"]["completion_tokens"].clone();
    assert_eq!(generated(&best), generated(&all), "all of them were generated");
}

#[test]
fn usage_tells_how_much_of_a_prompt_was_cached() {
    let cached = |usage: &Value| usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    let [first, second] = ["lamp", "boat"].map(|word| format!("A {word} and a fox. ").repeat(12));
    let body = json!({ "prompt": first, "max_tokens": 2, "temperature": 0 });
    // Other tests have begun a text, too.
    assert!(cached(&ok("/v1/completions", &body)["usage"]) < 8);
    let again = ok("/v1/completions", &body);
    let usage = &again["usage"];
    assert!(cached(usage) > 32 && usage["prompt_tokens"].as_u64().unwrap() > cached(usage), "{usage}");
    for options in [json!({ "include_usage": true }), json!({ "continuous_usage_stats": true })] {
        let stream = with(&body, json!({ "stream": true, "stream_options": options }));
        assert_eq!(&events("/v1/completions", &stream).last().unwrap()["usage"], usage, "{options}");
    }
    let both = ok("/v1/completions", &with(&body, json!({ "prompt": [first, second] })));
    assert!((cached(usage)..cached(usage) + 8).contains(&cached(&both["usage"])), "{both}");
    let messages = json!([{ "role": "user", "content": first }]);
    let chat = json!({ "messages": messages, "max_tokens": 2, "temperature": 0 });
    let [first, second] = [(); 2].map(|()| cached(&ok("/v1/chat/completions", &chat)["usage"]));
    assert!(second > first + 32, "{first} {second}");
    let scored = ok("/v1/completions", &with(&body, json!({ "echo": true, "max_tokens": 0 })));
    assert_eq!(cached(&scored["usage"]), 0, "a score needs every token");
}

#[test]
fn tokenize_and_detokenize_round_trip() {
    let (text, tokenizer) = ("Once upon 日", SERVER.generator.tokenizer().unwrap());
    for add_special_tokens in [true, false] {
        let body =
            json!({ "prompt": text, "add_special_tokens": add_special_tokens, "return_token_strs": true });
        let answer = ok("/tokenize", &body);
        let ids: Vec<u32> =
            tokenizer.encode(text, add_special_tokens).unwrap().iter().map(|id| id.0).collect();
        assert_eq!(answer["tokens"], json!(ids));
        assert_eq!(answer["token_strs"].as_array().unwrap().len(), ids.len());
    }
    let ids = &ok("/tokenize", &json!({ "prompt": text, "add_special_tokens": false }))["tokens"];
    assert_eq!(ok("/detokenize", &json!({ "tokens": ids }))["prompt"], text);
    let (status, info) = get("/tokenizer_info");
    assert!(status == 200 && info["eos_token"].is_string() && info["chat_template"].is_string(), "{info}");
    let (_, models) = get("/v1/models");
    let id = models["data"][0]["id"].as_str().unwrap();
    assert_eq!(get(&format!("/v1/models/{id}")).1["max_model_len"], 512);
    let (status, error) = get("/v1/models/other/model");
    assert_eq!((status.as_u16(), &error["error"]["code"]), (404, &json!("model_not_found")));
}

#[test]
fn a_request_may_name_the_model_or_none() {
    let (_, models) = get("/v1/models");
    // huggingface_hub sends "dummy" where its caller names none.
    for model in [json!(null), models["data"][0]["id"].clone(), json!("dummy")] {
        ok("/v1/completions", &json!({ "model": model, "prompt": "Once", "max_tokens": 1 }));
    }
    let (status, error) =
        post("/v1/completions", &json!({ "model": "other", "prompt": "Once", "max_tokens": 1 }));
    assert_eq!((status.as_u16(), &error["error"]["code"]), (404, &json!("model_not_found")));
}
