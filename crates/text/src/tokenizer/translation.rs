//! Equality with transformers' tokenizers of encoder-decoder models, on the goldens of `tests/golden/translation`.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::Tokenizer;
use crate::{Detokenizer, LanguagePlace};
use rsgen_core::error::Result;
use rsgen_core::types::TokenId;

fn read(name: &str) -> Vec<u8> {
    // Another folder has more texts than are worth keeping.
    let folder = std::env::var("RSGEN_TRANSLATION_GOLDENS").map(PathBuf::from);
    let kept = || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/translation"));
    std::fs::read(folder.unwrap_or_else(|_| kept()).join(name)).unwrap()
}

fn golden(name: &str) -> Value {
    let mut golden: Value = serde_json::from_slice(&read(name)).unwrap();
    assert_eq!(golden["format"], 1);
    put_rows(&mut golden, list(&serde_json::from_slice(&read("rows.json")).unwrap()));
    golden
}

/// Puts what several results share in its places.
fn put_rows(value: &mut Value, rows: &[Value]) {
    match value {
        Value::Object(parts) => match parts.get("row").and_then(Value::as_u64) {
            Some(row) => *value = rows[row as usize].clone(),
            None => parts.values_mut().for_each(|part| put_rows(part, rows)),
        },
        Value::Array(parts) => parts.iter_mut().for_each(|part| put_rows(part, rows)),
        _ => {}
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

fn ids(value: &Value) -> Vec<TokenId> {
    list(value).iter().map(|id| TokenId(id.as_u64().unwrap() as u32)).collect()
}

/// The contents of a folder: JSON, texts, and `@name` for a model beside the goldens.
fn contents(files: &Value) -> HashMap<String, Vec<u8>> {
    let content = |content: &Value| match content.as_str() {
        Some(text) => {
            text.strip_prefix('@').map_or_else(|| text.into(), |name| read(&format!("{name}.model")))
        }
        None => content.to_string().into_bytes(),
    };
    files.as_object().unwrap().iter().map(|(name, value)| (name.clone(), content(value))).collect()
}

fn open(files: &Value) -> Result<Option<Tokenizer>> {
    let contents = contents(files);
    Tokenizer::from_files(|name| Ok(contents.get(name)))
}

fn nllb_of_pieces(mut config: Value) -> Value {
    config["tokenizer_class"] = json!("NllbTokenizer");
    json!({"config.json": {"model_type": "m2m_100"}, "sentencepiece.bpe.model": "@bpe", "tokenizer_config.json": config})
}

fn case(name: &str) -> Tokenizer {
    let golden = golden("cases.json");
    let case = list(&golden["cases"]).iter().find(|case| case["name"] == name).unwrap();
    open(&case["files"]).unwrap().unwrap()
}

#[test]
fn texts_targets_and_ids_give_what_transformers_gives() {
    let (texts, golden) = (golden("texts.json"), golden("cases.json"));
    let texts: Vec<&str> = list(&texts["texts"]).iter().map(|text| text.as_str().unwrap()).collect();
    let mut wrong = String::new();
    let mut compared = 0;
    for case in list(&golden["cases"]) {
        let mut faults = 0;
        let mut compare = |what: String, found: String, expected: String| {
            compared += 1;
            if found != expected {
                faults += 1;
                if faults < 4 {
                    writeln!(
                        wrong,
                        "{}, {what}:\n    found    {found}\n    expected {expected}",
                        case["name"]
                    )
                    .unwrap();
                }
            }
        };
        let tokenizer = match open(&case["files"]) {
            Ok(Some(tokenizer)) => tokenizer,
            other => {
                compare("open".into(), format!("{other:?}"), String::new());
                continue;
            }
        };
        let special = [tokenizer.bos(), tokenizer.eos(), tokenizer.pad(), tokenizer.unknown()];
        let special = special.map(|id| id.map_or(Value::Null, |id| id.0.into()));
        compare(
            "special".into(),
            Value::from(special.to_vec()).to_string(),
            case["bos_eos_pad_unk"].to_string(),
        );
        compare("size".into(), tokenizer.vocab_size().to_string(), case["vocab_size"].to_string());
        let mut encoded = |what: &str, expected: &Value, encode: &dyn Fn(&str) -> Result<Vec<TokenId>>| {
            for (text, expected) in texts.iter().zip(list(expected)) {
                let found = encode(text).unwrap();
                compare(format!("{what} {text:?}"), format!("{found:?}"), format!("{:?}", ids(expected)));
            }
        };
        encoded("ids", &case["ids"], &|text| tokenizer.encode(text, true));
        encoded("without special", &case["without_special"], &|text| tokenizer.encode(text, false));
        encoded("target", &case["targets"], &|text| tokenizer.encode_target(text, true));
        if let Some(languages) = case.get("languages") {
            let [source, target] = [0, 1].map(|at| languages[at].as_str().unwrap());
            let other = tokenizer.with_languages(Some(source), Some(target)).unwrap();
            for (text, expected) in texts.iter().zip(list(&case["in_languages"])) {
                let found = [other.encode(text, true).unwrap(), other.encode_target(text, true).unwrap()];
                let expected = [ids(&expected[0]), ids(&expected[1])];
                compare(format!("in languages {text:?}"), format!("{found:?}"), format!("{expected:?}"));
            }
            let found = [source, target].map(|language| tokenizer.language_id(language).unwrap().0);
            compare("language ids".into(), json!(found).to_string(), case["language_ids"].to_string());
        }
        for row in list(&case["decode"]) {
            let tokens = ids(&row[0]);
            for (skip, expected) in [(false, &row[1]), (true, &row[2])] {
                let text = tokenizer.decode(&tokens, skip).unwrap();
                let mut detokenizer = Detokenizer::new(&tokenizer, &[], skip);
                let mut streamed: String = tokens.iter().map(|&id| detokenizer.push(id)).collect();
                streamed += &detokenizer.flush();
                compare(format!("text of {tokens:?}"), json!(text).to_string(), expected.to_string());
                compare(format!("stream of {tokens:?}"), json!(streamed).to_string(), expected.to_string());
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(compared > 8000, "{compared}");
}

#[test]
fn languages_are_listed_and_checked() {
    for (name, place, some, unknown) in [
        ("nllb", LanguagePlace::Before, "deu_Latn", "deu"),
        ("mbart", LanguagePlace::After, "de_DE", "deu_Latn"),
        ("m2m100", LanguagePlace::Before, "de", "__de__"),
        ("marian to many", LanguagePlace::BeforeSource, ">>deu<<", "deu"),
    ] {
        let tokenizer = case(name);
        assert_eq!(tokenizer.language_place(), Some(place), "{name}");
        assert!(tokenizer.languages().any(|language| language == some), "{name}");
        let id = tokenizer.language_id(some).unwrap();
        assert!(tokenizer.token(id).unwrap().contains(some), "{name}");
        let error = tokenizer.with_languages(None, Some(unknown)).unwrap_err().to_string();
        assert!(error.contains("must be one of its ") && error.contains(unknown), "{error}");
        if tokenizer.target_language().is_none() && place != LanguagePlace::BeforeSource {
            assert_eq!(
                tokenizer.encode_target("a b", true).unwrap(),
                tokenizer
                    .with_languages(None, tokenizer.source_language())
                    .unwrap()
                    .encode("a b", true)
                    .unwrap()
            );
        }
        let other = tokenizer.with_languages(None, Some(some)).unwrap();
        assert_eq!(
            (other.target_language(), other.source_language()),
            (Some(some), tokenizer.source_language())
        );
    }
    let tokenizer = case("t5");
    assert_eq!((tokenizer.language_place(), tokenizer.languages().count()), (None, 0));
    assert!(tokenizer.language_id("de").unwrap_err().to_string().contains("has no languages"));
}

#[test]
fn the_language_of_a_target_comes_before_a_source_of_marian() {
    let tokenizer = case("marian to many");
    let into_french = tokenizer.with_languages(None, Some(">>fra<<")).unwrap();
    let text = "The house is small.";
    let expected = tokenizer.encode(&format!(">>fra<< {text}"), true).unwrap();
    assert_eq!(into_french.encode(text, true).unwrap(), expected);
    assert_eq!(into_french.encode_target(text, true).unwrap(), tokenizer.encode_target(text, true).unwrap());
}

#[test]
fn places_of_tokens_are_those_of_the_text_without_its_language() {
    let tokenizer = case("nllb");
    let places = tokenizer.encode_with_offsets("small house", true).unwrap();
    let ids: Vec<TokenId> = places.iter().map(|&(id, _)| id).collect();
    assert_eq!(ids, tokenizer.encode("small house", true).unwrap());
    let [(_, None), (_, Some(first)), .., (_, Some(last)), (_, None)] = places.as_slice() else {
        panic!("{places:?}")
    };
    assert_eq!((first.start, last.end), (0, 11));
}

#[test]
fn an_nllb_of_pieces_alone_has_its_languages() {
    let tokenizer = open(&nllb_of_pieces(json!({}))).unwrap().unwrap();
    let pieces = 461;
    assert_eq!(tokenizer.languages().count(), 202);
    for (language, place) in [("ace_Arab", 0), ("eng_Latn", 46), ("zul_Latn", 201)] {
        assert_eq!(tokenizer.language_id(language).unwrap(), TokenId(pieces + place), "{language}");
    }
    assert_eq!(tokenizer.id("<mask>"), Some(TokenId(pieces + 202)));
    assert_eq!(tokenizer.encode("a", true).unwrap()[0], tokenizer.language_id("eng_Latn").unwrap());
    // Texts give the pieces of a folder with a tokenizer.json.
    let with_json = case("nllb");
    for text in ["The house is small.", "Дом  маленький", "<mask>"] {
        let [found, expected] = [&tokenizer, &with_json].map(|it| {
            let ids = it.encode(text, false).unwrap().into_iter();
            ids.map(|id| it.token(id).unwrap().to_owned()).collect::<Vec<_>>()
        });
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn ids_that_are_no_tokens_are_left_out() {
    for name in ["marian", "m2m100", "byt5"] {
        let tokenizer = case(name);
        let beyond = TokenId(tokenizer.len() as u32);
        let ids = tokenizer.encode("a b", true).unwrap();
        let more = [ids.as_slice(), &[beyond, TokenId(u32::MAX)]].concat();
        assert_eq!(tokenizer.decode(&more, false).unwrap(), tokenizer.decode(&ids, false).unwrap(), "{name}");
    }
}

#[test]
fn a_pegasus_without_its_second_mask_has_the_ids_of_the_model() {
    let golden = golden("cases.json");
    let with = list(&golden["cases"]).iter().find(|case| case["name"] == "pegasus").unwrap();
    let mut files = with["files"].clone();
    files["tokenizer_config.json"].as_object_mut().unwrap().remove("mask_token_sent").unwrap();
    let (with, without) = (open(&with["files"]).unwrap().unwrap(), open(&files).unwrap().unwrap());
    assert_eq!(with.encode("The house", true).unwrap(), without.encode("The house", true).unwrap());
}

#[test]
fn faulty_folders_are_refused_with_a_reason() {
    let golden = golden("cases.json");
    let files = |name: &str| {
        let case = list(&golden["cases"]).iter().find(|case| case["name"] == name).unwrap();
        case["files"].clone()
    };
    for (name, file, content, reason) in [
        ("marian", "vocab.json", json!({"a": 0}), "vocab.json: the unknown token \"<unk>\" must be in it"),
        (
            "marian",
            "vocab.json",
            json!({"<unk>": -1}),
            "vocab.json: \"<unk>\" must have a token id, found -1",
        ),
        (
            "marian",
            "vocab.json",
            json!({"<unk>": 0, "a": 5_000_000}),
            "vocab.json: token ids must be at most",
        ),
        ("marian", "source.spm", json!("nothing"), "source.spm: "),
        ("marian with two vocabularies", "target_vocab.json", Value::Null, "target_vocab.json: "),
        ("t5", "spiece.model", json!("nothing"), "spiece.model: "),
        ("t5", "tokenizer_config.json", json!({"extra_ids": -1}), "extra_ids must be a number up to 65536"),
        (
            "t5 saved",
            "tokenizer.json",
            json!({"model": {"type": "BPE", "vocab": {}, "merges": []}}),
            "Unigram",
        ),
        ("pegasus", "special_tokens_map.json", json!({"unk_token": "?"}), "with the score 0"),
        ("m2m100", "tokenizer_config.json", json!({"language_codes": "x"}), "language_codes must be"),
        (
            "m2m100",
            "tokenizer_config.json",
            json!({"src_lang": "xx"}),
            "src_lang must be one of its languages",
        ),
        ("nllb", "tokenizer_config.json", json!({"src_lang": 3}), "src_lang must be a string, found 3"),
        (
            "nllb",
            "tokenizer_config.json",
            json!({"src_lang": "xx", "tokenizer_class": "NllbTokenizer"}),
            "src_lang must be one of its languages",
        ),
        (
            "byt5",
            "tokenizer_config.json",
            json!({"added_tokens_decoder": {"4000000000": "x"}}),
            "token ids must be at most",
        ),
        ("m2m100", "added_tokens.json", json!({"x": 4_000_000_000_u32}), "token ids must be at most"),
        (
            "bart",
            "tokenizer_config.json",
            json!({"sep_token": null}),
            "sep_token must be a token of the vocabulary",
        ),
    ] {
        let mut files = files(name);
        files[file] = content.clone();
        if content.is_null() {
            files.as_object_mut().unwrap().remove(file);
        }
        let mut error = &open(&files).unwrap_err() as &dyn std::error::Error;
        let mut message = error.to_string();
        while let Some(source) = error.source() {
            (error, message) = (source, format!("{message}: {source}"));
        }
        assert!(message.contains(reason), "{name}, {file}: {message}");
    }
}

#[test]
fn without_its_files_there_is_no_tokenizer() {
    for class in ["MarianTokenizer", "M2M100Tokenizer", "T5Tokenizer", "NllbTokenizer", "BartTokenizer"] {
        let files = json!({"tokenizer_config.json": {"tokenizer_class": class}});
        assert!(open(&files).unwrap().is_none(), "{class}");
    }
}
