//! Chat templates of many families, with many conversations: byte for byte what transformers gives.

use rsgen::text::{ChatOptions, ChatTemplate, Message};
use serde_json::{Map, Value};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/chat_templates.json");

/// The arguments of a case as options; what is no argument is a variable of the template.
fn options(case: &Map<String, Value>) -> ChatOptions {
    let mut options = ChatOptions::default();
    for (name, value) in case {
        let list = || value.as_array().cloned();
        match name.as_str() {
            "messages" => {}
            "tools" => options.tools = list(),
            "documents" => options.documents = list(),
            "add_generation_prompt" => options.add_generation_prompt = value.as_bool().unwrap(),
            "continue_final_message" => {
                options.continue_final_message = Some(value.as_str().unwrap_or("content").to_owned());
            }
            _ => {
                options.chat_template_kwargs.insert(name.clone(), value.clone());
            }
        }
    }
    options
}

#[test]
fn prompts_are_byte_for_byte_those_of_transformers() {
    let golden: Value = serde_json::from_slice(&std::fs::read(GOLDEN).unwrap()).unwrap();
    let tokens = golden["special_tokens"].as_object().unwrap();
    let tokens: Vec<(&str, &str)> =
        tokens.iter().map(|(name, token)| (name.as_str(), token.as_str().unwrap())).collect();
    let cases = golden["cases"].as_object().unwrap();
    let templates = golden["templates"].as_object().unwrap();
    let (mut compared, mut different) = (0, Vec::new());
    for (family, template) in templates {
        let source = template["source"].as_str().unwrap();
        let chat = ChatTemplate::with_special_tokens(source, tokens.iter().copied()).unwrap();
        for ((name, case), expected) in cases.iter().zip(template["rendered"].as_array().unwrap()) {
            let case = case.as_object().unwrap();
            let messages = case["messages"].as_array().unwrap().iter().cloned();
            let messages: Vec<Message> = messages.map(|message| message.try_into().unwrap()).collect();
            let result = chat.render(&messages, &options(case));
            compared += 1;
            let same = match (&result, &expected["text"], &expected["error"]) {
                (Ok(text), Value::String(expected), _) => text == expected,
                (Err(error), _, Value::String(message)) => error.to_string().ends_with(message.as_str()),
                _ => false,
            };
            if !same {
                different.push(format!("{family}, {name}:\n  expected {expected}\n  got      {result:?}"));
            }
        }
    }
    assert!(different.is_empty(), "{} of {compared}\n{}", different.len(), different.join("\n"));
    assert!(templates.len() >= 25 && cases.len() >= 8, "the golden holds too little");
}

#[test]
fn expressions_and_statements_print_what_jinja_prints() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/jinja.json");
    let golden: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let messages = golden["messages"].as_array().unwrap().iter().cloned();
    let messages: Vec<Message> = messages.map(|message| message.try_into().unwrap()).collect();
    let options = ChatOptions { add_generation_prompt: true, ..ChatOptions::default() };
    let mut different = Vec::new();
    for case in golden["printed"].as_array().unwrap() {
        let source = case[0].as_str().unwrap();
        let result = ChatTemplate::from_source(source).and_then(|chat| chat.render(&messages, &options));
        if result.as_deref().ok() != case[1].as_str() {
            different.push(format!("{source:?}:\n  expected {}\n  got      {result:?}", case[1]));
        }
    }
    assert!(different.is_empty(), "{}\n{}", different.len(), different.join("\n"));
}
