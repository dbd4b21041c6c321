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

/// The content of a file: a text, or an object; `@name` is a file beside the golden, or a part of it.
fn content(content: &Value, golden: &Value) -> Vec<u8> {
    let text = match content {
        Value::String(text) => text.clone(),
        json => json.to_string().replace("\"@chat\"", &golden["chat_template"].to_string()),
    };
    let Some(name) = text.strip_prefix('@') else { return text.into_bytes() };
    if name == "chat" {
        return golden["chat_template"].as_str().unwrap().into();
    }
    let (name, part) = name.split_once('#').unwrap_or((name, ""));
    let mut file: Value = serde_json::from_slice(&read(&format!("{name}.json"))).unwrap();
    match part {
        "vocab" => file["model"]["vocab"].to_string().into_bytes(),
        "merges" => {
            let merges = list(&file["model"]["merges"]).iter();
            let pair =
                |merge: &Value| format!("{} {}\n", merge[0].as_str().unwrap(), merge[1].as_str().unwrap());
            format!("#version: 0.2\n{}", merges.map(pair).collect::<String>()).into_bytes()
        }
        "padded" => {
            file["padding"] = json!({"strategy": {"Fixed": 9}, "direction": "Left", "pad_to_multiple_of": null,
                "pad_id": 2, "pad_type_id": 0, "pad_token": "</s>"});
            file["truncation"] = json!({"direction": "Right", "max_length": 5, "strategy": "LongestFirst",
                "stride": 0});
            file.to_string().into_bytes()
        }
        _ => file.to_string().into_bytes(),
    }
}

/// Opens a folder, given as its files.
fn open(files: &Map<String, Value>, golden: &Value) -> Result<(Tokenizer, ChatTemplates)> {
    let bytes = |name: &str| files.get(name).map(|it| content(it, golden));
    let tokenizer = Tokenizer::from_files(|name| Ok(bytes(name)))?
        .ok_or_else(|| rsgen_core::error::Error::load("no tokenizer"))?;
    let additional = files.keys().filter_map(|path| {
        let name = path.strip_prefix("additional_chat_templates/")?.strip_suffix(".jinja")?;
        Some((name.to_owned(), bytes(path)?))
    });
    let additional: Vec<_> = additional.collect();
    let config = bytes("tokenizer_config.json");
    let templates =
        ChatTemplates::read(bytes("chat_template.jinja").as_deref(), &additional, config.as_deref())?
            .with_special_tokens(tokenizer.special_tokens_map());
    Ok((tokenizer, templates))
}

/// The golden's conversation.
fn rendered(templates: &ChatTemplates, golden: &Value) -> Result<String> {
    let messages: Vec<Message> = list(&golden["messages"])
        .iter()
        .map(|message| Message::user(message["content"].as_str().unwrap()))
        .collect();
    templates.choose(None, false)?.render(&messages, &ChatOptions::default())
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
    let opened = open(files, golden).and_then(|(tokenizer, templates)| {
        let chat = tokenizer.encode(&rendered(&templates, golden)?, false)?;
        let all = texts.iter().map(|text| tokenizer.encode(text, true)).collect::<Result<Vec<_>>>()?;
        Ok((tokenizer, chat, all))
    });
    let (tokenizer, chat, all) = match (opened, result.get("error")) {
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
fn the_files_beside_a_vocabulary_count_as_in_transformers() {
    let golden: Value = serde_json::from_slice(&read("folders.json")).unwrap();
    let mut wrong = String::new();
    for case in list(&golden["folders"]) {
        let (name, expected) = (&case[0], &case[2]);
        let found = open(case[1].as_object().unwrap(), &golden).and_then(|(tokenizer, templates)| {
            let texts = list(&golden["texts"]).iter().map(|text| text.as_str().unwrap());
            let ids = texts.map(|text| tokenizer.encode(text, true)).collect::<Result<Vec<_>>>()?;
            let ids: Vec<Vec<u32>> = ids.iter().map(|row| row.iter().map(|id| id.0).collect()).collect();
            let special = [tokenizer.bos(), tokenizer.eos(), tokenizer.pad(), tokenizer.unknown()];
            let named: Map<String, Value> =
                tokenizer.special_tokens_map().map(|(name, token)| (name.to_owned(), token.into())).collect();
            let size = tokenizer.vocab_size() as u32;
            let text = |ids: Vec<u32>| {
                tokenizer.decode(&ids.into_iter().map(TokenId).collect::<Vec<_>>(), true).unwrap()
            };
            Ok(json!({
                "vocab_size": size,
                "bos_eos_pad_unk": special.map(|id| id.map(|id| id.0)),
                "ids": ids,
                "named": named,
                "chat": rendered(&templates, &golden).ok(),
                "text": text((0..size).step_by(40).collect()),
                "end": text((size - 16..size).collect()),
            }))
        });
        match (found, expected.get("error")) {
            (Err(_), Some(_)) => {}
            // Versions of a file are refused.
            (Err(error), None) if name == "older file" => {
                assert!(error.to_string().contains("copy that file to tokenizer.json"), "{error}");
            }
            (Ok(found), None) if found == *expected => {}
            (Ok(found), None) => {
                let expected = expected.as_object().unwrap().iter();
                for (field, expected) in expected.filter(|(field, expected)| found[*field] != **expected) {
                    let found = &found[field];
                    writeln!(wrong, "{name}, {field}:\n  found    {found}\n  expected {expected}").unwrap();
                }
            }
            (found, _) => writeln!(wrong, "{name}: {found:?}").unwrap(),
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
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
