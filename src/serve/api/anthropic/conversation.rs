//! Anthropic's requests as those of `/v1/chat/completions`.

use serde_json::{Map, Value, json};

use super::super::fields::{CHAT, MESSAGES};
use super::super::request::Request;
use super::super::single::Names;
use super::thinking;
use crate::serve::failure::Failure;

/// The fields that are called otherwise there.
pub(super) const NAMES: Names = &[
    ("stop", "stop_sequences"),
    ("response_format", "output_config"),
    ("thinking_token_budget", "thinking.budget_tokens"),
];

/// What becomes of the content of a turn.
#[derive(Default)]
struct Turn {
    thoughts: Vec<String>,
    texts: Vec<Value>,
    calls: Vec<Value>,
}

/// The request to `/v1/chat/completions` that a request means.
///
/// # Errors
/// When a part of it has none of the forms of Anthropic's API, or one that the model cannot read.
pub(super) fn translated(mut request: Request) -> Result<Request, Failure> {
    let missing = |name: &str, remedy: &str| Err(request.missing(name, remedy));
    if request.get("messages").is_none() {
        return missing("messages", "a list of turns");
    }
    if request.route() == MESSAGES && request.get("max_tokens").is_none() {
        return missing("max_tokens", "the most new tokens");
    }
    for name in ["container", "mcp_servers"] {
        if request.get(name).is_some_and(|value| *value != "") {
            return Err(Failure::unsupported(name, format!("`{name}` is not supported; leave it out")));
        }
    }
    let mut given = request.take();
    let mut fields = Map::new();
    let mut take = |name: &str| given.remove(name).filter(|value| !value.is_null());
    let mut messages = Vec::new();
    if let Some(system) = take("system") {
        messages.push(json!({ "role": "system", "content": texts("system", system)? }));
    }
    let turns = take("messages").unwrap_or_default();
    let is_continued = add_turns(turns, &mut messages)?;
    fields.insert("messages".to_owned(), messages.into());
    if is_continued {
        fields.insert("continue_final_message".to_owned(), true.into());
        fields.insert("add_generation_prompt".to_owned(), false.into());
    }
    if let Some(tools) = take("tools") {
        fields.insert("tools".to_owned(), self::tools(tools)?);
    }
    if let Some(choice) = take("tool_choice") {
        add_choice(&choice, &mut fields)?;
    }
    let thinking = take("thinking");
    if let Some(config) = take("output_config") {
        add_format(&config, &mut fields)?;
    }
    if let Some(stops) = take("stop_sequences") {
        fields.insert("stop".to_owned(), stops);
    }
    for name in ["metadata", "service_tier", "container", "mcp_servers"] {
        take(name);
    }
    fields.extend(given);
    thinking::add(thinking.as_ref(), &mut fields)?;
    request.translated(CHAT, fields)
}

