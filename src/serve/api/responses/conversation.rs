//! Requests of the Responses API as those of `/v1/chat/completions`.

use serde_json::{Map, Value, json};

use super::super::fields::CHAT;
use super::super::request::Request;
use super::super::single::Names;
use super::items::{self, Conversation};
use super::output::now;
use super::store::{Kept, Store, new_id};
use crate::serve::app::App;
use crate::serve::failure::Failure;
use crate::serve::json;
use crate::serve::keys::Tenant;

/// The fields that are called otherwise there.
pub(super) const NAMES: Names = &[
    ("messages", "input"),
    ("max_tokens", "max_output_tokens"),
    ("response_format", "text.format"),
    ("reasoning_effort", "reasoning.effort"),
];
/// The most pairs of `metadata`, and the most bytes of a key and of a value.
const METADATA: [usize; 3] = [16, 64, 512];
const PREVIOUS: &str = "previous_response_id";
/// Fields without an effect, which the response has again.
const ECHOED: &[&str] = &["max_tool_calls", "prompt_cache_key", "safety_identifier", "service_tier", "user"];
/// Other fields without an effect.
const WITHOUT_EFFECT: &[&str] = &["include", "prompt_cache_retention", "stream_options"];

/// A request that is understood.
pub(super) struct Asked {
    /// The request to `/v1/chat/completions` that it means.
    pub(super) request: Request,
    /// The response before its output.
    pub(super) response: Map<String, Value>,
    pub(super) id: String,
    /// The items that it answers as they are kept, if they are to be.
    pub(super) kept: Option<String>,
}

/// Translates a request.
///
/// # Errors
/// When a part of it has none of the forms of the Responses API, or one that is not supported.
pub(super) fn asked(app: &App, owner: &Tenant, mut request: Request, model: &str) -> Result<Asked, Failure> {
    refuse_unsupported(&request)?;
    if request.get("input").is_none() {
        return Err(request.missing("input", "a text, or a list of items"));
    }
    let id = new_id();
    let stores = request.flag("store").unwrap_or(true) && app.state.options.max_stored_responses > 0;
    let earlier = match request.text(PREVIOUS) {
        Some(previous) => Some(earlier(&app.state.responses, owner, previous)?),
        None => None,
    };
    let mut given = request.take();
    let mut take = |name: &str| given.remove(name).filter(|value| !value.is_null());
    let mut fields = Map::new();
    let mut response = Map::new();
    for (name, value) in [
        ("id", json!(id)),
        ("object", json!("response")),
        ("created_at", json!(now())),
        ("status", json!("in_progress")),
        ("background", json!(false)),
        ("error", Value::Null),
        ("incomplete_details", Value::Null),
        ("model", json!(model)),
        ("output", json!([])),
        ("store", json!(stores)),
        ("truncation", json!("disabled")),
        ("usage", Value::Null),
    ] {
        response.insert(name.to_owned(), value);
    }
    let mut conversation = Conversation::default();
    let instructions = take("instructions");
    if let Some(text) = instructions.as_ref().and_then(Value::as_str) {
        conversation.instruct(text);
    }
    response.insert("instructions".to_owned(), instructions.unwrap_or_default());
    let mut history = String::new();
    if let Some(earlier) = earlier {
        history = joined(&[&earlier.input, &earlier.output]);
        let of_history = json::kept(&app.state, "items", &history)?;
        let items = of_history.map.get("items").and_then(Value::as_array).map(Vec::as_slice);
        for (index, item) in items.unwrap_or_default().iter().enumerate() {
            conversation.add(&format!("{PREVIOUS}.items[{index}]"), item)?;
        }
        request.hold(of_history.held);
    }
    let mut items = match take("input").unwrap_or_default() {
        Value::Array(items) => items,
        text => vec![json!({ "type": "message", "role": "user", "content": text })],
    };
    for (index, item) in items.iter().enumerate() {
        conversation.add(&format!("input[{index}]"), item)?;
    }
    let messages = conversation.messages();
    if messages.is_empty() {
        return Err(Failure::invalid("input", "`input` must hold at least one message, but is empty"));
    }
    fields.insert("messages".to_owned(), messages.into());
    response.insert(PREVIOUS.to_owned(), take(PREVIOUS).unwrap_or_default());
    let kept = stores.then(|| {
        let mut new = Vec::new();
        for (index, item) in items.iter_mut().enumerate() {
            let of_item = id.trim_start_matches("resp_");
            items::kept(item, |kind| format!("{kind}_{of_item}i{index:04x}"));
            new.push(item.to_string());
        }
        joined(&[&history, &new.join(",")])
    });
    add_tools(&mut take, &mut fields, &mut response)?;
    add_text(take("text"), &mut fields, &mut response)?;
    let kwargs = add_reasoning(take("reasoning").as_ref(), &mut fields, &mut response)?;
    let metadata = take("metadata").unwrap_or_else(|| json!({}));
    check_metadata(&metadata)?;
    response.insert("metadata".to_owned(), metadata);
    let most = take("max_output_tokens");
    if let Some(most) = &most {
        fields.insert("max_tokens".to_owned(), most.clone());
    }
    response.insert("max_output_tokens".to_owned(), most.unwrap_or_default());
    response.insert("top_logprobs".to_owned(), 0.into());
    for name in ECHOED {
        response.insert((*name).to_owned(), take(name).unwrap_or_default());
    }
    for name in WITHOUT_EFFECT {
        take(name);
    }
    for name in ["background", "conversation", "prompt", "store", "top_logprobs", "truncation"] {
        take(name);
    }
    for name in ["temperature", "top_p"] {
        let value = given.get(name).filter(|value| !value.is_null());
        response.insert(name.to_owned(), value.cloned().unwrap_or_else(|| json!(1.0)));
    }
    fields.extend(given);
    for (name, value) in kwargs {
        // What the request itself says of the template counts.
        let all = fields.entry("chat_template_kwargs").or_insert_with(|| json!({}));
        if let Some(all) = all.as_object_mut() {
            all.entry(name).or_insert(value);
        }
    }
    let request = request.translated(CHAT, fields)?;
    Ok(Asked { request, response, id, kept })
}

