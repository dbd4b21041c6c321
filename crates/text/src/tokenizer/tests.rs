//! Tests of the tokenizer, and the tokenizers that all tests of this folder share.

use std::path::PathBuf;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use rsgen_core::error::ErrorKind;

/// The tokenizer of the bundled model: byte-level.
pub(crate) fn bundled() -> Tokenizer {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../python/rsgen/models/story-3m");
    open(&folder)
}

/// The tokenizer of a checkpoint that is not part of the repository, if present.
pub(crate) fn stories260k() -> Option<Tokenizer> {
    static SKIPPED: std::sync::Once = std::sync::Once::new();
    let folder = std::env::var_os("RSGEN_TEST_STORIES260K").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/models/stories260k"),
        PathBuf::from,
    );
    if folder.is_dir() {
        return Some(open(&folder));
    }
    SKIPPED.call_once(|| println!("skipped: {} is not there", folder.display()));
    None
}

fn open(folder: &std::path::Path) -> Tokenizer {
    let read = |name: &str| std::fs::read(folder.join(name)).unwrap();
    Tokenizer::from_bytes(
        &read("tokenizer.json"),
        Some(&read("tokenizer_config.json")),
        Some(&read("special_tokens_map.json")),
    )
    .unwrap()
}

/// A small SentencePiece-like vocabulary with byte fallback, as llama 2 has it.
fn llama_json() -> serde_json::Value {
    let mut vocab: Vec<String> = ["<unk>", "<s>", "</s>"].map(str::to_owned).to_vec();
    vocab.extend((0..=255).map(|byte| format!("<0x{byte:02X}>")));
    let pieces = ["▁", "a", "c", "e", "h", "t", "▁t", "▁th", "▁the", "▁c", "▁ca", "▁cat", "he", "."];
    vocab.extend(pieces.map(str::to_owned));
    let vocab: serde_json::Map<_, _> =
        vocab.into_iter().enumerate().map(|(id, token)| (token, json!(id))).collect();
    let special = |id: u32, content: &str| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
               "normalized": false, "special": true})
    };
    json!({
        "version": "1.0", "truncation": {"direction": "Right", "max_length": 4, "strategy": "LongestFirst",
        "stride": 0}, "padding": null,
        "added_tokens": [special(0, "<unk>"), special(1, "<s>"), special(2, "</s>")],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "pre_tokenizer": null,
        "post_processor": {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "ignore_merges": false,
            "vocab": vocab,
            "merges": [["▁", "t"], ["h", "e"], ["▁t", "he"], ["▁", "c"], ["▁c", "a"], ["▁ca", "t"], ["▁t", "h"]]}
    })
}

/// The llama vocabulary as the file has it, or rebuilt as transformers' `LlamaTokenizer`.
pub(crate) fn llama(rebuilt: bool) -> Tokenizer {
    let class = if rebuilt { "LlamaTokenizerFast" } else { "PreTrainedTokenizerFast" };
    llama_with(&json!({"tokenizer_class": class, "bos_token": "<s>", "eos_token": "</s>"}))
}

fn llama_with(config: &serde_json::Value) -> Tokenizer {
    let json = llama_json().to_string();
    Tokenizer::from_bytes(json.as_bytes(), Some(config.to_string().as_bytes()), None).unwrap()
}

fn words(tokenizer: &Tokenizer, text: &str) -> Vec<String> {
    let ids = tokenizer.encode(text, false).unwrap();
    ids.iter().map(|&id| tokenizer.token(id).unwrap().to_owned()).collect()
}

fn numbers(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    tokenizer.encode(text, true).unwrap().into_iter().map(|id| id.0).collect()
}

