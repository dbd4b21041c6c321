//! Tests of the decoder: each chain of stages against the `tokenizers` crate.

use super::bytes::BYTE_OF_CHAR;
use super::stages::*;
use super::*;
use proptest::prelude::*;
use serde_json::json;
use tokenizers::{Decoder as _, DecoderWrapper};

fn streamed(decoder: &Decoder, tokens: &[String]) -> String {
    let mut state = decoder.start();
    let mut out = String::new();
    for token in tokens {
        decoder.push(&mut state, token, &mut out);
    }
    decoder.finish(state, &mut out);
    out
}

fn chains() -> Vec<Value> {
    let space = json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "});
    let llama = |strip: Value| json!({"type": "Sequence", "decoders": [space, {"type": "ByteFallback"}, {"type": "Fuse"}, strip]});
    vec![
        json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}),
        llama(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0})),
        llama(json!({"type": "Strip", "content": "a", "start": 2, "stop": 0})),
        llama(json!({"type": "Replace", "pattern": {"String": "aab"}, "content": "x"})),
        llama(json!({"type": "Metaspace", "replacement": "a", "prepend_scheme": "always", "split": true})),
        json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true}),
        json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": true}),
        json!({"type": "WordPiece", "prefix": "##", "cleanup": true}),
        json!({"type": "WordPiece", "prefix": "##", "cleanup": false}),
        json!({"type": "BPEDecoder", "suffix": "</w>"}),
        json!({"type": "Replace", "pattern": {"Regex": "[ab]+"}, "content": "-"}),
        json!({"type": "Strip", "content": "a", "start": 1, "stop": 0}),
        json!({"type": "Fuse"}),
        json!({"type": "ByteFallback"}),
    ]
}

fn token() -> impl Strategy<Value = String> {
    let parts = [
        "▁", "a", "aab", "b", "##ing", "</w>", " ", "<0xE2>", "<0x82>", "<0xAC>", "<0xFF>", "<0x41>", "é",
        "Ġthe", "âĤ", "¬", "n't", ".", "日", "<0xzz>", "",
    ];
    prop_oneof![
        4 => proptest::sample::select(parts.to_vec()).prop_map(str::to_owned),
        1 => proptest::collection::vec(proptest::sample::select(parts.to_vec()), 0..4)
            .prop_map(|parts| parts.concat()),
    ]
}

proptest! {
    #[test]
    fn a_streamed_text_equals_the_tokenizers_crate(
        tokens in proptest::collection::vec(token(), 1..24),
    ) {
        for chain in chains() {
            let decoder = Decoder::from_json(&chain, false).unwrap();
            let reference: DecoderWrapper = serde_json::from_value(chain.clone()).unwrap();
            let expected = reference.decode(tokens.clone()).unwrap();
            prop_assert_eq!(streamed(&decoder, &tokens), expected, "{}", chain);
        }
    }

    #[test]
    fn cleaning_piece_by_piece_equals_cleaning_the_whole(
        pieces in proptest::collection::vec("[ .?,'nvretsma]{0,4}", 0..16),
    ) {
        let decoder = Decoder::from_json(&json!({"type": "Fuse"}), true).unwrap();
        prop_assert_eq!(streamed(&decoder, &pieces), clean_up(&pieces.concat()));
    }

    #[test]
    fn stripping_the_end_equals_stripping_the_whole(
        pieces in proptest::collection::vec("[ a]{0,3}", 0..8),
    ) {
        let chain = json!({"type": "Sequence", "decoders": [
            {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 2}]});
        let decoder = Decoder::from_json(&chain, false).unwrap();
        let whole = pieces.concat();
            prop_assert_eq!(streamed(&decoder, &pieces), strip(&whole, ' ', 1, 2));
    }
}

#[test]
fn without_a_decoder_tokens_are_joined_by_spaces() {
    let decoder = Decoder::from_json(&Value::Null, false).unwrap();
    assert_eq!(streamed(&decoder, &["a".to_owned(), String::new(), "b".to_owned()]), "a  b");
}

#[test]
fn an_incomplete_character_waits_for_its_last_byte() {
    let decoder = Decoder::from_json(&json!({"type": "ByteLevel"}), false).unwrap();
    let mut state = decoder.start();
    let mut out = String::new();
    decoder.push(&mut state, "âĤ", &mut out);
    assert_eq!(out, "");
    decoder.push(&mut state, "¬", &mut out);
    assert_eq!(out, "€");
}

#[test]
fn the_byte_map_covers_every_byte_once() {
    let mut bytes: Vec<u8> = BYTE_OF_CHAR.iter().copied().flatten().collect();
    bytes.sort_unstable();
    assert_eq!(bytes, (0..=255).collect::<Vec<u8>>());
    assert_eq!(byte_level_bytes("Ġa"), b" a");
}

#[test]
fn token_bytes_are_those_of_the_middle_of_a_text() {
    let [byte_level, llama] =
        [&chains()[0], &chains()[1]].map(|chain| Decoder::from_json(chain, false).unwrap());
    assert_eq!(byte_level.bytes("âĤ"), [0xe2, 0x82]);
    assert_eq!(llama.bytes("▁a"), b" a");
    assert_eq!(llama.bytes("<0xE2>"), [0xe2]);
}

#[test]
fn stages_that_cannot_work_token_by_token_are_refused() {
    let late = |stage: Value| json!({"type": "Sequence", "decoders": [{"type": "Fuse"}, stage]});
    let long = "a".repeat(MAX_PATTERN_BYTES + 1);
    let many = vec![json!({"type": "ByteFallback"}); MAX_STAGES + 1];
    for (chain, reason) in [
        (json!({"type": "CTC", "pad_token": "", "word_delimiter_token": "", "cleanup": true}), "CTC"),
        (late(json!({"type": "ByteLevel"})), "before the stage that joins"),
        (late(json!({"type": "Replace", "pattern": {"Regex": "a"}, "content": ""})), "before the stage"),
        (json!({"type": "Replace", "pattern": {"String": long}, "content": ""}), "short"),
        (json!({"type": "Replace", "pattern": {"String": "a"}, "content": long}), "at most 256 bytes"),
        (json!({"type": "Sequence", "decoders": many}), "at most 16 stages"),
    ] {
        let error = Decoder::from_json(&chain, false).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}