/// The response that the request goes on with.
fn earlier(store: &Store, owner: &Tenant, id: &str) -> Result<Kept, Failure> {
    store.get(owner, id).ok_or_else(|| {
        let message = format!(
            "`{PREVIOUS}` names {id:?}, which is not kept: it was made with `store: false`, deleted, pushed out by newer ones, or \
             before the server was started; send the conversation in `input`"
        );
        Failure::invalid(PREVIOUS, message).with_code("previous_response_not_found")
    })
}

/// Lists of items as one.
fn joined(lists: &[&str]) -> String {
    let lists: Vec<&str> = lists.iter().copied().filter(|list| !list.is_empty()).collect();
    lists.join(",")
}

fn refuse_unsupported(request: &Request) -> Result<(), Failure> {
    let refused =
        |name: &str, rule: &str| Err(Failure::unsupported(name, format!("`{name}` {rule}; leave it out")));
    if request.is("background") {
        return refused("background", "must be false: a response is made while its client waits");
    }
    if request.text("truncation") == Some("auto") {
        return refused("truncation", "must be \"disabled\": no part of a conversation is dropped");
    }
    if request.count("top_logprobs").is_some_and(|count| count > 0) {
        return refused("top_logprobs", "must be 0: `/v1/chat/completions` has log-probabilities");
    }
    let is_logprobs = |value: &Value| value == "message.output_text.logprobs";
    if request.get("include").and_then(Value::as_array).is_some_and(|all| all.iter().any(is_logprobs)) {
        let rule =
            "must not have \"message.output_text.logprobs\": `/v1/chat/completions` has log-probabilities";
        return refused("include", rule);
    }
    for (name, rule) in [
        ("conversation", "is not supported: `previous_response_id` goes on with a response"),
        ("prompt", "is not supported: there are no stored prompts"),
    ] {
        if request.get(name).is_some_and(|value| *value != "") {
            return refused(name, rule);
        }
    }
    Ok(())
}

fn add_tools(
    take: &mut impl FnMut(&str) -> Option<Value>,
    fields: &mut Map<String, Value>,
    response: &mut Map<String, Value>,
) -> Result<(), Failure> {
    let tools = take("tools").unwrap_or_else(|| json!([]));
    let own = tools.as_array().map(Vec::as_slice).unwrap_or_default();
    let own = own.iter().enumerate().map(|(index, tool)| function(&format!("tools[{index}]"), tool));
    let own = own.collect::<Result<Vec<_>, _>>()?;
    if !own.is_empty() {
        fields.insert("tools".to_owned(), own.into());
    }
    let choice = take("tool_choice").unwrap_or_else(|| json!("auto"));
    let own = match (choice.get("type").and_then(Value::as_str), choice.get("name").and_then(Value::as_str)) {
        _ if choice.is_string() => choice.clone(),
        (Some("function"), Some(name)) => json!({ "type": "function", "function": { "name": name } }),
        (Some("function") | None, _) => {
            let message = "`tool_choice` must be \"auto\", \"none\", \"required\" or {\"type\": \"function\", \"name\": …}";
            return Err(Failure::invalid("tool_choice", message));
        }
        (Some(kind), _) => {
            let message = format!(
                "`tool_choice` is of the type {kind:?}, which is not supported; use \"auto\", \"none\", \"required\" or \
                 {{\"type\": \"function\", \"name\": …}}"
            );
            return Err(Failure::unsupported("tool_choice", message));
        }
    };
    fields.insert("tool_choice".to_owned(), own);
    let parallel = take("parallel_tool_calls").unwrap_or(Value::Bool(true));
    fields.insert("parallel_tool_calls".to_owned(), parallel.clone());
    for (name, value) in [("tools", tools), ("tool_choice", choice), ("parallel_tool_calls", parallel)] {
        response.insert(name.to_owned(), value);
    }
    Ok(())
}