#[test]
fn the_bundled_tokenizer_gives_the_ids_of_transformers() {
    let tokenizer = bundled();
    let cases: [(&str, &[u32]); 7] = [
        ("Once upon a time", &[0, 569, 570, 263, 447]),
        (" x", &[0, 225, 92]),
        ("a  b", &[0, 69, 225, 269]),
        ("hello</s> world", &[0, 1693, 83, 1, 945]),
        ("", &[0]),
        ("aé日本", &[0, 69, 132, 107, 167, 250, 103, 167, 255, 110]),
        ("<s>hi", &[0, 0, 76, 77]),
    ];
    for (text, expected) in cases {
        assert_eq!(numbers(&tokenizer, text), expected, "{text:?}");
    }
    assert_eq!(tokenizer.encode("Once", false).unwrap(), [TokenId(569)]);
    assert_eq!((tokenizer.vocab_size(), tokenizer.len()), (2048, 2048));
    assert_eq!(
        (tokenizer.bos(), tokenizer.eos(), tokenizer.pad()),
        (Some(TokenId(0)), Some(TokenId(1)), Some(TokenId(2)))
    );
    assert!(tokenizer.is_special(TokenId(3)) && !tokenizer.is_special(TokenId(5)));
    assert!(!tokenizer.is_special(TokenId(9999)));
}

#[test]
fn stories260k_gives_the_ids_of_transformers() {
    let Some(tokenizer) = stories260k() else { return };
    let cases: [(&str, &[u32]); 9] = [
        ("Once upon a time", &[1, 403, 407, 261, 378]),
        (" x", &[1, 410, 444]),
        ("a  b", &[1, 261, 410, 268]),
        ("hello</s> world", &[1, 281, 306, 414, 2, 263, 304, 341]),
        ("hello</s>world", &[1, 281, 306, 414, 2, 263, 304, 341]),
        ("", &[1]),
        ("  ", &[1, 410, 410]),
        ("▁a", &[1, 261]),
        ("aé日本", &[1, 261, 485, 233, 154, 168, 233, 159, 175]),
    ];
    for (text, expected) in cases {
        assert_eq!(numbers(&tokenizer, text), expected, "{text:?}");
    }
    let text = tokenizer.decode(&tokenizer.encode("hello</s>world", true).unwrap(), false).unwrap();
    assert_eq!(text, "<s> hello</s> world");
}

#[test]
fn skipping_special_tokens_leaves_them_out() {
    let tokenizer = bundled();
    let ids = tokenizer.encode("<|user|>hi</s>", true).unwrap();
    assert_eq!(tokenizer.decode(&ids, true).unwrap(), "hi");
    assert_eq!(tokenizer.decode(&ids, false).unwrap(), "<s><|user|>hi</s>");
    assert_eq!(
        tokenizer.decode(&[TokenId(99_999), TokenId(76)], false).unwrap(),
        "h",
        "an unknown id is left out"
    );
}

#[test]
fn tokens_have_their_places_in_the_text_in_characters() {
    let text = "Ein Bär</s> 🦊";
    let letters: Vec<char> = text.chars().collect();
    for tokenizer in [bundled(), llama(false), llama(true)] {
        for add_special_tokens in [false, true] {
            let placed = tokenizer.encode_with_offsets(text, add_special_tokens).unwrap();
            let ids: Vec<TokenId> = placed.iter().map(|(id, _)| *id).collect();
            assert_eq!(ids, tokenizer.encode(text, add_special_tokens).unwrap());
            let added = placed.iter().filter(|(_, place)| place.is_none()).count();
            assert_eq!(added, ids.len() - tokenizer.encode(text, false).unwrap().len());
            let end = placed.iter().rev().find(|(id, _)| tokenizer.token(*id) == Some("</s>")).unwrap();
            let end = letters[end.1.clone().unwrap()].iter().collect::<String>();
            assert_eq!(end, "</s>", "one that is part of the text has its place");
            for (_, place) in placed {
                assert!(place.is_none_or(|place| place.start <= place.end && place.end <= letters.len()));
            }
        }
    }
    let fox = bundled().encode_with_offsets(text, false).unwrap().pop().unwrap().1;
    assert_eq!(
        fox,
        Some(letters.len() - 1..letters.len()),
        "a part of a character has the character's place"
    );
}

