//! Messages, and how transformers prepares them for a template: it drops fields without a value, copies
//! reasoning to the names that templates use, and marks the end of a message to be continued.

use serde_json::{Map, Value};

use crate::jinja::strip;
use rsgen_core::error::{Error, Result};

/// The names of a message's reasoning; templates read the first one.
const REASONING: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];
/// Marks the end of a message to be continued. Templates may strip its space. It is transformers' own mark,
/// since a template can see it.
const MARK: &str = "CONTINUE_FINAL_MESSAGE_TAG ";

/// One message of a conversation: an object, usually with `role` and `content`.
#[derive(Debug, Clone, PartialEq)]
pub struct Message(Map<String, Value>);

impl Message {
    /// A message of a role. The content is a text, or a list of parts such as `{"type": "text", "text": …}`.
    pub fn new(role: impl Into<String>, content: impl Into<Value>) -> Self {
        let mut fields = Map::new();
        fields.insert("role".to_owned(), Value::String(role.into()));
        fields.insert("content".to_owned(), content.into());
        Self(fields)
    }

    /// A message of the user.
    pub fn user(content: impl Into<Value>) -> Self {
        Self::new("user", content)
    }

    /// A message of the model.
    pub fn assistant(content: impl Into<Value>) -> Self {
        Self::new("assistant", content)
    }

    /// A system message.
    pub fn system(content: impl Into<Value>) -> Self {
        Self::new("system", content)
    }

    /// Adds a field, such as `tool_calls`.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.0.insert(name.into(), value.into());
        self
    }

    /// Its fields.
    pub fn fields(&self) -> &Map<String, Value> {
        &self.0
    }
}

impl From<Map<String, Value>> for Message {
    fn from(fields: Map<String, Value>) -> Self {
        Self(fields)
    }
}

impl TryFrom<Value> for Message {
    type Error = Error;

    fn try_from(value: Value) -> Result<Self> {
        match value {
            Value::Object(fields) => Ok(Self(fields)),
            other => Err(Error::input(format!(
                "a message must be an object with `role` and `content`, got {}",
                kind(&other)
            ))),
        }
    }
}

/// The first message that says nothing, where a template may expect it to.
pub(super) fn without_content(messages: &[Map<String, Value>]) -> Option<usize> {
    messages.iter().position(|fields| !fields.contains_key("content") && !fields.contains_key("tool_calls"))
}

/// Names the type of a JSON value, for errors.
pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// The messages as templates see them.
pub(super) fn normalized(messages: &[Message]) -> Vec<Map<String, Value>> {
    messages
        .iter()
        .map(|message| {
            let given = message.0.iter().filter(|(_, value)| !value.is_null());
            let fields: Map<_, _> = given.map(|(name, value)| (name.clone(), value.clone())).collect();
            let Some(reasoning) = REASONING.iter().find_map(|name| fields.get(*name)).cloned() else {
                return fields;
            };
            // In transformers' order, which `tojson` shows.
            let mut named = Map::from_iter([("thinking".to_owned(), reasoning.clone())]);
            named.extend(fields);
            named.insert("reasoning_content".to_owned(), reasoning);
            named
        })
        .collect()
}

/// A final message whose end is marked.
pub(super) struct Marked {
    /// Its text before the mark.
    text: String,
}

fn refused<T>(why: &str) -> Result<T> {
    Err(Error::input(format!(": {why}")).about("continue_final_message"))
}

/// Marks the end of a field of the final message. `source` is the template, which must know the field.
pub(super) fn mark_end(messages: &mut [Map<String, Value>], field: &str, source: &str) -> Result<Marked> {
    let Some(last) = messages.last_mut() else { return refused("the conversation has no message") };
    let Some(value) = last.get(field).cloned() else {
        return refused(&format!("the final message has no `{field}` that could be continued"));
    };
    // Reasoning is there under several names; the template reads one of them.
    let is_same =
        |name: &&str| *name == field || REASONING.contains(&field) && last.get(*name) == Some(&value);
    let fields: Vec<&str> = REASONING.into_iter().chain([field]).filter(is_same).collect();
    if !fields.iter().any(|field| source.contains(field)) {
        return refused(&format!("the chat template has no use for a field `{field}`"));
    }
    if let Value::String(text) = value {
        for field in fields {
            last.insert(field.to_owned(), Value::String(format!("{text}{MARK}")));
        }
        return Ok(Marked { text });
    }
    let Some(Value::Array(parts)) = last.get_mut(field) else {
        return refused(&format!("`{field}` must be a text or a list of parts, got {}", kind(&value)));
    };
    let Some(Value::String(part)) = parts.iter_mut().rev().find_map(|part| part.get_mut("text")) else {
        return refused("no part of the final message is a text that could be continued");
    };
    let text = part.clone();
    part.push_str(MARK);
    Ok(Marked { text })
}

impl Marked {
    /// The prompt up to the mark.
    pub(super) fn cut(&self, mut rendered: String) -> Result<String> {
        let end = rendered.rfind(MARK.trim_end());
        let end = end.filter(|_| rendered.contains(strip(&self.text, None, true, true)));
        let Some(end) = end else {
            return refused(
                "the final message does not appear in the prompt as it is: the chat template leaves out or changes parts \
                 of it",
            );
        };
        let keeps_space = rendered[end..].starts_with(MARK);
        rendered.truncate(end);
        if !keeps_space {
            // The template strips messages, so it would have stripped the space before the mark too.
            rendered.truncate(strip(&rendered, None, false, true).len());
        }
        Ok(rendered)
    }
}
