//! Ollama's conversations and prompts as those of OpenAI's routes.

use std::collections::VecDeque;

use serde_json::{Map, Value, json};

use super::super::request::Request;
use crate::serve::failure::Failure;

/// Adds the messages of a chat, and its tools.
///
/// # Errors
/// When a message has another form, or holds what the model cannot read.
pub(super) fn add(request: &Request, fields: &mut Map<String, Value>) -> Result<(), Failure> {
    let given = request.get("messages").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut calls = Calls::default();
    let messages = given.iter().enumerate().map(|(index, given)| calls.message(index, given));
    let messages = messages.collect::<Result<Vec<_>, _>>()?;
    fields.insert("messages".to_owned(), messages.into());
    if let Some(tools) = request.get("tools") {
        fields.insert("tools".to_owned(), tools.clone());
    }
    Ok(())
}

/// Adds a prompt as what a user says.
///
/// # Errors
/// When the request has what no prompt here has.
pub(super) fn add_prompt(request: &Request, fields: &mut Map<String, Value>) -> Result<(), Failure> {
    refuse_unsupported(request)?;
    let mut messages = Vec::new();
    if let Some(system) = request.text("system").filter(|system| !system.is_empty()) {
        messages.push(json!({ "role": "system", "content": system }));
    }
    messages.push(json!({ "role": "user", "content": request.text("prompt") }));
    fields.insert("messages".to_owned(), messages.into());
    Ok(())
}

/// Adds a prompt as it is.
///
/// # Errors
/// As for [`add_prompt`].
pub(super) fn add_raw(request: &Request, fields: &mut Map<String, Value>) -> Result<(), Failure> {
    refuse_unsupported(request)?;
    if request.text("system").is_some_and(|system| !system.is_empty()) {
        let message = "`system` needs a template, which this prompt is without; put it into `prompt`";
        return Err(Failure::invalid("system", message));
    }
    let prompt = request.get("prompt").cloned().unwrap_or_default();
    fields.insert("prompt".to_owned(), prompt);
    Ok(())
}

fn refuse_unsupported(request: &Request) -> Result<(), Failure> {
    for (name, remedy) in [
        ("suffix", "leave it out"),
        ("template", "leave it out, or write the prompt yourself and set `raw`"),
        ("context", "send the conversation to `/api/chat`"),
    ] {
        let is_empty = |value: &Value| *value == "" || value.as_array().is_some_and(Vec::is_empty);
        if request.get(name).is_some_and(|value| !is_empty(value)) {
            return Err(Failure::unsupported(name, format!("`{name}` is not supported; {remedy}")));
        }
    }
    match request.get("images").and_then(Value::as_array) {
        Some(images) if !images.is_empty() => Err(unread("images")),
        _ => Ok(()),
    }
}

fn unread(at: &str) -> Failure {
    Failure::unsupported(at, format!("`{at}` holds images, but the model reads text alone; leave them out"))
}

/// The ids of calls, which Ollama's have not: results are in the order of the calls.
#[derive(Default)]
struct Calls {
    count: usize,
    open: VecDeque<String>,
}

impl Calls {
    fn message(&mut self, index: usize, given: &Value) -> Result<Value, Failure> {
        let at = format!("messages[{index}]");
        let wrong = |rule: &str| Failure::invalid(&*at, format!("`{at}` must have {rule}"));
        let role = given.get("role").and_then(Value::as_str).filter(|role| !role.is_empty());
        let role = role.ok_or_else(|| wrong("a `role`, such as \"user\""))?;
        let content = match given.get("content") {
            None | Some(Value::Null) => "",
            Some(Value::String(text)) => text,
            Some(_) => return Err(wrong("`content`, which is a text")),
        };
        match given.get("images") {
            None | Some(Value::Null) => {}
            Some(Value::Array(images)) if images.is_empty() => {}
            Some(_) => return Err(unread(&format!("{at}.images"))),
        }
        let mut message = json!({ "role": role, "content": content });
        match given.get("thinking").and_then(Value::as_str) {
            Some(thought) if role == "assistant" && !thought.is_empty() => {
                message["reasoning_content"] = thought.into();
            }
            _ => {}
        }
        match given.get("tool_calls") {
            None | Some(Value::Null) => {}
            Some(Value::Array(calls)) => {
                let calls = calls.iter().enumerate().map(|(place, call)| {
                    self.call(call).ok_or_else(|| {
                        let at = format!("{at}.tool_calls[{place}]");
                        let rule = "must have `function` with a `name` and `arguments`, which are an object";
                        Failure::invalid(&*at, format!("`{at}` {rule}"))
                    })
                });
                let calls = calls.collect::<Result<Vec<_>, _>>()?;
                if !calls.is_empty() {
                    message["tool_calls"] = calls.into();
                }
            }
            Some(_) => return Err(wrong("`tool_calls`, which are a list")),
        }
        if role == "tool" {
            let id = given.get("tool_call_id").and_then(Value::as_str).map(str::to_owned);
            message["tool_call_id"] = id.or_else(|| self.open.pop_front()).into();
            let name = given.get("tool_name").or_else(|| given.get("name"));
            if let Some(name) = name.filter(|name| name.is_string()) {
                message["name"] = name.clone();
            }
        }
        Ok(message)
    }

    /// A call with an id of nine characters, as some templates ask for.
    fn call(&mut self, call: &Value) -> Option<Value> {
        let name = call.pointer("/function/name")?.as_str()?;
        let arguments = match call.pointer("/function/arguments") {
            None | Some(Value::Null) => "{}".to_owned(),
            Some(arguments @ Value::Object(_)) => arguments.to_string(),
            Some(_) => return None,
        };
        self.count += 1;
        let id = format!("call{:05}", self.count);
        self.open.push_back(id.clone());
        Some(json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } }))
    }
}