#[test]
fn tokens_and_ids_are_inverse() {
    let tokenizer = bundled();
    for id in (0..tokenizer.len() as u32).map(TokenId) {
        assert_eq!(tokenizer.id(tokenizer.token(id).unwrap()), Some(id));
    }
    assert_eq!(tokenizer.id("no such token"), None);
    assert_eq!(tokenizer.token(TokenId(2048)), None);
    assert_eq!(tokenizer.token_bytes(TokenId(2048)), None);
}

#[test]
fn the_llama_class_puts_one_space_before_the_text_as_transformers_does() {
    let file = llama(false);
    assert_eq!(words(&file, " the"), ["▁", "▁the"], "the file's own normalizer prepends in any case");
    assert_eq!(words(&file, "the</s>the"), ["▁the", "</s>", "▁the"]);
    let rebuilt = llama(true);
    assert_eq!(words(&rebuilt, " the"), ["▁the"]);
    assert_eq!(
        words(&rebuilt, "the</s>the"),
        ["▁the", "</s>", "t", "he"],
        "only at the beginning of the text"
    );
    let config =
        |extra: &str, value: serde_json::Value| json!({"tokenizer_class": "LlamaTokenizer", extra: value});
    let legacy = llama_with(&config("legacy", json!(true)));
    assert_eq!(words(&legacy, "the</s>the"), ["▁the", "</s>", "▁the"]);
    let bare = llama_with(&config("add_prefix_space", json!(false)));
    assert_eq!(words(&bare, "the"), ["t", "he"]);
    assert_eq!(
        bare.decode(&bare.encode(" the", false).unwrap(), true).unwrap(),
        " the",
        "no space is stripped"
    );
    assert_eq!((bare.bos(), bare.eos(), bare.pad()), (Some(TokenId(1)), Some(TokenId(2)), None));
}

#[test]
fn neither_the_truncation_of_the_file_nor_add_bos_token_changes_a_prompt() {
    let config = json!({"bos_token": "<s>", "add_bos_token": false, "add_eos_token": true});
    let ids = llama_with(&config).encode("the the the the the the", true).unwrap();
    assert_eq!(ids.len(), 7);
    assert_eq!((ids[0], ids[6]), (TokenId(1), ids[1]));
}

#[test]
fn special_tokens_that_the_vocabulary_lacks_are_added_at_its_end() {
    let config = json!({"pad_token": "<pad>", "eos_token": "e", "extra_special_tokens": ["<|user|>"],
        "added_tokens_decoder": {"300": {"content": "<new>", "special": false, "normalized": false}}});
    let tokenizer = llama_with(&config);
    let next = 3 + 256 + 14;
    assert_eq!(
        ["<new>", "<pad>", "<|user|>"].map(|token| tokenizer.id(token).unwrap().0),
        [next, next + 1, next + 2]
    );
    assert_eq!(tokenizer.pad(), Some(TokenId(next + 1)));
    assert!(!tokenizer.is_special(TokenId(next)) && tokenizer.is_special(TokenId(next + 2)));
    assert!(tokenizer.is_special(tokenizer.eos().unwrap()), "a token of the vocabulary becomes special");
    assert_eq!(words(&tokenizer, "c<|user|>"), ["▁c", "<|user|>"]);
}

#[test]
fn a_normalized_added_token_is_decoded_from_its_normalized_form() {
    let config = json!({"added_tokens_decoder": {
        "300": {"content": "<new>", "special": false, "normalized": true},
        "301": {"content": "<pad>", "special": true, "normalized": true}}});
    let tokenizer = llama_with(&config);
    let ids = [tokenizer.id("▁the"), tokenizer.id("<new>"), tokenizer.id("<pad>")].map(Option::unwrap);
    assert_eq!(tokenizer.decode(&ids, false).unwrap(), "the <new> <pad>");
    assert_eq!(tokenizer.decode(&ids, true).unwrap(), "the <new>");
}

#[test]
fn special_tokens_are_plain_text_where_the_config_says_so() {
    let tokenizer = llama_with(&json!({"split_special_tokens": true}));
    assert!(!tokenizer.encode("</s>", false).unwrap().contains(&TokenId(2)));
}

