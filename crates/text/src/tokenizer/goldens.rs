//! Equality with transformers for each type of model, class of tokenizer and file, on the goldens of
//! `tests/golden/tokenizers`.

use std::collections::HashMap;
use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::Tokenizer;
use crate::tokenizer_class::choose;
use crate::{ChatOptions, ChatTemplates, Detokenizer, Message};
use rsgen_core::error::Result;
use rsgen_core::types::TokenId;

/// What a folder gives: null where it cannot be used.
struct Found {
    tokenizer: Tokenizer,
    chat: Vec<TokenId>,
}

fn read(name: &str) -> Vec<u8> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/tokenizers");
    std::fs::read(folder.join(name)).unwrap()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

fn ids(value: &Value) -> Vec<TokenId> {
    list(value).iter().map(|id| TokenId(id.as_u64().unwrap() as u32)).collect()
}

/// Opens a folder, given as its files, and renders the golden's conversation with it.
fn open(files: &Map<String, Value>, golden: &Value) -> Result<Found> {
    let bytes = |name: &str| {
        files.get(name).map(|content| match content {
            Value::String(text) => text.clone().into_bytes(),
            json => json.to_string().into_bytes(),
        })
    };
    let tokenizer = Tokenizer::from_files(|name| Ok(bytes(name)))?.unwrap();
    let templates = ChatTemplates::read(None, &[], bytes("tokenizer_config.json").as_deref())?
        .with_special_tokens(tokenizer.special_tokens_map());
    let messages: Vec<Message> = list(&golden["messages"])
        .iter()
        .map(|message| Message::user(message["content"].as_str().unwrap()))
        .collect();
    let text = templates.choose(None, false)?.render(&messages, &ChatOptions::default())?;
    Ok(Found { chat: tokenizer.encode(&text, false)?, tokenizer })
}

/// The differences between a folder and a result of the golden.
fn differences(files: &Map<String, Value>, golden: &Value, result: &Value) -> String {
    let mut found = String::new();
    let mut compare = |what: &str, left: String, right: String| {
        if left != right {
            writeln!(found, "  {what}:\n    found    {left}\n    expected {right}").unwrap();
        }
    };
    let rows = list(&golden["rows"]);
    let row = |place: &Value| &rows[place.as_u64().unwrap() as usize];
    let texts: Vec<&str> = list(&golden["texts"]).iter().map(|text| text.as_str().unwrap()).collect();
    let opened = open(files, golden).and_then(|found| {
        let all = texts.iter().map(|text| found.tokenizer.encode(text, true)).collect::<Result<Vec<_>>>()?;
        Ok((found, all))
    });
    let (Found { tokenizer, chat }, all) = match (opened, result.get("error")) {
        (Err(_), Some(_)) => return String::new(),
        (Ok(_), Some(error)) => return format!("  must fail: {error}\n"),
        (Err(error), None) => return format!("  {error}\n"),
        (Ok(opened), None) => opened,
    };
    let special = [tokenizer.bos(), tokenizer.eos(), tokenizer.pad(), tokenizer.unknown()];
    let special = Value::from(special.map(|id| id.map_or(Value::Null, |id| id.0.into())).to_vec());
    compare("special", special.to_string(), result["bos_eos_pad_unk"].to_string());
    compare("vocab_size", tokenizer.vocab_size().to_string(), result["vocab_size"].to_string());
    compare("chat", format!("{chat:?}"), format!("{:?}", ids(row(&result["chat"]))));
    for ((text, found), expected) in texts.iter().zip(all).zip(list(&result["ids"])) {
        compare(&format!("{text:?}"), format!("{found:?}"), format!("{:?}", ids(row(expected))));
    }
    for (text, expected) in texts[17..].iter().zip(list(&result["offsets"])) {
        let places = tokenizer.encode_with_offsets(text, true).unwrap();
        let places =
            places.into_iter().map(|(_, place)| place.map_or(json!([0, 0]), |it| json!([it.start, it.end])));
        compare(
            &format!("offsets of {text:?}"),
            json!(places.collect::<Vec<_>>()).to_string(),
            row(expected).to_string(),
        );
    }
    for decoded in list(&result["decode"]).iter().map(row) {
        let row = ids(&decoded[0]);
        for (skip, expected) in [(false, &decoded[1]), (true, &decoded[2])] {
            let text = tokenizer.decode(&row, skip).unwrap();
            let mut detokenizer = Detokenizer::new(&tokenizer, &[], skip);
            let mut streamed: String = row.iter().map(|&id| detokenizer.push(id)).collect();
            streamed += &detokenizer.flush();
            compare("text", json!(text).to_string(), expected.to_string());
            compare("streamed", json!(streamed).to_string(), expected.to_string());
        }
    }
    found
}

#[test]
fn each_type_and_class_gives_the_ids_of_transformers() {
    let golden: Value = serde_json::from_slice(&read("cases.json")).unwrap();
    let (files, everywhere) = (list(&golden["files"]), list(&golden["everywhere"]));
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    // Type, class, file, settings, and the place of the result.
    let mut cases: Vec<(String, Value, String, String, Value)> = Vec::new();
    for (model_type, classes) in golden["types"].as_object().unwrap() {
        for (class, results) in classes.as_object().unwrap() {
            let mut results = list(results).iter();
            for (file, settings) in
                files.iter().flat_map(|file| everywhere.iter().map(move |settings| (file, settings)))
            {
                let class = if class.is_empty() { Value::Null } else { json!(class) };
                let result = results.next().unwrap().clone();
                cases.push((model_type.clone(), class, text(file), text(settings), result));
            }
        }
    }
    for case in list(&golden["others"]) {
        cases.push(("llama".into(), case[0].clone(), text(&case[1]), text(&case[2]), case[3].clone()));
    }
    assert!(cases.len() > 8000, "{}", cases.len());
    // A class decides all: each one is tried once with each file and settings.
    let mut tried: HashMap<(Option<String>, String, String), Value> = HashMap::new();
    let mut wrong = String::new();
    for (model_type, class, file, settings, result) in cases {
        let named = class.as_str();
        let chosen = choose(Some(&model_type), named, || file == "byte_level").unwrap();
        let key = (chosen.map(|class| format!("{class:?}")), file.clone(), settings.clone());
        let name = format!("{model_type}, {named:?}, {file}, {settings}");
        if let Some(before) = tried.get(&key) {
            if *before != result {
                writeln!(wrong, "{name}: of another class").unwrap();
            }
            continue;
        }
        let mut config = golden["settings"][&settings].clone();
        (config["tokenizer_class"], config["chat_template"]) =
            (class.clone(), golden["chat_template"].clone());
        let folder = json!({
            "config.json": {"model_type": model_type},
            "tokenizer.json": String::from_utf8(read(&format!("{file}.json"))).unwrap(),
            "tokenizer_config.json": config,
        });
        let expected = &golden["results"][result.as_u64().unwrap() as usize];
        let found = differences(folder.as_object().unwrap(), &golden, expected);
        if !found.is_empty() {
            writeln!(wrong, "{name}:\n{found}").unwrap();
        }
        tried.insert(key, result);
    }
    assert!(wrong.is_empty(), "{wrong}");
}
