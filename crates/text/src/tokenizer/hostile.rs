//! Tokenizers and texts that would take memory or time without bound: each is refused, with the field, the
//! rule and the value, or works in a time that grows like the text.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::*;
use rsgen_core::error::ErrorKind;

/// Generous: all of them take milliseconds in an optimized build.
const MAX_TIME: Duration = Duration::from_secs(20);

fn split(regex: &str) -> Value {
    json!({"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false})
}

fn replace(pattern: &str, content: &str) -> Value {
    json!({"type": "Replace", "pattern": {"String": pattern}, "content": content})
}

fn sequence(list: &str, parts: Vec<Value>) -> Value {
    json!({"type": "Sequence", list: Value::from(parts)})
}

fn byte_level() -> Value {
    json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false})
}

fn added(content: &str, flags: &[&str]) -> Value {
    let on = |flag: &str| flags.contains(&flag);
    json!({"id": 300, "content": content, "single_word": on("single_word"), "lstrip": on("lstrip"),
        "rstrip": on("rstrip"), "normalized": on("normalized"), "special": on("special")})
}

fn bpe() -> Value {
    let letters = (' '..='~').chain(['Ġ', '▁', '\u{301}']).zip(0..);
    let vocab: serde_json::Map<String, Value> =
        letters.map(|(char, id)| (char.to_string(), id.into())).collect();
    json!({"type": "BPE", "vocab": vocab, "merges": [["a", "b"]], "unk_token": "?"})
}

fn bpe_with(field: &str, value: Value) -> Value {
    let mut model = bpe();
    model["vocab"]["ab"] = json!(200);
    model[field] = value;
    model
}

fn word_piece(max_chars: u64) -> Value {
    json!({"type": "WordPiece", "vocab": {"?": 0, "a": 1, "##a": 2, "##aa": 3}, "unk_token": "?",
        "continuing_subword_prefix": "##", "max_input_chars_per_word": max_chars})
}

fn unigram(pieces: impl IntoIterator<Item = String>) -> Value {
    let vocab: Vec<Value> = pieces.into_iter().map(|piece| json!([piece, -1.0])).collect();
    json!({"type": "Unigram", "vocab": vocab, "unk_id": 0, "byte_fallback": false})
}

/// A file whose sections are changed.
fn file(changes: &[(&str, Value)]) -> Value {
    let mut file = json!({"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": null, "post_processor": null, "decoder": {"type": "Fuse"}, "model": bpe_with("dropout", Value::Null)});
    for (section, value) in changes {
        file[section] = value.clone();
    }
    file
}

fn read(changes: &[(&str, Value)], config: &Value) -> Result<Tokenizer> {
    Tokenizer::from_bytes(file(changes).to_string().as_bytes(), Some(config.to_string().as_bytes()), None)
}

