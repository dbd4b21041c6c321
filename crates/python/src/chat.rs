//! Conversations, tools and documents of Python: chat templates read them as JSON values.

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyString};
use serde_json::{Map, Value};

use super::abc::is_sequence;
use super::errors::numbered_prompt;
use super::json::Form;
use super::prompts::shown;
use super::reasoning::Thinks;
use super::signals::polled;
use super::walk::{Text, Walk};
use rsgen::engine::Interrupt;
use rsgen::generator::{self, Call};
use rsgen_core::error::{Error, Result};
use rsgen_generation::GenerationConfig;
use rsgen_text::{ChatOptions, ChatTemplates, Message, Tokenizer};

/// The keyword arguments of `chat` that say how the conversation is rendered.
pub(super) const KEYWORDS: [&str; 5] =
    ["tools", "documents", "chat_template", "chat_template_kwargs", "continue_final_message"];
/// Arguments of transformers' `apply_chat_template` that rsgen does not have, with what it does.
const OTHERS: [(&str, &str); 8] = [
    ("return_dict", "ids come as a list"),
    ("return_tensors", "ids come as a list"),
    ("return_assistant_tokens_mask", "there is no such mask"),
    ("padding", "sequences keep their own lengths"),
    ("truncation", "sequences keep their own lengths"),
    ("max_length", "sequences keep their own lengths"),
    ("tokenizer_kwargs", "the tokenizer has no such settings"),
    ("sanitize_control_tokens", "control tokens in messages are not changed"),
];

/// One conversation, or several.
pub(super) enum Conversations {
    One(Vec<Message>),
    Several(Vec<Vec<Message>>),
}

impl Conversations {
    /// # Errors
    /// `TypeError` for what is no list of messages, or of conversations.
    pub(super) fn extract(given: &Bound<'_, PyAny>) -> PyResult<Self> {
        let walk = &Form::walk();
        let rule = "a conversation must be a list of messages, such as [{\"role\": \"user\", \"content\": \"Hello\"}], or of conversations";
        let items = list(walk, given, rule)?;
        match items.first() {
            Some(first) if is_sequence(first)? => {
                let conversations = items.iter().enumerate().map(|(index, messages)| {
                    conversation(walk, messages).map_err(|error| numbered_prompt(given.py(), index, error))
                });
                conversations.collect::<PyResult<_>>().map(Self::Several)
            }
            _ => conversation(walk, given).map(Self::One),
        }
    }

    /// Puts the description of an output type at the end of the last message of the user.
    ///
    /// # Errors
    /// `InputError` for a conversation without a message of the user.
    pub(super) fn describe(&mut self, py: Python<'_>, description: &str) -> PyResult<()> {
        let one = |messages: &mut Vec<Message>| {
            let of_user = |message: &&mut Message| message.fields().get("role") == Some(&Value::from("user"));
            let Some(message) = messages.iter_mut().rev().find(of_user) else {
                return Err(input_error!(
                    py,
                    "`describe_output` goes to the end of a message of the user, and there is none; add one"
                ));
            };
            let content = match message.fields().get("content") {
                Some(Value::Array(parts)) => {
                    let part = serde_json::json!({"type": "text", "text": format!("\n\n{description}")});
                    Value::Array([&parts[..], &[part]].concat())
                }
                Some(Value::String(text)) => Value::String(format!("{text}\n\n{description}")),
                _ => Value::from(description),
            };
            *message = message.clone().with("content", content);
            Ok(())
        };
        match self {
            Self::One(messages) => one(messages),
            Self::Several(list) => list.iter_mut().enumerate().try_for_each(|(index, messages)| {
                one(messages).map_err(|error| numbered_prompt(py, index, error))
            }),
        }
    }

    /// The call that replies to them.
    pub(super) fn call<'a>(
        &self,
        generator: &'a generator::Generator,
        options: &ChatOptions,
        config: &GenerationConfig,
        thinks: Option<&Thinks>,
        interrupted: &mut Interrupt<'_>,
    ) -> Result<Call<'a>> {
        let mut prompt = |messages: &Vec<Message>| {
            // One by itself may be too quick to ask.
            if interrupted() {
                return Err(Error::cancelled());
            }
            generator.fit_chat(messages, options, config, interrupted)
        };
        let prompts = match self {
            Self::One(messages) => vec![prompt(messages)?],
            Self::Several(list) => {
                let named = |(index, messages)| {
                    prompt(messages).map_err(|error: Error| error.of_prompt("prompt", index))
                };
                list.iter().enumerate().map(named).collect::<Result<_>>()?
            }
        };
        match thinks {
            Some(thinks) => {
                let config = thinks.config(&prompts, options, config)?;
                Ok(generator.call_chat(prompts, &config))
            }
            None => Ok(generator.call_chat(prompts, config)),
        }
    }

    /// Their texts, or with a tokenizer their token ids.
    pub(super) fn apply<'py, 't>(
        &self,
        py: Python<'py>,
        templates: &ChatTemplates,
        tokenizer: Option<&(dyn Fn() -> Result<&'t Tokenizer> + Sync)>,
        options: &ChatOptions,
    ) -> PyResult<Bound<'py, PyAny>> {
        let one = |messages: &Vec<Message>| {
            let text =
                polled(py, |interrupted| templates.apply_interruptible(messages, options, interrupted))?;
            let Some(tokenizer) = tokenizer else { return text.into_bound_py_any(py) };
            let ids = polled(py, |interrupted| tokenizer()?.encode_interruptible(&text, false, interrupted))?;
            ids.into_iter().map(|id| id.0).collect::<Vec<_>>().into_bound_py_any(py)
        };
        match self {
            Self::One(messages) => one(messages),
            Self::Several(list) => {
                let named =
                    |(index, messages)| one(messages).map_err(|error| numbered_prompt(py, index, error));
                list.iter().enumerate().map(named).collect::<PyResult<Vec<_>>>()?.into_bound_py_any(py)
            }
        }
    }
}

