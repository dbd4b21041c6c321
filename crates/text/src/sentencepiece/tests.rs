//! Equality with transformers' slow tokenizer on the goldens of `tests/golden/sentencepiece`, and hostile
//! files.

use std::path::Path;
use std::time::Instant;

use serde_json::Value;

use super::super::{Detokenizer, Tokenizer};
use rsgen_core::types::TokenId;

const MODELS: [&str; 5] = ["llama", "symbols", "nmt_nfkc", "suffix", "ties"];

fn read(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/sentencepiece").join(name))
        .unwrap()
}

fn golden(name: &str) -> Value {
    let golden: Value = serde_json::from_slice(&read(&format!("{name}.json"))).unwrap();
    assert_eq!(golden["format"], 1, "{name}");
    golden
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

fn ids(value: &Value) -> Vec<TokenId> {
    list(value).iter().map(|id| TokenId(id.as_u64().unwrap() as u32)).collect()
}

fn texts() -> Vec<String> {
    list(&golden("texts")["texts"]).iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

fn open(model: &[u8], files: &Value) -> rsgen_core::error::Result<Tokenizer> {
    let file = |name: &str| files.get(name).map(|content| content.to_string().into_bytes());
    let tokenizer = Tokenizer::from_files(|name| {
        Ok(if name == "tokenizer.model" { Some(model.to_vec()) } else { file(name) })
    })?;
    Ok(tokenizer.unwrap())
}

/// Each case of each golden, with its tokenizer.
fn each_case(mut check: impl FnMut(&str, &Value, &Tokenizer)) {
    for model in MODELS {
        for case in list(&golden(model)["cases"]) {
            let tokenizer = open(&read(&format!("{model}.model")), &case["files"]).unwrap();
            check(&format!("{model}, {}", case["name"]), case, &tokenizer);
        }
    }
}

fn legacy() -> Tokenizer {
    open(&read("llama.model"), &Value::Null).unwrap()
}

#[test]
fn texts_give_the_ids_of_transformers() {
    let texts = texts();
    assert!(texts.len() >= 300);
    let mut cases = 0;
    each_case(|name, case, tokenizer| {
        let expected = list(&case["ids"]);
        assert_eq!(expected.len(), texts.len());
        for (text, expected) in texts.iter().zip(expected) {
            assert_eq!(tokenizer.encode(text, true).unwrap(), ids(expected), "{name}: {text:?}");
        }
        let special = |token: Option<TokenId>| token.map_or(Value::Null, |id| id.0.into());
        let found = [tokenizer.bos(), tokenizer.eos(), tokenizer.pad()].map(special);
        assert_eq!(Value::from(found.to_vec()), case["bos_eos_pad"], "{name}");
        assert_eq!(Some(tokenizer.vocab_size() as u64), case["vocab_size"].as_u64(), "{name}");
        cases += 1;
    });
    assert_eq!(cases, 14);
}

#[test]
fn ids_give_the_texts_of_transformers_and_so_do_streams() {
    each_case(|name, case, tokenizer| {
        let legacy = case["files"]["tokenizer_config.json"]["legacy"] != false;
        for decoded in list(&case["decode"]) {
            let ids = ids(&decoded["ids"]);
            for (field, skip_special_tokens) in [("text_without_special", true), ("text", false)] {
                let text = tokenizer.decode(&ids, skip_special_tokens).unwrap();
                let mut stream = Detokenizer::new(tokenizer, &[], skip_special_tokens);
                let mut streamed: String = ids.iter().map(|&id| stream.push(id)).collect();
                streamed.push_str(&stream.flush());
                assert_eq!(streamed, text, "{name}: {ids:?}");
                // With `legacy`, transformers moves spaces beside special tokens that are shown.
                if skip_special_tokens || !legacy {
                    assert_eq!(text, decoded[field], "{name}: {ids:?}");
                }
            }
        }
    });
}

#[test]
fn a_stretch_of_text_between_special_tokens_keeps_its_space() {
    let tokenizer = legacy();
    let ids = tokenizer.encode("the</s>the</s>  the", true).unwrap();
    // transformers 4 writes "<s> the</s> the</s>  the" only while a special token follows, here "…</s> the".
    assert_eq!(tokenizer.decode(&ids, false).unwrap(), "<s> the</s> the</s>   the");
    assert_eq!(tokenizer.decode(&ids, true).unwrap(), "the the   the");
}

#[test]
fn tokens_flagged_as_special_are_skipped_whether_named_or_not() {
    let files = serde_json::json!({"tokenizer_config.json": {"added_tokens_decoder": {
        "1000": {"content": "<end>", "special": true}, "1001": {"content": "<plain>", "special": false}}}});
    let tokenizer = open(&read("llama.model"), &files).unwrap();
    let ids = tokenizer.encode("the<end><plain>", true).unwrap();
    assert_eq!(ids[ids.len() - 2..], [TokenId(1000), TokenId(1001)]);
    assert_eq!(tokenizer.decode(&ids, true).unwrap(), "the <plain>");
}

#[test]
fn text_comes_in_whole_characters() {
    let tokenizer = legacy();
    let ids = tokenizer.encode("龘", false).unwrap();
    let mut stream = Detokenizer::new(&tokenizer, &[], true);
    let pieces: Vec<String> = ids.iter().map(|&id| stream.push(id)).collect();
    assert_eq!(pieces, ["", "", "", "龘"], "a space and three bytes");
    let mut stream = Detokenizer::new(&tokenizer, &ids[..2], true);
    assert_eq!(stream.push(ids[2]) + &stream.push(ids[3]) + &stream.flush(), "龘");
}

#[test]
fn token_bytes_joined_are_the_text_after_something() {
    let tokenizer = legacy();
    for text in texts().iter().filter(|text| !text.contains(['<', '▁'])) {
        let ids = tokenizer.encode(text, false).unwrap();
        let bytes: Vec<u8> = ids.iter().flat_map(|&id| tokenizer.token_bytes(id).unwrap()).copied().collect();
        let expected = if text.is_empty() { String::new() } else { format!(" {text}") };
        assert_eq!(String::from_utf8(bytes).unwrap(), expected);
    }
}

#[test]
fn tokens_and_ids_are_inverse() {
    let tokenizer = legacy();
    for id in (0..tokenizer.len() as u32).map(TokenId) {
        assert_eq!(tokenizer.id(tokenizer.token(id).unwrap()), Some(id));
    }
    assert_eq!(tokenizer.id("no such token"), None);
    assert_eq!((tokenizer.file(), tokenizer.model()), ("tokenizer.model", "BPE"));
    assert_eq!(open(&read("nmt_nfkc.model"), &Value::Null).unwrap().model(), "Unigram");
    assert!(tokenizer.is_special(TokenId(1)) && !tokenizer.is_special(TokenId(300)));
}

/// A field of a protobuf message that has a length.
fn field(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag << 3 | 2];
    let mut length = content.len();
    while length > 0x7f {
        bytes.push(length as u8 | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
    bytes.extend(content);
    bytes
}

fn piece(text: &[u8], score: f32, kind: u8) -> Vec<u8> {
    let mut piece = field(1, text);
    piece.push(2 << 3 | 5);
    piece.extend(score.to_le_bytes());
    piece.extend([3 << 3, kind]);
    field(1, &piece)
}

/// The unknown piece, then the given pieces.
fn model(parts: &[Vec<u8>]) -> Vec<u8> {
    [piece(b"<unk>", 0.0, 2), parts.concat()].concat()
}

fn refusal(model: &[u8], files: &Value) -> String {
    open(model, files).unwrap_err().to_string()
}

#[test]
fn a_small_model_made_by_hand_works() {
    let tokenizer = open(&model(&[piece(b"a", -1.0, 1), piece(b"aa", -1.5, 1)]), &Value::Null).unwrap();
    // The spaces around are removed, and the one put before the text is unknown; `<s>` comes behind the
    // vocabulary. "a aa" and "aa a" have equal scores.
    assert_eq!(tokenizer.encode(" aaab ", true).unwrap(), [3, 0, 1, 2, 0].map(TokenId));
    assert_eq!((tokenizer.bos(), tokenizer.eos()), (Some(TokenId(3)), Some(TokenId(4))));
}

#[test]
fn faulty_models_are_refused_with_a_reason() {
    let bpe = |kind: u8| field(2, &[3 << 3, kind]);
    let byte_fallback = field(2, &[(35 << 3 & 0x7f) | 0x80, 35 >> 4, 1]);
    for (bytes, reason) in [
        (Vec::new(), "it holds no pieces"),
        (b"IA== 0\nIQ== 1\n".to_vec(), "is it a SentencePiece model?"),
        (read("llama.model")[..5000].to_vec(), "it ends within a field"),
        (model(&[field(1, b"\x0a\xff\x01a")]), "piece 1 is damaged"),
        (model(&[piece(b"", 0.0, 1)]), "piece 1: a piece must have from 1 to 2048 bytes, found 0"),
        (model(&[piece(&[b'a'; 2049], 0.0, 1)]), "from 1 to 2048 bytes, found 2049"),
        (model(&[piece(b"\xff", 0.0, 1)]), "piece 1 is damaged"),
        (model(&[piece(b"a\0", 0.0, 1)]), "may not hold NUL"),
        (model(&[piece(b"a", f32::NAN, 1)]), "piece 1, \"a\": its score must be a finite number, found NaN"),
        (model(&[piece(b"a", f32::INFINITY, 1)]), "found inf"),
        (model(&[piece(b"a", 0.0, 7)]), "piece 1: its type must be from 1 to 6, found 7"),
        (model(&[piece(b"a", 0.0, 1), piece(b"a", 0.0, 4)]), "but piece 1 is the same"),
        (model(&[piece(b"<u>", 0.0, 2)]), "only one piece may be for unknown characters"),
        (piece(b"a", 0.0, 1), "no piece is for unknown characters"),
        (model(&[piece(b"<0x41>", 0.0, 6)]), "needs `byte_fallback`"),
        (model(&[piece(b"<0xaa>", 0.0, 6), byte_fallback.clone()]), "must be <0xNN>"),
        (model(&[piece(b"<0x00>", 0.0, 6), byte_fallback]), "a piece for each byte, 1 has none"),
        (model(&[bpe(4)]), "must be unigram (1) or BPE (2), found 4; make a tokenizer.json of it"),
        (model(&[field(3, &field(2, b"abc"))]), "precompiled_charsmap: it must begin with"),
        (model(&[field(5, &field(2, b"abc"))]), "`denormalizer_spec`) is not supported"),
        // Groups within groups, and a varint without end.
        (vec![0x33; 1 << 20], "it is no SentencePiece model"),
        (vec![0xff; 1 << 20], "it is no SentencePiece model"),
    ] {
        let error = refusal(&bytes, &Value::Null);
        assert!(error.starts_with("tokenizer.model: ") && error.contains(reason), "{error}");
    }
    let many: Vec<u8> = piece(b"a", 0.0, 1).repeat((1 << 22) + 1);
    assert!(refusal(&many, &Value::Null).contains("at most 4194304 pieces"));
}

#[test]
fn files_beside_the_model_that_do_not_fit_are_refused_with_a_reason() {
    let llama = read("llama.model");
    for (files, reason) in [
        (
            serde_json::json!({"tokenizer_config.json": {"tokenizer_class": "GPT2Tokenizer"}}),
            "tokenizer.model: the class \"GPT2Tokenizer\" that tokenizer_config.json names has rules of its own",
        ),
        (
            serde_json::json!({"tokenizer_config.json": {"added_tokens_decoder": {"4194304": {"content": "<x>"}}}}),
            "tokenizer.model: added token \"<x>\": token ids must be at most 4194303, found 4194304",
        ),
        (
            serde_json::json!({"added_tokens.json": {"<x>": -1}}),
            "added_tokens.json: <x> must be a token id, found -1",
        ),
        (serde_json::json!({"added_tokens.json": []}), "added_tokens.json: it must be a JSON object"),
    ] {
        let error = refusal(&llama, &files);
        assert!(error.starts_with(reason), "{error}");
    }
    let large = vec![b' '; crate::MAX_TOKENIZER_BYTES + 1];
    let error = open(&large, &Value::Null).unwrap_err().to_string();
    assert!(error.starts_with("tokenizer.model: a file of at most"), "{error}");
}

/// A damaged model is an error, or encodes without a panic to ids of its vocabulary.
#[test]
fn damage_never_panics() {
    let texts = texts();
    let mut random = 1_u64;
    let mut draw = |limit: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % limit
    };
    let mut opened = 0;
    for name in MODELS {
        let whole = read(&format!("{name}.model"));
        for _ in 0..60 {
            let mut bytes = whole.clone();
            for _ in 0..=draw(4) {
                let at = draw(bytes.len());
                bytes[at] = draw(256) as u8;
            }
            if draw(8) == 0 {
                bytes.truncate(draw(whole.len()));
            }
            match open(&bytes, &Value::Null) {
                Err(error) => assert!(error.to_string().starts_with("tokenizer.model: "), "{error}"),
                Ok(tokenizer) => {
                    opened += 1;
                    for text in texts.iter().skip(draw(8)).step_by(8) {
                        let ids = tokenizer.encode(text, true).unwrap();
                        assert!(ids.iter().all(|id| id.index() < tokenizer.len()));
                        tokenizer.decode(&ids, false).unwrap();
                    }
                }
            }
        }
    }
    assert!(opened > 20, "{opened} of 300 models could be opened");
}

#[test]
fn long_monotonous_prompts_take_little_more_than_linear_time() {
    for name in ["llama", "symbols", "nmt_nfkc"] {
        let tokenizer = open(&read(&format!("{name}.model")), &Value::Null).unwrap();
        for part in ["^", " ", "a", "🦊", "\u{301}", "\0", "</s>", "qu "] {
            let started = Instant::now();
            tokenizer.encode(&part.repeat(1_000_000 / part.len()), false).unwrap();
            assert!(started.elapsed().as_secs() < 20, "{name}: {part:?} took {:?}", started.elapsed());
        }
    }
}