#[test]
fn what_grows_or_lasts_without_bound_is_refused_when_it_is_read() {
    let long = "a".repeat(30_000);
    let pieces = |piece: Value, count| {
        let single = [vec![json!({"Sequence": {"id": "A", "type_id": 0}})], vec![piece; count]].concat();
        let special_tokens = json!({"s": {"id": "s", "ids": [1], "tokens": [long]}});
        json!({"type": "TemplateProcessing", "pair": [], "single": single, "special_tokens": special_tokens})
    };
    let special = json!({"SpecialToken": {"id": "s", "type_id": 0}});
    let bert = json!({"type": "BertProcessing", "sep": [long.repeat(3), 1], "cls": ["a", 1]});
    let empty = json!({"pattern": {"String": ""}, "content": "a"});
    for (section, value, reason) in [
        ("normalizer", empty, "a pattern that is not empty"),
        ("pre_tokenizer", json!({"type": "FixedLength", "length": 0}), "`length` of at least 1, found 0"),
        (
            "pre_tokenizer",
            split(r"(?:\p{L}{100}){100}"),
            "its pre_tokenizer: a regular expression must be valid and compile to at most",
        ),
        (
            "post_processor",
            pieces(special.clone(), 3000),
            "at most 1024 tokens and 65536 bytes around a prompt",
        ),
        (
            "post_processor",
            pieces(special, 3),
            "at most 1024 tokens and 65536 bytes around a prompt, found 3 and 90000",
        ),
        ("post_processor", bert, "found 2 and 90001"),
        (
            "decoder",
            sequence("decoders", vec![replace("a", &"a".repeat(1000)); 4]),
            "`content` may have at most 256 bytes, found 1000",
        ),
        (
            "decoder",
            sequence("decoders", vec![replace("a", "aaa"); 4]),
            "its decoder may make a text at most 16 times longer, found 81",
        ),
        (
            "decoder",
            sequence("decoders", vec![json!({"type": "BPEDecoder", "suffix": ""}); 5]),
            "at most 16 times longer, found 32",
        ),
        (
            "decoder",
            sequence("decoders", vec![json!({"type": "ByteFallback"}); 1000]),
            "a decoder may have at most 16 stages",
        ),
        ("model", unigram((0..3000).map(|length| "a".repeat(length))), "at most 2048 bytes, found 2999"),
        ("model", unigram(["?".to_owned(), "a".repeat(500_000)]), "at most 2048 bytes, found 500000"),
        ("added_tokens", json!([added(&long, &["special"])]), "at most 256 bytes, found 30000"),
        ("added_tokens", json!([added(&long, &["normalized"])]), "at most 256 bytes, found 30000"),
        ("added_tokens", json!([added("\n \t", &["rstrip"])]), "one of white space may not have `rstrip`"),
    ] {
        let started = Instant::now();
        let error = read(&[(section, value)], &json!({})).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Load);
        let message = error.to_string();
        assert!(message.starts_with("tokenizer.json: ") && message.contains(reason), "{reason}: {message}");
        assert!(message.len() < 1000 && started.elapsed() < MAX_TIME, "{reason}: {:?}", started.elapsed());
    }
}

/// What a hostile file may cost is bounded by the time limit of the worker that reads it or encodes with it.
#[test]
fn what_grows_or_lasts_without_bound_ends_in_time() {
    let _alone = crate::worker::tests::alone();
    let long = "a".repeat(30_000);
    let no_type = json!({"pattern": {"String": "a"}, "content": "a".repeat(5000)});
    for (section, value) in [
        ("normalizer", replace("a", &"x".repeat(5000))),
        ("normalizer", no_type),
        ("normalizer", sequence("normalizers", vec![replace("a", "aaaaaaaa"); 4])),
        ("normalizer", json!({"type": "Prepend", "prepend": long})),
        ("normalizer", sequence("normalizers", vec![json!({"type": "NFKD"}); 4])),
        ("normalizer", sequence("normalizers", vec![json!({"type": "Lowercase"}); 10_000])),
        ("pre_tokenizer", sequence("pretokenizers", vec![byte_level(); 10])),
        ("pre_tokenizer", sequence("pretokenizers", vec![json!({"type": "WhitespaceSplit"}); 1000])),
        // It takes 2^18 steps at each letter, and then matches.
        ("pre_tokenizer", split(r"(?:a|aa){18}b(?!\S)|a")),
        ("post_processor", sequence("processors", vec![byte_level(); 1000])),
        ("model", word_piece(1_000_000_000)),
        ("model", unigram((0..2000).map(|length| "a".repeat(length)))),
        ("model", json!({"type": "BPE", "vocab": {"a": 0, "b".repeat(2000): 0}, "merges": []})),
        ("model", bpe_with("unk_token", json!(long))),
        ("model", bpe_with("continuing_subword_prefix", json!(long))),
        ("model", bpe_with("end_of_word_suffix", json!(long))),
    ] {
        let started = Instant::now();
        let encoded = read(&[(section, value.clone())], &json!({}))
            .and_then(|tokenizer| tokenizer.encode(&format!("{} é", "a".repeat(100)), true));
        if let Err(error) = encoded {
            assert!([ErrorKind::Input, ErrorKind::Load].contains(&error.kind()), "{error}");
        }
        let name = value.to_string().chars().take(100).collect::<String>();
        assert!(started.elapsed() < 2 * MAX_TIME, "{name}: {:?}", started.elapsed());
    }
}