fn conversation(walk: &Walk, messages: &Bound<'_, PyAny>) -> PyResult<Vec<Message>> {
    let messages = list(walk, messages, "a conversation must be a list of messages")?;
    let messages = messages.iter().map(|message| match Form::Template.value(walk, message, 0)? {
        Value::Object(fields) => Ok(Message::from(fields)),
        _ => {
            Err(type_error!("a message must be a dict with \"role\" and \"content\", got {}", shown(message)))
        }
    });
    messages.collect()
}

fn list<'py>(walk: &Walk, value: &Bound<'py, PyAny>, rule: &str) -> PyResult<Vec<Bound<'py, PyAny>>> {
    if is_sequence(value)? {
        return walk.items(value)?.collect();
    }
    Err(type_error!("{rule}, got {}", shown(value)))
}

/// How a conversation is to be rendered, from the keyword arguments of `chat`.
pub(super) fn options(keywords: Option<&Bound<'_, PyDict>>) -> PyResult<ChatOptions> {
    let [tools, documents, template, variables, continued] = KEYWORDS;
    let keyword = |name: &str| -> PyResult<Option<Bound<'_, PyAny>>> {
        let value = keywords.map(|keywords| keywords.get_item(name)).transpose()?.flatten();
        Ok(value.filter(|value| !value.is_none()))
    };
    let mut options = ChatOptions {
        tools: keyword(tools)?.map(|given| schemas(&given)).transpose()?,
        documents: keyword(documents)?.map(|given| plain_list(&given, documents)).transpose()?,
        chat_template: keyword(template)?.map(|given| text(&given, template)).transpose()?,
        ..ChatOptions::default()
    };
    options.continue_final_message =
        keyword(continued)?.map_or(Ok(None), |given| continue_final_message(&given))?;
    if let Some(given) = keyword(variables)? {
        match Form::Template.value(&Form::walk(), &given, 0)? {
            Value::Object(given) => options.chat_template_kwargs = given,
            _ => {
                return Err(type_error!("`{variables}` must be a dict, got {}", shown(&given)));
            }
        }
    }
    Ok(options)
}

/// The variables for a template among the keyword arguments of `apply_chat_template`.
///
/// # Errors
/// `ConfigError` for an argument of transformers' that rsgen does not have, unless it asks for nothing.
pub(super) fn variables(keywords: Option<&Bound<'_, PyDict>>) -> PyResult<Map<String, Value>> {
    let (mut variables, walk) = (Map::new(), &Form::walk());
    for (name, value) in keywords.into_iter().flatten() {
        let name = name.extract::<Text<'_>>()?.0.to_owned();
        match OTHERS.iter().find(|(other, _)| *other == name) {
            Some((_, instead)) if value.is_truthy()? => {
                return Err(config_error!(
                    value.py(),
                    "`{name}` is not possible: {instead}; leave it out, got {}",
                    shown(&value)
                ));
            }
            Some(_) => {}
            None => {
                variables.insert(name, Form::Template.value(walk, &value, 0)?);
            }
        }
    }
    Ok(variables)
}

/// Which field of the final message goes on: true stands for its content.
pub(super) fn continue_final_message(given: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    if let Ok(flag) = given.cast::<PyBool>() {
        return Ok(flag.is_true().then(|| "content".to_owned()));
    }
    let field = text(given, "continue_final_message")?;
    Ok(Some(field).filter(|field| !field.is_empty()))
}

fn text(given: &Bound<'_, PyAny>, name: &str) -> PyResult<String> {
    let text =
        given.cast::<PyString>().map_err(|_| type_error!("`{name}` must be a text, got {}", shown(given)))?;
    Walk::default().text(text)
}

/// The JSON schemas of tools: dicts as they are, and what can be called by its signature.
pub(super) fn schemas(tools: &Bound<'_, PyAny>) -> PyResult<Vec<Value>> {
    let walk = &Form::walk();
    let tools = list(walk, tools, "`tools` must be a list of JSON schemas and functions")?;
    let schema = |tool: &Bound<'_, PyAny>| {
        if tool.is_instance_of::<PyDict>() {
            return Form::Template.value(walk, tool, 0);
        }
        let inspect = tool.py().import("inspect")?;
        if inspect.call_method1("isroutine", (tool,))?.is_truthy()? {
            let schema = tool.py().import("rsgen._tools")?.call_method1("json_schema", (tool,))?;
            return Form::Template.value(walk, &schema, 0);
        }
        Err(type_error!(
            "a tool must be a JSON schema or a function with type hints and a docstring, got {}",
            shown(tool)
        ))
    };
    tools.iter().map(schema).collect()
}

/// A list of JSON values.
pub(super) fn plain_list(given: &Bound<'_, PyAny>, name: &str) -> PyResult<Vec<Value>> {
    let walk = &Form::walk();
    let items = list(walk, given, &format!("`{name}` must be a list of dicts"))?;
    items.iter().map(|item| Form::Template.value(walk, item, 0)).collect()
}