/// A tool as chats have it.
fn function(at: &str, tool: &Value) -> Result<Value, Failure> {
    match tool.get("type").and_then(Value::as_str) {
        Some("function") => {}
        Some(kind) => {
            let message = format!(
                "`{at}` is of the type {kind:?}, but tools here are of the type \"function\" alone; leave it out"
            );
            return Err(Failure::unsupported(at, message));
        }
        None => {
            let message = format!("`{at}` must have the type \"function\"");
            return Err(Failure::invalid(at, message));
        }
    }
    if !tool.get("name").is_some_and(Value::is_string) {
        let message = format!("`{at}` must have `name`, which is a text, beside its `type`");
        return Err(Failure::invalid(at, message));
    }
    let mut function = Map::new();
    for name in ["name", "description", "parameters", "strict"] {
        if let Some(value) = tool.get(name).filter(|value| !value.is_null()) {
            function.insert(name.to_owned(), value.clone());
        }
    }
    Ok(json!({ "type": "function", "function": function }))
}

/// What form the answer has.
fn add_text(
    text: Option<Value>,
    fields: &mut Map<String, Value>,
    response: &mut Map<String, Value>,
) -> Result<(), Failure> {
    let text = text.unwrap_or_else(|| json!({}));
    let verbosity = text.get("verbosity").filter(|value| !value.is_null());
    if let Some(given) = verbosity.filter(|given| **given != "medium") {
        let message = format!(
            "`text.verbosity` must be \"medium\", but is {given}: the model is not told how much to say; leave it out, or say it in \
             `instructions`"
        );
        return Err(Failure::unsupported("text.verbosity", message));
    }
    let format = text.get("format").filter(|value| !value.is_null()).cloned();
    let format = format.unwrap_or_else(|| json!({ "type": "text" }));
    let own = match format.get("type").and_then(Value::as_str) {
        Some("json_schema") => {
            if !format.get("schema").is_some_and(Value::is_object) {
                let message =
                    "`text.format` of the type \"json_schema\" must have `schema`, which is an object";
                return Err(Failure::invalid("text.format", message));
            }
            json!({ "type": "json_schema", "json_schema": { "schema": format["schema"], "strict": format["strict"] } })
        }
        Some(kind @ ("text" | "json_object")) => json!({ "type": kind }),
        _ => {
            let message = "`text.format` must have the type \"text\", \"json_object\" or \"json_schema\"";
            return Err(Failure::invalid("text.format", message));
        }
    };
    if own["type"] != "text" {
        fields.insert("response_format".to_owned(), own);
    }
    response.insert("text".to_owned(), json!({ "format": format, "verbosity": "medium" }));
    Ok(())
}

/// How much the model thinks. Returns the variables of the template that say so.
fn add_reasoning(
    reasoning: Option<&Value>,
    fields: &mut Map<String, Value>,
    response: &mut Map<String, Value>,
) -> Result<Map<String, Value>, Failure> {
    let mut kwargs = Map::new();
    let effort = reasoning.and_then(|reasoning| reasoning.get("effort")).cloned().unwrap_or_default();
    match &effort {
        Value::Null => {}
        Value::String(word) if word == "none" => {
            kwargs.insert("enable_thinking".to_owned(), false.into());
        }
        Value::String(_) => {
            fields.insert("reasoning_effort".to_owned(), effort.clone());
        }
        _ => {
            let message = format!("`reasoning.effort` must be a text, such as \"low\", but is {effort}");
            return Err(Failure::invalid("reasoning.effort", message));
        }
    }
    response.insert("reasoning".to_owned(), json!({ "effort": effort, "summary": null }));
    Ok(kwargs)
}

fn check_metadata(metadata: &Value) -> Result<(), Failure> {
    let [pairs, key, value] = METADATA;
    let is_short = |text: Option<&str>, most: usize| text.is_some_and(|text| text.len() <= most);
    let given = metadata.as_object();
    let is_valid = given.is_none_or(|given| {
        let are_short =
            |(name, text): (&String, &Value)| is_short(Some(name), key) && is_short(text.as_str(), value);
        given.len() <= pairs && given.iter().all(are_short)
    });
    if is_valid {
        return Ok(());
    }
    let message = format!(
        "`metadata` must hold up to {pairs} pairs, whose keys are texts of up to {key} bytes and whose values are texts of up to \
         {value}"
    );
    Err(Failure::invalid("metadata", message))
}
