//! Vectors, scores and rankings over HTTP against those of the library.

use serde_json::{Value, json};

use super::*;
use crate::generator::Pooling;

const TEXTS: [&str; 3] = ["Tom had a dog.", "Tom had a cat.", "It rained all day."];

/// The vectors of the library.
fn vectors(texts: &[&str], pooling: Pooling, normalize: bool) -> Vec<Vec<f32>> {
    SERVER.generator.embed_texts(texts.to_vec(), pooling, -1, normalize, &mut || false).unwrap()
}

fn embeddings(answer: &Value) -> Vec<Vec<f32>> {
    let data = answer["data"].as_array().unwrap();
    assert!(
        data.iter().zip(0..).all(|(item, index)| item["index"] == index && item["object"] == "embedding")
    );
    data.iter().map(|item| serde_json::from_value(item["embedding"].clone()).unwrap()).collect()
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
}

#[test]
fn embeddings_are_those_of_the_library_in_every_form_of_input() {
    let tokenizer = SERVER.generator.tokenizer().unwrap();
    let ids: Vec<Vec<u32>> = TEXTS
        .iter()
        .map(|text| tokenizer.encode(text, true).unwrap().iter().map(|id| id.0).collect())
        .collect();
    let expected = vectors(&TEXTS, Pooling::Mean, true);
    let tokens: usize = ids.iter().map(Vec::len).sum();
    for input in [json!(TEXTS), json!(ids)] {
        let answer = ok("/v1/embeddings", &json!({ "input": input }));
        assert_eq!(embeddings(&answer), expected);
        assert_eq!(answer["usage"]["prompt_tokens"], tokens);
        assert_eq!((&answer["usage"]["total_tokens"], &answer["object"]), (&json!(tokens), &json!("list")));
    }
    for input in [json!(TEXTS[0]), json!(ids[0])] {
        assert_eq!(embeddings(&ok("/v1/embeddings", &json!({ "input": input }))), expected[..1]);
    }
    for (name, pooling) in [("mean", Pooling::Mean), ("last", Pooling::Last), ("cls", Pooling::Cls)] {
        for field in ["use_activation", "normalize"] {
            let answer = ok("/v1/embeddings", &json!({ "input": TEXTS, "pooling": name, field: false }));
            assert_eq!(embeddings(&answer), vectors(&TEXTS, pooling, false), "{name}");
        }
    }
    let many = ok("/v1/embeddings", &json!({ "input": vec!["a"; 300], "dimensions": 1 }));
    assert_eq!(embeddings(&many).len(), 300);
}

#[test]
fn fewer_dimensions_are_the_first_ones_made_as_long_as_one() {
    let whole = vectors(&TEXTS[..1], Pooling::Mean, false).remove(0);
    let cut = embeddings(&ok("/v1/embeddings", &json!({ "input": TEXTS[0], "dimensions": 5 }))).remove(0);
    let length = dot(&whole[..5], &whole[..5]).sqrt();
    let expected: Vec<f32> = whole[..5].iter().map(|&number| (f64::from(number) / length) as f32).collect();
    assert_eq!(cut, expected);
    let raw = json!({ "input": TEXTS[0], "dimensions": 5, "use_activation": false });
    assert_eq!(embeddings(&ok("/v1/embeddings", &raw))[0], whole[..5]);
    let (status, answer) = post("/v1/embeddings", &json!({ "input": "a", "dimensions": whole.len() + 1 }));
    assert_eq!((status.as_u16(), &answer["error"]["param"]), (400, &json!("dimensions")));
}

#[test]
fn a_long_text_is_cut_on_the_side_that_the_request_names_or_refused() {
    let ids: Vec<u32> = (5..25).collect();
    for (side, kept) in [(json!(null), &ids[16..]), (json!("left"), &ids[16..]), (json!("right"), &ids[..4])]
    {
        let body = json!({ "input": ids, "truncate_prompt_tokens": 4, "truncation_side": side });
        let answer = ok("/v1/embeddings", &body);
        assert_eq!(answer["usage"]["prompt_tokens"], 4);
        assert_eq!(answer["data"], ok("/v1/embeddings", &json!({ "input": kept }))["data"], "{side}");
    }
    let long = vec![5; 600];
    let answer = ok("/v1/embeddings", &json!({ "input": long, "truncate_prompt_tokens": -1 }));
    assert_eq!(answer["usage"]["prompt_tokens"], 512, "the whole context");
    for (path, body, param) in [
        ("/v1/embeddings", json!({ "input": [[1], long] }), "input"),
        ("/v1/score", json!({ "text_1": "a", "text_2": "word ".repeat(600) }), "text_2"),
        ("/v1/rerank", json!({ "query": "a", "documents": ["b", "word ".repeat(600)] }), "documents"),
    ] {
        let (status, answer) = post(path, &body);
        let error = &answer["error"];
        assert_eq!((status.as_u16(), &error["param"]), (400, &json!(param)), "{answer}");
        assert_eq!(error["code"], "context_length_exceeded", "{answer}");
        assert!(error["message"].as_str().unwrap().contains("the context holds 512"), "{answer}");
    }
}