#[test]
fn settings_that_last_without_bound_are_refused_when_they_are_read() {
    let long = "a".repeat(30_000);
    let named: serde_json::Map<String, Value> =
        (0..300).map(|index| (format!("x{index}_token"), "a".into())).collect();
    for (config, reason) in [
        (json!({"eos_token": long}), "at most 256 bytes"),
        (json!({"extra_special_tokens": [long]}), "at most 256 bytes"),
        (json!({"added_tokens_decoder": {"300": {"content": long}}}), "at most 256 bytes"),
        (
            json!({"added_tokens_decoder": {"300": {"content": "  ", "rstrip": true}}}),
            "may not have `rstrip`",
        ),
        (json!({"extra_special_tokens": named}), "at most 256 special tokens may have names"),
        (Value::Object(named), "at most 256 special tokens may have names"),
    ] {
        let message = read(&[], &config).unwrap_err().to_string();
        assert!(message.contains(reason), "{reason}: {message}");
    }
}

#[test]
fn a_text_that_grows_too_long_is_refused() {
    let _alone = crate::worker::tests::alone();
    let nfkd = sequence("normalizers", vec![json!({"type": "NFKD"}), replace("\u{644}", &"x".repeat(1000))]);
    let metaspace =
        json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true});
    let regex = json!({"type": "Replace", "pattern": {"Regex": "[a-c]"}, "content": "x".repeat(4096)});
    for (section, value, text) in [
        ("normalizer", replace("a", &"x".repeat(4096)), "a".repeat(2100)),
        ("normalizer", regex, "b".repeat(2100)),
        ("normalizer", json!({"type": "Prepend", "prepend": "x".repeat(4000)}), "b<s>".repeat(2200)),
        ("normalizer", nfkd, "\u{fdfa}".repeat(5_000)),
        ("pre_tokenizer", sequence("pretokenizers", vec![byte_level(); 6]), "é".repeat(80_000)),
        ("pre_tokenizer", metaspace, " ".repeat(3 << 20)),
        ("normalizer", Value::Null, "a".repeat(9 << 20)),
    ] {
        let tokens = json!([added("<s>", &["special"])]);
        let tokenizer = read(&[(section, value.clone()), ("added_tokens", tokens)], &json!({})).unwrap();
        let started = Instant::now();
        let error = tokenizer.encode(&text, true).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Input, "{error}");
        let message = error.to_string();
        assert!(message.contains("at most 8388608 bytes") && message.ends_with("in parts"), "{message}");
        assert!(started.elapsed() < MAX_TIME, "{value} took {:?}", started.elapsed());
    }
}

/// A character map whose only rule replaces `a` by a text.
fn precompiled(text: &str) -> Value {
    let mut units = [0_u32; 256];
    units[0] = 128 << 10;
    let node = 128 ^ usize::from(b'a');
    units[node] = u32::from(b'a') | 0x100 | (1 << 10);
    units[node ^ 1] = 0x8000_0000;
    let mut bytes = 1024_u32.to_le_bytes().to_vec();
    bytes.extend(units.iter().flat_map(|unit| unit.to_le_bytes()));
    bytes.extend(text.bytes().chain([0]));
    json!({"type": "Precompiled", "precompiled_charsmap": base64::encode(bytes)})
}

#[test]
fn a_long_text_is_refused_only_where_its_normalizer_lengthens_it() {
    let tokenizer = read(&[("normalizer", precompiled(&"b".repeat(1000)))], &json!({})).unwrap();
    assert_eq!(tokenizer.encode("cad", true).unwrap().len(), 1002);
    assert_eq!(tokenizer.encode(&"c".repeat(50_000), true).unwrap().len(), 50_000);
    let error = tokenizer.encode(&"ca".repeat(10_000), true).unwrap_err().to_string();
    assert!(error.contains("at most 8388608 bytes"), "{error}");
}

