//! The items of a conversation as messages of `/v1/chat/completions`.

use serde_json::{Map, Value, json};

use crate::serve::failure::Failure;
use crate::serve::json::object;

/// The messages so far.
#[derive(Default)]
pub(super) struct Conversation {
    messages: Vec<Value>,
    turn: Turn,
}

/// What the model did in a row: it thought, spoke and called tools.
#[derive(Default)]
struct Turn {
    thought: String,
    texts: Vec<Value>,
    calls: Vec<Value>,
}

impl Conversation {
    /// Adds instructions, which come before all else.
    pub(super) fn instruct(&mut self, instructions: &str) {
        self.messages.push(json!({ "role": "system", "content": instructions }));
    }

    /// Adds an item; `at` is its place in the request.
    ///
    /// # Errors
    /// When it has none of the forms of its type, or holds what the model cannot read.
    pub(super) fn add(&mut self, at: &str, item: &Value) -> Result<(), Failure> {
        let wrong = |rule: &str| Failure::invalid(at, format!("`{at}` must have {rule}"));
        let text = |name: &str| item.get(name).and_then(Value::as_str);
        let needed = |name: &str| text(name).ok_or_else(|| wrong(&format!("`{name}`, which is a text")));
        let kind = match item.get("type") {
            None | Some(Value::Null) if item.get("role").is_some() => "message",
            Some(Value::String(kind)) => kind,
            _ => return Err(wrong("a `type`, such as \"message\"")),
        };
        match kind {
            "message" => {
                let role = text("role").unwrap_or_default();
                let content = item.get("content").unwrap_or(&Value::Null);
                let texts = parts(&format!("{at}.content"), content)?;
                match role {
                    "assistant" => self.said(texts),
                    "user" | "system" | "developer" => {
                        self.close();
                        self.messages.push(json!({ "role": role, "content": joined(texts) }));
                    }
                    _ => {
                        return Err(wrong("a `role`: \"user\", \"assistant\", \"system\" or \"developer\""));
                    }
                }
            }
            "reasoning" => {
                let listed = ["content", "summary"].map(|name| thoughts(at, name, item.get(name)));
                let [content, summary] = listed;
                let (content, summary) = (content?, summary?);
                if !self.turn.texts.is_empty() || !self.turn.calls.is_empty() {
                    self.close();
                }
                let thought = &mut self.turn.thought;
                for text in if content.is_empty() { summary } else { content } {
                    if !thought.is_empty() {
                        thought.push('\n');
                    }
                    thought.push_str(text);
                }
            }
            "function_call" => {
                let (name, arguments, id) = (needed("name")?, needed("arguments")?, needed("call_id")?);
                match object(arguments.as_bytes()) {
                    Err(_) if text("status") == Some("incomplete") => return Ok(()),
                    Err(why) if !arguments.trim().is_empty() => {
                        let at = format!("{at}.arguments");
                        return Err(Failure::invalid(&*at, format!("`{at}` must be {why}")));
                    }
                    _ => {}
                }
                let function = json!({ "name": name, "arguments": arguments });
                self.turn.calls.push(json!({ "id": id, "type": "function", "function": function }));
            }
            "function_call_output" => {
                let id = needed("call_id")?;
                let output = parts(&format!("{at}.output"), item.get("output").unwrap_or(&Value::Null))?;
                self.close();
                self.messages.push(json!({ "role": "tool", "tool_call_id": id, "content": joined(output) }));
            }
            "item_reference" => {
                let message = format!(
                    "`{at}` refers to an item by its id; give the item itself, or `previous_response_id`"
                );
                return Err(Failure::unsupported(at, message));
            }
            other => {
                let message = format!(
                    "`{at}` is an item of the type {other:?}, which has no place here: items are messages, reasoning, and calls \
                     of functions with their outputs; leave it out"
                );
                return Err(Failure::unsupported(at, message));
            }
        }
        Ok(())
    }

    /// The messages of all items.
    pub(super) fn messages(mut self) -> Vec<Value> {
        self.close();
        self.messages
    }