#[test]
fn scores_are_cosines_and_rankings_their_order() {
    let unit = vectors(&TEXTS, Pooling::Mean, true);
    let cosine = |a: usize, b: usize| dot(&unit[a], &unit[b]);
    let close = |number: &Value, expected: f64| {
        // The vectors of the library are rounded to 32 bits once more.
        assert!((number.as_f64().unwrap() - expected).abs() < 1e-6, "{number} {expected}");
    };
    for (first, second) in
        [("text_1", "text_2"), ("queries", "documents"), ("queries", "items"), ("data_1", "data_2")]
    {
        let answer = ok("/v1/score", &json!({ first: TEXTS[0], second: TEXTS[1..] }));
        assert_eq!((answer["data"].as_array().unwrap().len(), &answer["data"][1]["index"]), (2, &json!(1)));
        close(&answer["data"][0]["score"], cosine(0, 1));
        close(&answer["data"][1]["score"], cosine(0, 2));
        let pairs = ok("/v1/score", &json!({ first: TEXTS[..2], second: TEXTS[1..] }));
        close(&pairs["data"][0]["score"], cosine(0, 1));
        close(&pairs["data"][1]["score"], cosine(1, 2));
        assert_eq!(answer["data"][0]["object"], "score");
    }
    close(&ok("/v1/score", &json!({ "text_1": "a", "text_2": "a" }))["data"][0]["score"], 1.0);
    let documents = json!([TEXTS[2], { "text": TEXTS[1] }, TEXTS[2]]);
    let answer = ok("/v1/rerank", &json!({ "query": TEXTS[0], "documents": documents }));
    let results = answer["results"].as_array().unwrap();
    let order: Vec<_> = results.iter().map(|result| result["index"].as_u64().unwrap()).collect();
    assert_eq!(order, [1, 0, 2], "of equal scores the first comes first");
    close(&results[0]["relevance_score"], cosine(0, 1));
    assert_eq!(results[0]["document"], json!({ "text": TEXTS[1] }));
    assert!(answer["usage"]["total_tokens"].as_u64().unwrap() > 10);
    let body = json!({ "query": TEXTS[0], "documents": documents, "top_n": 1, "return_documents": false });
    let answer = ok("/v1/rerank", &body);
    assert_eq!(answer["results"].as_array().unwrap().len(), 1);
    assert!(answer["results"][0].get("document").is_none());
    let all = ok("/v1/rerank", &json!({ "query": "a", "documents": ["b", "c"], "top_n": 0 }));
    assert_eq!(all["results"].as_array().unwrap().len(), 2);
}

#[test]
fn what_has_no_vector_is_refused_with_the_name_of_its_field() {
    for (path, body, param, words) in [
        ("/v1/embeddings", json!({}), "input", "is missing"),
        ("/v1/embeddings", json!({ "inputs": "a" }), "input", "`inputs` is no field"),
        ("/v1/embeddings", json!({ "input": [] }), "input", "at least one"),
        ("/v1/embeddings", json!({ "input": vec!["a"; 2049] }), "input", "at most 2048"),
        ("/v1/embeddings", json!({ "input": [1, "a"] }), "input", "token 1"),
        ("/v1/embeddings", json!({ "input": [[1], [99999]] }), "input", "the id 99999"),
        ("/v1/embeddings", json!({ "input": "a", "encoding_format": "hex" }), "encoding_format", "base64"),
        ("/v1/embeddings", json!({ "input": "a", "pooling": "max" }), "pooling", "mean"),
        ("/v1/embeddings", json!({ "input": "a", "layer": 99 }), "layer", "must be from"),
        ("/v1/embeddings", json!({ "input": "a", "embed_dtype": "float16" }), "embed_dtype", "float32"),
        (
            "/v1/embeddings",
            json!({ "input": "a", "normalize": true, "use_activation": false }),
            "use_activation",
            "leave out one",
        ),
        ("/v1/score", json!({}), "text_1", "is missing"),
        ("/v1/score", json!({ "text_2": "a" }), "text_1", "is missing"),
        ("/v1/score", json!({ "queries": "a" }), "documents", "is missing"),
        ("/v1/score", json!({ "text_1": ["a", "b"], "text_2": ["a"] }), "text_1", "as many as"),
        ("/v1/score", json!({ "text_1": [], "text_2": ["a"] }), "text_1", "at least one"),
        ("/v1/score", json!({ "text_1": "a", "text_2": "b", "data_2": "c" }), "data_2", "no place"),
        ("/v1/score", json!({ "text_1": 5, "text_2": "b" }), "text_1", "must be"),
        ("/v1/rerank", json!({ "documents": ["a"] }), "query", "is missing"),
        ("/v1/rerank", json!({ "query": "a" }), "documents", "is missing"),
        ("/v1/rerank", json!({ "query": "a", "documents": [] }), "documents", "at least one"),
        ("/v1/rerank", json!({ "query": "a", "documents": ["b", {}] }), "documents[1]", "`text`"),
        (
            "/v1/rerank",
            json!({ "query": "a", "documents": [{ "image": "data:," }] }),
            "documents[0]",
            "is an image",
        ),
        ("/v1/rerank", json!({ "query": "a", "documents": ["b"], "top_n": -1 }), "top_n", "0 or more"),
    ] {
        let (status, answer) = post(path, &body);
        let error = &answer["error"];
        assert_eq!((status.as_u16(), &error["param"]), (400, &json!(param)), "{body}: {answer}");
        assert!(error["message"].as_str().unwrap().contains(words), "{words}: {answer}");
    }
    let (status, answer) = post("/v1/embeddings", &json!({ "input": "a", "model": "other" }));
    assert_eq!((status.as_u16(), &answer["error"]["code"]), (404, &json!("model_not_found")));
}
