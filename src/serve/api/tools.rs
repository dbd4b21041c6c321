//! Tool calls in requests and answers of chats: which tools may be called, the grammar of calls that have to be
//! made, and calls as OpenAI writes them.

use serde_json::{Value, json};

use super::fields::CHAT;
use super::request::Request;
use super::structure;
use crate::engine::Interrupt;
use crate::generator::{Generator, ToolUse};
use crate::serve::failure::Failure;
use rsgen_core::error::Error;
use rsgen_generation::{FieldValue, GenerationConfig};
use rsgen_text::{ChatOptions, ToolCall, ToolChoice, ToolEvent, new_call_id};

/// The tools that the template shows; none where the request says so.
pub(super) fn shown(request: &Request) -> Option<Vec<Value>> {
    let tools = request.get("tools").and_then(Value::as_array).cloned();
    tools.filter(|tools| !tools.is_empty() && request.text("tool_choice") != Some("none"))
}

/// Reads the tools of a request, and sets the grammar of calls that it asks for.
///
/// # Errors
/// When a tool is none, the model is not shown any, or the choice contradicts another field.
pub(super) fn set(
    generator: &Generator,
    request: &Request,
    config: &mut GenerationConfig,
    interrupted: &mut Interrupt<'_>,
) -> Result<Option<ToolUse>, Failure> {
    if request.route() != CHAT {
        return Ok(None);
    }
    let choice = choice(request)?;
    let mut tools = shown(request);
    for tool in tools.iter_mut().flatten() {
        if tool.pointer("/function/strict") == Some(&Value::Bool(true))
            && let Some(parameters) = tool.pointer_mut("/function/parameters")
        {
            structure::close(parameters);
        }
    }
    let options = ChatOptions { tools, ..ChatOptions::default() };
    let refused = |error: Error| match error.field() {
        Some(field) => Failure::of(field, &error),
        None => error.into(),
    };
    let parser = request.tool_parser.as_deref();
    let tool_use = generator.tool_use(&options, parser, interrupted).map_err(refused)?;
    let Some(tool_use) = tool_use else {
        return match choice {
            ToolChoice::Auto | ToolChoice::None => Ok(None),
            _ => Err(Failure::invalid(
                "tool_choice",
                "`tool_choice` asks for a call, but there are no `tools`; give some, or leave it out",
            )),
        };
    };
    let parallel = request.flag("parallel_tool_calls").unwrap_or(true);
    let other = ["json_schema", "regex", "grammar"].into_iter().find(|name| config.get(name).is_some());
    // A text of another form has no calls, and a search that nothing ends takes no grammar.
    let is_free = choice == ToolChoice::Auto
        && (other.is_some() || generator.generation_config().eos_token_id.is_none());
    let grammar = if is_free {
        None
    } else {
        generator.tool_grammar(&tool_use, &choice, parallel, interrupted).map_err(refused)?
    };
    if let Some(grammar) = grammar {
        if let Some(other) = other {
            let other = request.alias(other).unwrap_or(other);
            let message = format!(
                "`tool_choice` asks for a call, and `{other}` says what form an answer has; leave out one of them"
            );
            return Err(Failure::invalid("tool_choice", message));
        }
        config.set("grammar", &FieldValue::from(Value::from(grammar))).map_err(refused)?;
    }
    Ok(Some(tool_use))
}

fn choice(request: &Request) -> Result<ToolChoice, Failure> {
    Ok(match request.get("tool_choice") {
        Some(Value::String(word)) if word == "none" => ToolChoice::None,
        Some(Value::String(word)) if word == "required" => ToolChoice::Required,
        None | Some(Value::String(_)) => ToolChoice::Auto,
        Some(given) => {
            let name = given.pointer("/function/name").and_then(Value::as_str);
            let name = name.filter(|_| given["type"] == "function").ok_or_else(|| {
                let message =
                    "`tool_choice` must be \"auto\", \"none\", \"required\" or {\"type\": \"function\", \"function\": {\"name\": …}}";
                Failure::invalid("tool_choice", message)
            })?;
            ToolChoice::Named(name.to_owned())
        }
    })
}

/// Calls as a message has them; `None` for a text alone.
pub(super) fn calls(events: &[ToolEvent]) -> Option<Value> {
    let (mut text, mut calls) = (String::new(), Vec::new());
    events.iter().cloned().for_each(|event| event.add_to(&mut text, &mut calls));
    let call = |ToolCall { name, arguments, .. }: ToolCall| json!({ "id": new_call_id(), "type": "function", "function": { "name": name, "arguments": arguments } });
    (!calls.is_empty()).then(|| calls.into_iter().map(call).collect())
}

/// A part of a call as a stream has it.
pub(super) fn delta(event: &ToolEvent) -> Option<Value> {
    let call = match event {
        ToolEvent::Begin { index, name } => json!({
            "index": index, "id": new_call_id(), "type": "function", "function": { "name": name, "arguments": "" },
        }),
        ToolEvent::Arguments { index, text } => json!({ "index": index, "function": { "arguments": text } }),
        _ => return None,
    };
    Some(json!({ "tool_calls": [call] }))
}