/// Adds the turns of a conversation; neighbours of one role are one turn. Returns whether the last one is to be
/// continued.
fn add_turns(turns: Value, messages: &mut Vec<Value>) -> Result<bool, Failure> {
    let Value::Array(turns) = turns else { return Ok(false) };
    if turns.is_empty() {
        return Err(Failure::invalid("messages", "`messages` must hold at least one turn, but is empty"));
    }
    let mut open: Option<(&'static str, Turn)> = None;
    for (index, turn) in turns.into_iter().enumerate() {
        let at = format!("messages[{index}]");
        let role = match turn.get("role").and_then(Value::as_str) {
            Some("user") => "user",
            Some("assistant") => "assistant",
            _ => {
                let message = format!(
                    "`{at}` must have a `role`, \"user\" or \"assistant\"; the system prompt is `system`"
                );
                return Err(Failure::invalid(at, message));
            }
        };
        let mut current = match open.take() {
            Some((other, turn)) if other == role => turn,
            Some((other, turn)) => {
                turn.close(other, messages);
                Turn::default()
            }
            None => Turn::default(),
        };
        match turn.get("content") {
            Some(Value::String(text)) => current.texts.push(text_part(text)),
            Some(Value::Array(blocks)) => {
                for (place, block) in blocks.iter().enumerate() {
                    let at = format!("{at}.content[{place}]");
                    current.add(&at, role, block, messages)?;
                }
            }
            _ => {
                let message = format!("`{at}` must have `content`: a text, or a list of blocks");
                return Err(Failure::invalid(at, message));
            }
        }
        open = Some((role, current));
    }
    let is_continued =
        matches!(&open, Some(("assistant", turn)) if turn.calls.is_empty() && !turn.texts.is_empty());
    if let Some((role, turn)) = open {
        turn.close(role, messages);
    }
    Ok(is_continued)
}

impl Turn {
    /// Adds a block. The result of a tool is a message of its own, before the texts of its turn that follow.
    fn add(
        &mut self,
        at: &str,
        role: &'static str,
        block: &Value,
        messages: &mut Vec<Value>,
    ) -> Result<(), Failure> {
        let wrong = |rule: &str| Failure::invalid(at, format!("`{at}` must have {rule}"));
        let text = |name: &str| block.get(name).and_then(Value::as_str);
        match (text("type"), role) {
            (Some("text"), _) => {
                self.texts.push(text_part(text("text").ok_or_else(|| wrong("`text`, which is a text"))?));
            }
            (Some("tool_use"), "assistant") => {
                let name = text("name").ok_or_else(|| wrong("`name`, which is a text"))?;
                let id = text("id").ok_or_else(|| wrong("`id`, which is a text"))?;
                let input = block.get("input").filter(|input| input.is_object());
                let input = input.ok_or_else(|| wrong("`input`, which is an object"))?;
                let function = json!({ "name": name, "arguments": input.to_string() });
                self.calls.push(json!({ "id": id, "type": "function", "function": function }));
            }
            (Some("tool_result"), "user") => {
                let id = text("tool_use_id").ok_or_else(|| wrong("`tool_use_id`, which is a text"))?;
                let content = match block.get("content").cloned().unwrap_or_default() {
                    Value::Null => "".into(),
                    content => texts(&format!("{at}.content"), content)?,
                };
                std::mem::take(self).close(role, messages);
                messages.push(json!({ "role": "tool", "tool_call_id": id, "content": content }));
            }
            // The template shows as much of it as it likes.
            (Some("thinking"), "assistant") => {
                self.thoughts.extend(text("thinking").filter(|text| !text.is_empty()).map(str::to_owned));
            }
            (Some("redacted_thinking"), "assistant") => {}
            (Some(kind @ ("tool_use" | "tool_result")), _) => {
                let message = format!(
                    "`{at}` is a block of the type {kind:?}, which has no place in a turn of {role:?}"
                );
                return Err(Failure::invalid(at, message));
            }
            (Some(kind), _) => return Err(unread(at, kind)),
            (None, _) => return Err(wrong("a `type`, such as \"text\"")),
        }
        Ok(())
    }

    fn close(self, role: &str, messages: &mut Vec<Value>) {
        let Self { thoughts, mut texts, calls } = self;
        if texts.is_empty() && calls.is_empty() {
            return;
        }
        let content = match texts.len() {
            0 => Value::Null,
            1 => texts[0]["text"].take(),
            _ => texts.into(),
        };
        let mut message = json!({ "role": role, "content": content });
        if !thoughts.is_empty() {
            message["reasoning_content"] = thoughts.join("\n").into();
        }
        if !calls.is_empty() {
            message["tool_calls"] = calls.into();
        }
        messages.push(message);
    }
}

fn text_part(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn unread(at: &str, kind: &str) -> Failure {
    let message =
        format!("`{at}` is a block of the type {kind:?}, but the model reads text alone; leave it out");
    Failure::unsupported(at, message)
}

/// A text, or the parts of a list of blocks that are texts.
fn texts(at: &str, value: Value) -> Result<Value, Failure> {
    let Value::Array(blocks) = value else {
        return match value {
            Value::String(_) => Ok(value),
            _ => Err(Failure::invalid(at, format!("`{at}` must be a text, or a list of blocks"))),
        };
    };
    let part = |(index, block): (usize, &Value)| {
        let at = format!("{at}[{index}]");
        match (block.get("type").and_then(Value::as_str), block.get("text").and_then(Value::as_str)) {
            (Some("text"), Some(text)) => Ok(text_part(text)),
            (Some(kind), _) if kind != "text" => Err(unread(&at, kind)),
            _ => {
                let message = format!("`{at}` must have the type \"text\" and `text`, which is a text");
                Err(Failure::invalid(at, message))
            }
        }
    };
    match blocks.len() {
        0 => Ok("".into()),
        _ => Ok(blocks.iter().enumerate().map(part).collect::<Result<Vec<_>, _>>()?.into()),
    }
}

/// Anthropic's tools as OpenAI's.
fn tools(tools: Value) -> Result<Value, Failure> {
    let Value::Array(tools) = tools else { return Ok(Value::Null) };
    let tool = |(index, mut tool): (usize, Value)| {
        let at = format!("tools[{index}]");
        if let Some(kind) = tool.get("type").and_then(Value::as_str).filter(|&kind| kind != "custom") {
            let message =
                format!("`{at}` is of the type {kind:?}, which is a tool of another server; leave it out");
            return Err(Failure::unsupported(at, message));
        }
        if !tool.get("name").is_some_and(Value::is_string) {
            let message = format!("`{at}` must have `name`, which is a text");
            return Err(Failure::invalid(at, message));
        }
        if !tool.get("input_schema").is_some_and(Value::is_object) {
            let message = format!("`{at}` must have `input_schema`, which is an object");
            return Err(Failure::invalid(at, message));
        }
        let mut function = Map::new();
        for (from, to) in [
            ("name", "name"),
            ("description", "description"),
            ("input_schema", "parameters"),
            ("strict", "strict"),
        ] {
            if let Some(value) = tool.get_mut(from).map(Value::take).filter(|value| !value.is_null()) {
                function.insert(to.to_owned(), value);
            }
        }
        Ok(json!({ "type": "function", "function": function }))
    };
    tools.into_iter().enumerate().map(tool).collect()
}

fn add_choice(choice: &Value, fields: &mut Map<String, Value>) -> Result<(), Failure> {
    let wrong = |rule: &str| Failure::invalid("tool_choice", format!("`tool_choice` must have {rule}"));
    let name = choice.get("name").and_then(Value::as_str);
    let own = match choice.get("type").and_then(Value::as_str) {
        Some(word @ ("auto" | "none")) => word.into(),
        Some("any") => "required".into(),
        Some("tool") => match name {
            Some(name) => json!({ "type": "function", "function": { "name": name } }),
            None => return Err(wrong("`name`, the tool that it means")),
        },
        _ => return Err(wrong("a `type`: \"auto\", \"any\", \"tool\" or \"none\"")),
    };
    fields.insert("tool_choice".to_owned(), own);
    match choice.get("disable_parallel_tool_use") {
        None | Some(Value::Null) => {}
        Some(Value::Bool(one)) => {
            fields.insert("parallel_tool_calls".to_owned(), (!one).into());
        }
        Some(_) => return Err(wrong("`disable_parallel_tool_use`, which is true or false")),
    }
    Ok(())
}

fn add_format(config: &Value, fields: &mut Map<String, Value>) -> Result<(), Failure> {
    let name = "output_config";
    if config.get("effort").is_some_and(|effort| !effort.is_null()) {
        let message =
            "`output_config.effort` is not supported here; leave it out, or use `chat_template_kwargs`";
        return Err(Failure::unsupported(name, message));
    }
    let Some(format) = config.get("format").filter(|format| !format.is_null()) else { return Ok(()) };
    match (&format["type"], format.get("schema")) {
        (Value::String(kind), Some(schema)) if kind == "json_schema" => {
            let format = json!({ "type": kind, "json_schema": { "schema": schema } });
            fields.insert("response_format".to_owned(), format);
            Ok(())
        }
        _ => {
            let message = "`output_config.format` must have the type \"json_schema\" and a `schema`";
            Err(Failure::invalid(name, message))
        }
    }
}