#[test]
fn spaces_are_cleaned_up_only_for_vocabularies_that_are_not_bpe() {
    let word_level = json!({"version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": null, "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": {"cat": 0, ".": 1, "it": 2}, "unk_token": "cat"}});
    let with = |clean_up: bool| {
        let config = json!({"clean_up_tokenization_spaces": clean_up}).to_string();
        Tokenizer::from_bytes(word_level.to_string().as_bytes(), Some(config.as_bytes()), None).unwrap()
    };
    let ids = [TokenId(2), TokenId(1), TokenId(0)];
    assert_eq!(with(true).decode(&ids, true).unwrap(), "it. cat");
    assert_eq!(with(false).decode(&ids, true).unwrap(), "it . cat");
    let bpe = llama_with(&json!({"clean_up_tokenization_spaces": true}));
    let ids = bpe.encode("the .", false).unwrap();
    assert_eq!(bpe.decode(&ids, true).unwrap(), "the .");
}

#[test]
fn hostile_files_are_refused_with_a_reason() {
    let base = llama_json();
    let changed = |pointer: &str, value: serde_json::Value| {
        let mut json = base.clone();
        *json.pointer_mut(pointer).unwrap() = value;
        json.to_string()
    };
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let mut big_id = base.clone();
    big_id["model"]["vocab"]["far"] = json!(4_000_000_000_u32);
    for (json, reason) in [
        (String::new(), "not valid JSON"),
        ("{}".to_owned(), "cannot be used"),
        (deep.clone(), "not valid JSON"),
        (base.to_string().replace("null,\"added", &format!("{deep},\"added")), "not valid JSON"),
        (
            base.to_string().replace("\"normalizer\":", &format!("\"normalizer\":{deep},\"x\":")),
            "not valid JSON",
        ),
        (changed("/model/merges", json!([["x", "y"]])), "cannot be used"),
        (changed("/model/type", json!("GPT")), "cannot be used"),
        (changed("/decoder", json!({"type": "Unknown"})), "cannot be used"),
        (
            changed(
                "/pre_tokenizer",
                json!({"type": "Split", "pattern": {"Regex": "(("}, "behavior": "Isolated",
            "invert": false}),
            ),
            "its pre_tokenizer: a regular expression must be valid",
        ),
        (big_id.to_string(), "token ids must be at most"),
        (
            changed("/normalizer", json!({"type": "Replace", "pattern": {"String": ""}, "content": "a"})),
            "not empty",
        ),
        (
            changed("/normalizer", json!({"type": "Replace", "pattern": {"Regex": "^"}, "content": "a"})),
            "empty text",
        ),
        (
            changed("/decoder", json!({"type": "Replace", "pattern": {"Regex": "a(?=b)"}, "content": ""})),
            "look-around",
        ),
        (
            changed("/normalizer", json!({"type": "Precompiled", "precompiled_charsmap": "////fwAAAAA="})),
            "cannot be used",
        ),
        (changed("/post_processor/single", json!([])), "the text A once in `single`, found it 0 times"),
        (
            changed("/post_processor/special_tokens", json!({})),
            "list in `special_tokens` what `single` names",
        ),
        (changed("/post_processor/special_tokens/<s>/ids", json!([9999])), "found the id 9999"),
        (
            changed(
                "/post_processor",
                json!({"type": "BertProcessing", "sep": ["x", 9999], "cls": ["<s>", 1]}),
            ),
            "found the id 9999",
        ),
        (base.to_string().replace("\"vocab\":{", "\"vocab\":{\"a\":1,"), "the key \"a\" comes twice"),
        (base.to_string()[..2000].to_owned(), "not valid JSON"),
    ] {
        let error = Tokenizer::from_bytes(json.as_bytes(), None, None).unwrap_err().to_string();
        assert!(error.starts_with("tokenizer.json: ") && error.contains(reason), "{error}");
    }
    let large = vec![b' '; MAX_TOKENIZER_BYTES + 1];
    let error = Tokenizer::from_bytes(b"{}", Some(&large), None).unwrap_err().to_string();
    assert!(error.starts_with("tokenizer_config.json: a file of at most"), "{error}");
}