#[test]
fn texts_of_like_characters_are_encoded_in_time() {
    const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    let normalizers =
        ["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Nmt", "StripAccents"].map(|kind| json!({"type": kind}));
    let strip = json!({"type": "Strip", "strip_left": true, "strip_right": true});
    let bert = json!({"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": true, "lowercase": true});
    let normalizers = normalizers.into_iter().chain([strip, bert]).map(|value| ("normalizer", value));
    let kinds = ["WhitespaceSplit", "Whitespace", "BertPreTokenizer", "UnicodeScripts"]
        .map(|kind| json!({"type": kind}));
    let digits = json!({"type": "Digits", "individual_digits": true});
    let punctuation = json!({"type": "Punctuation", "behavior": "MergedWithPrevious"});
    let splitters =
        kinds.into_iter().chain([digits, punctuation, split(LLAMA3), split(r"[a ]*\p{M}|."), byte_level()]);
    let splitters = splitters.map(|value| ("pre_tokenizer", value));
    let tokens = ["lstrip", "rstrip", "single_word", "normalized"]
        .map(|flag| ("added_tokens", json!([added("a", &[flag]), added(" a", &[])])));
    let models =
        [word_piece(256), unigram((0..64).map(|length| "a".repeat(length)))].map(|value| ("model", value));
    for (section, value) in normalizers.chain(splitters).chain(tokens).chain(models) {
        let tokenizer = read(&[(section, value.clone())], &json!({})).unwrap();
        for unit in ["a", " ", "1", "!", "\u{301}", "a\u{301}", "a ", "\u{1f1e6}", "\r\n"] {
            let started = Instant::now();
            if let Err(error) = tokenizer.encode(&unit.repeat(6000), true) {
                assert_eq!(error.kind(), ErrorKind::Input, "{error}");
            }
            assert!(started.elapsed() < MAX_TIME, "{value} {unit:?}: {:?}", started.elapsed());
        }
    }
    let llama3 = read(&[("pre_tokenizer", split(LLAMA3))], &json!({})).unwrap();
    assert_eq!(llama3.encode(&"b".repeat(1_000_000), true).unwrap().len(), 1_000_000);
}

#[test]
fn ids_of_like_tokens_are_decoded_in_time() {
    let strip = |stop: u64| json!({"type": "Strip", "content": " ", "start": 0, "stop": stop});
    let fused = |last: Value| sequence("decoders", vec![json!({"type": "Fuse"}), last]);
    let pattern = format!("{}b", "a".repeat(255));
    for (decoder, clean_up, token) in [
        (fused(strip(1 << 63)), false, " "),
        (fused(strip(3)), false, " "),
        (fused(replace(&pattern, "c")), false, "a"),
        (json!({"type": "Fuse"}), true, " "),
        (json!({"type": "Fuse"}), true, "'"),
        (json!({"type": "ByteFallback"}), true, " "),
        (json!({"type": "WordPiece", "prefix": "##", "cleanup": true}), true, " "),
        (json!({"type": "BPEDecoder", "suffix": "a"}), false, "a"),
    ] {
        let model = json!({"type": "WordLevel", "vocab": {"?": 0, token: 1}, "unk_token": "?"});
        let config = json!({"clean_up_tokenization_spaces": clean_up});
        let tokenizer = read(&[("decoder", decoder.clone()), ("model", model)], &config).unwrap();
        let started = Instant::now();
        let text = tokenizer.decode(&vec![TokenId(1); 200_000], true).unwrap();
        assert!(started.elapsed() < MAX_TIME, "{decoder} took {:?}", started.elapsed());
        if decoder == fused(strip(3)) {
            assert_eq!(text.len(), 200_000 - 3);
        }
    }
}

#[test]
fn ids_that_could_give_too_long_a_text_are_refused() {
    let token = "a".repeat(2048);
    let model = json!({"type": "WordLevel", "vocab": {"?": 0, token: 1}, "unk_token": "?"});
    let decoder = replace("a", &"b".repeat(16));
    let tokenizer = read(&[("decoder", decoder), ("model", model)], &json!({})).unwrap();
    let error = tokenizer.decode(&vec![TokenId(1); 40_000], true).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Input);
    assert!(error.to_string().contains("decode them in parts"), "{error}");
}

#[test]
fn many_added_tokens_are_read_in_time() {
    let started = Instant::now();
    let tokens: Vec<Value> = (0..20_000).map(|index| added(&format!("<{index}>"), &["special"])).collect();
    let extra: Vec<String> = (0..40_000).map(|index| format!("<{index}>")).collect();
    let listed: serde_json::Map<String, Value> =
        (0..30_000).map(|index| (index.to_string(), json!({"content": format!("[{index}]")}))).collect();
    let config = json!({"extra_special_tokens": extra, "added_tokens_decoder": listed});
    let tokenizer = read(&[("added_tokens", tokens.into())], &config).unwrap();
    assert_eq!(tokenizer.encode(&"<39999>[29999]".repeat(1000), true).unwrap().len(), 2000);
    assert!(started.elapsed() < MAX_TIME, "{:?}", started.elapsed());
}
