//! The JSON text of answers: as long as estimated, at the most.

use super::super::text::{NUMBER_BYTES, estimated};
use super::*;

#[test]
fn no_answer_has_more_text_than_was_estimated_for_it() {
    let messages = json!([{ "role": "user", "content": "Tell me a story." }]);
    let common = json!({ "seed": 3, "ignore_eos": true, "max_tokens": 24 });
    for (path, fields, prompts, n, top, scored) in [
        ("/v1/completions", json!({ "prompt": PROMPT }), 1, 1, None, 0),
        ("/v1/completions", json!({ "prompt": [PROMPT, "A"], "n": 4, "logprobs": 20 }), 2, 4, Some(20), 0),
        (
            "/v1/completions",
            json!({ "prompt": PROMPT, "temperature": 0, "n": 9, "logprobs": 0 }),
            1,
            9,
            Some(0),
            0,
        ),
        (
            "/v1/completions",
            json!({ "prompt": PROMPT, "n": 2, "logprobs": 5, "echo": true, "prompt_logprobs": 20 }),
            1,
            2,
            Some(5),
            27,
        ),
        ("/v1/completions", json!({ "prompt": PROMPT, "n": 3, "prompt_logprobs": 20 }), 1, 3, None, 21),
        (
            "/v1/chat/completions",
            json!({ "messages": messages, "n": 4, "logprobs": true, "top_logprobs": 20 }),
            1,
            4,
            Some(20),
            0,
        ),
    ] {
        let body = with(&common, fields);
        let (status, headers, text) = SERVER.request("POST", path, body.to_string());
        assert_eq!((status.as_u16(), &headers["content-type"]), (200, &"application/json".parse().unwrap()));
        let answer: Value = serde_json::from_str(&text).unwrap();
        let of_prompt = answer["usage"]["prompt_tokens"].as_u64().unwrap() as usize;
        let (new, prompt) = (prompts * n * 24, of_prompt * n);
        let listed = top.map_or(0, |top| new * (top + 1)) + prompt * scored;
        // A text that grows takes twice its length. An answer has some fields, whatever it holds.
        let most = estimated(new + prompt, listed) + 2 * 600 * (1 + prompts * n);
        assert!(2 * text.len() <= most, "{body}: {} bytes, {most} estimated", text.len());
    }
    for (fields, alternatives) in [
        (json!({ "output_events": true }), 12),
        (json!({ "top_logprobs": 20 }), 20),
        (json!({ "num_beams": 3 }), 1),
    ] {
        let body = json!({ "prompt": PROMPT, "max_new_tokens": 24, "stream": false, "do_sample": false });
        let (status, _, text) = SERVER.request("POST", "/rsgen/v1/generate", with(&body, fields).to_string());
        assert_eq!(status, 200, "{text}");
        assert!(2 * text.len() <= estimated(72, 24 * alternatives) + 16_384, "{}", text.len());
    }
}

#[test]
fn no_vector_has_more_text_than_was_estimated_for_it() {
    for (path, fields) in [
        ("/v1/embeddings", json!({})),
        ("/v1/embeddings", json!({ "use_activation": false, "pooling": "last" })),
        ("/v1/embeddings", json!({ "encoding_format": "base64" })),
        ("/api/embed", json!({})),
    ] {
        let body = with(&json!({ "input": vec!["Tom had a dog."; 20] }), fields);
        let (status, _, text) = SERVER.request("POST", path, body.to_string());
        assert_eq!(status, 200, "{text}");
        let size = SERVER.generator.engine().model().hidden_size();
        // The numbers themselves, and a text that grows to twice its length.
        let taken = 20 * size * size_of::<f32>() + 2 * text.len();
        assert!(taken <= 20 * size * NUMBER_BYTES, "{body}: {taken}");
    }
}

/// A prompt is extended, replaced, stripped, or left as it is.
#[test]
fn the_offset_of_each_token_is_its_place_in_the_text() {
    for prompt in ["T", "  T", "Once upon a ti", "One day, a lit", "Once upon a time"] {
        for fields in [
            json!({}),
            json!({ "echo": true }),
            json!({ "n": 2, "temperature": 1, "seed": 1, "echo": true }),
            json!({ "num_beams": 3, "n": 2 }),
            json!({ "stop": "the" }),
        ] {
            for healing in [true, false] {
                let body = with(
                    &json!({ "prompt": prompt, "max_tokens": 8, "temperature": 0, "logprobs": 0 }),
                    fields.clone(),
                );
                let body = with(&body, json!({ "token_healing": healing }));
                let (_, answer) = post("/v1/completions", &body);
                let generator = &SERVER.generator;
                let config =
                    GenerationConfig::new().token_healing(healing).do_sample(false).max_new_tokens(8);
                let whole = generator.generate(prompt, &config).unwrap();
                for choice in answer["choices"].as_array().unwrap() {
                    let text: Vec<char> = choice["text"].as_str().unwrap().chars().collect();
                    let logprobs = &choice["logprobs"];
                    let tokens = logprobs["tokens"].as_array().unwrap().iter();
                    let offsets = logprobs["text_offset"]
                        .as_array()
                        .unwrap()
                        .iter()
                        .map(|offset| offset.as_u64().unwrap() as usize);
                    let first = if fields["echo"] == true { 0 } else { whole.rows[0].healed.chars().count() };
                    let placed: Vec<(usize, &str)> =
                        offsets.zip(tokens.map(|token| token.as_str().unwrap())).collect();
                    if fields.get("n").is_none() {
                        assert_eq!(placed[0].0, first, "{body}: {answer}");
                    }
                    // White space around a healed prompt is gone, from the text but not from its tokens.
                    let is_stripped = healing && prompt.trim() != prompt && fields["echo"] == true;
                    let of_prompt = if is_stripped {
                        generator.tokenizer().unwrap().encode(prompt, true).unwrap().len()
                    } else {
                        0
                    };
                    for (offset, token) in placed.into_iter().skip(of_prompt) {
                        let token: Vec<char> = token.chars().filter(|_| !token.starts_with('<')).collect();
                        // What follows a stop string is cut.
                        let rest = text.get(offset..).unwrap_or_default();
                        let len = token.len().min(rest.len());
                        let is_cut = rest.len() < token.len() && fields.get("stop").is_some();
                        assert!(
                            rest.starts_with(&token) || (is_cut && rest == &token[..len]),
                            "{body}: {token:?} at {offset}: {answer}"
                        );
                    }
                }
            }
        }
    }
}