#[test]
fn long_monotonous_prompts_take_linear_time() {
    for tokenizer in [bundled(), llama(true)] {
        for part in ["^", " ", "a", "🎈", "\u{301}"] {
            let started = std::time::Instant::now();
            let ids = tokenizer.encode(&part.repeat(100_000), false).unwrap();
            assert!(!ids.is_empty());
            assert!(started.elapsed().as_secs() < 20, "{part:?} took {:?}", started.elapsed());
        }
    }
}

proptest! {
    #[test]
    fn decoding_equals_the_tokenizers_crate(
        numbers in proptest::collection::vec(any::<u32>(), 1..40),
        skip_special_tokens in any::<bool>(),
    ) {
        for tokenizer in [Some(bundled()), Some(llama(true)), stories260k()].into_iter().flatten() {
            let numbers: Vec<u32> = numbers.iter().map(|number| number % (tokenizer.len() as u32 + 2)).collect();
            let ids: Vec<TokenId> = numbers.iter().copied().map(TokenId).collect();
            let Encoder::Json(json) = &tokenizer.inner.encoder else { panic!("a tokenizer.json") };
            let expected = json.backend.decode(&numbers, skip_special_tokens).unwrap();
            prop_assert_eq!(tokenizer.decode(&ids, skip_special_tokens).unwrap(), expected);
        }
    }

    #[test]
    fn text_survives_the_way_to_ids_and_back(text in "\\PC{0,40}") {
        for tokenizer in [bundled(), llama(true)] {
            // A text that contains a special token, or the metaspace character itself, does not survive a
            // round trip.
            prop_assume!(!text.contains('<') && !text.contains('▁'));
            let ids = tokenizer.encode(&text, false).unwrap();
            let back = tokenizer.decode(&ids, true).unwrap();
            let expected = if tokenizer.len() == 2048 { &*text } else { text.strip_prefix(' ').unwrap_or(&text) };
            prop_assert_eq!(back, expected);
        }
    }

    #[test]
    fn joined_token_bytes_are_the_text_after_something(text in "\\PC{0,40}") {
        for tokenizer in [bundled(), llama(true)] {
            prop_assume!(!text.contains('<') && !text.contains('▁'));
            let ids = tokenizer.encode(&format!("a {text}"), false).unwrap();
            let bytes: Vec<u8> = ids.iter().flat_map(|&id| tokenizer.token_bytes(id).unwrap()).copied().collect();
            let joined = String::from_utf8(bytes).unwrap();
            prop_assert_eq!(joined.trim_start(), format!("a {text}"));
        }
    }
}

#[test]
fn encoding_and_decoding_are_polled_and_end_when_interrupted() {
    let _alone = crate::worker::tests::alone();
    for tokenizer in [bundled(), llama(true), llama(false)] {
        // Long texts are encoded on a worker, where the number of polls depends on the time.
        let short = "Once upon a time, ".repeat(20);
        let encoded = tokenizer.encode_interruptible(&short, true, &mut || true);
        assert_eq!(encoded.unwrap_err().kind(), ErrorKind::Cancelled);

        let text = "Once upon a time, ".repeat(4000);
        let ids = tokenizer.encode(&text, true).unwrap();
        let mut polls = 0;
        let mut count = || {
            polls += 1;
            false
        };
        tokenizer.decode_interruptible(&ids, true, &mut count).unwrap();
        assert!(polls > 10, "{polls} polls");
        for after in [0, 1, polls / 2, polls - 1] {
            let mut left: i32 = after;
            let mut stop = || {
                left -= 1;
                left <= 0
            };
            let encoded = tokenizer.encode_interruptible(&text, true, &mut stop);
            let decoded = encoded.and_then(|ids| tokenizer.decode_interruptible(&ids, true, &mut stop));
            assert_eq!(decoded.unwrap_err().kind(), ErrorKind::Cancelled, "after {after} of {polls}");
        }
    }
}