    /// The model said something: of its turn, unless it has spoken there before.
    fn said(&mut self, texts: Vec<Value>) {
        if !self.turn.texts.is_empty() {
            self.close();
        }
        self.turn.texts = texts;
    }

    /// Ends the turn of the model.
    fn close(&mut self) {
        let Turn { thought, texts, calls } = std::mem::take(&mut self.turn);
        if texts.is_empty() && calls.is_empty() {
            return;
        }
        let content = if texts.is_empty() { Value::Null } else { joined(texts) };
        let mut message = Map::new();
        message.insert("role".to_owned(), "assistant".into());
        message.insert("content".to_owned(), content);
        if !thought.is_empty() {
            message.insert("reasoning_content".to_owned(), thought.into());
        }
        if !calls.is_empty() {
            message.insert("tool_calls".to_owned(), calls.into());
        }
        self.messages.push(message.into());
    }
}

/// A text, or a list of parts that are texts.
fn joined(mut texts: Vec<Value>) -> Value {
    match texts.len() {
        0 => "".into(),
        1 => texts[0]["text"].take(),
        _ => texts.into(),
    }
}

/// The texts of a content.
fn parts(at: &str, content: &Value) -> Result<Vec<Value>, Failure> {
    let part = |text: &str| json!({ "type": "text", "text": text });
    let listed = match content {
        Value::String(text) => return Ok(vec![part(text)]),
        Value::Array(parts) => parts,
        _ => {
            let message = format!("`{at}` must be a text, or a list of parts");
            return Err(Failure::invalid(at, message));
        }
    };
    let of_part = |(index, given): (usize, &Value)| {
        let at = format!("{at}[{index}]");
        let name = match given.get("type").and_then(Value::as_str) {
            Some("input_text" | "output_text" | "text") => "text",
            Some("refusal") => "refusal",
            Some(kind) => {
                let message = format!(
                    "`{at}` is a part of the type {kind:?}, but the model reads text alone; leave it out"
                );
                return Err(Failure::unsupported(at, message));
            }
            None => {
                let message = format!("`{at}` must have a `type`, such as \"input_text\"");
                return Err(Failure::invalid(at, message));
            }
        };
        let text = given.get(name).and_then(Value::as_str);
        text.map(part).ok_or_else(|| {
            let message = format!("`{at}` must have `{name}`, which is a text");
            Failure::invalid(at, message)
        })
    };
    listed.iter().enumerate().map(of_part).collect()
}

/// The texts of a list in an item of reasoning.
fn thoughts<'a>(at: &str, name: &str, list: Option<&'a Value>) -> Result<Vec<&'a str>, Failure> {
    let texts = match list {
        None | Some(Value::Null) => Some(Vec::new()),
        Some(Value::Array(parts)) => {
            parts.iter().map(|part| part.get("text").and_then(Value::as_str)).collect()
        }
        Some(_) => None,
    };
    texts.ok_or_else(|| {
        let at = format!("{at}.{name}");
        Failure::invalid(&*at, format!("`{at}` must be a list of parts with `text`, which is a text"))
    })
}

/// An item as it is kept: with its type, an id, and the content of a message as a list of parts.
pub(super) fn kept(item: &mut Value, new_id: impl FnOnce(&str) -> String) {
    let Some(fields) = item.as_object_mut() else { return };
    let kind = fields.entry("type").or_insert(Value::Null);
    if kind.is_null() {
        *kind = "message".into();
    }
    let kind = kind.as_str().unwrap_or_default().to_owned();
    if kind == "message"
        && let Some(Value::String(text)) = fields.get("content")
    {
        let is_said = fields.get("role").is_some_and(|role| role == "assistant");
        let part = if is_said {
            json!({ "type": "output_text", "text": text, "annotations": [] })
        } else {
            json!({ "type": "input_text", "text": text })
        };
        fields.insert("content".to_owned(), json!([part]));
    }
    if !fields.get("id").is_some_and(Value::is_string) {
        let id = new_id(match &*kind {
            "reasoning" => "rs",
            "function_call" => "fc",
            "function_call_output" => "fco",
            _ => "msg",
        });
        fields.insert("id".to_owned(), id.into());
    }
    fields.entry("status").or_insert("completed".into());
}
