//! Selects the template: a model has none, one, or several named ones, in files of its folder or in
//! `tokenizer_config.json`. The rules and their order are those of transformers 5.23.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{ChatOptions, ChatTemplate, Message};
use crate::tokenizer::MAX_TOKENIZER_BYTES;
use rsgen_core::error::{Error, Result};
use rsgen_core::json::read_object;
use rsgen_core::message;

const DEFAULT: &str = "default";
const TOOL_USE: &str = "tool_use";
const JINJA: &str = "chat_template.jinja";
const CONFIG: &str = "tokenizer_config.json";

/// The chat templates of a model.
#[derive(Debug, Clone, Default)]
pub struct ChatTemplates {
    /// The only one, without a name.
    only: Option<String>,
    named: BTreeMap<String, String>,
    special_tokens: Vec<(String, String)>,
}

impl ChatTemplates {
    /// Reads the templates of a model's folder: `chat_template.jinja`, the files of
    /// `additional_chat_templates` with their names (without the ending), or, without such files,
    /// `tokenizer_config.json`.
    ///
    /// # Errors
    /// `Load` when a file is not UTF-8 or not JSON, or its `chat_template` is neither a text nor a list of
    /// named ones.
    pub fn read(
        chat_template_jinja: Option<&[u8]>,
        additional: &[(String, Vec<u8>)],
        tokenizer_config: Option<&[u8]>,
    ) -> Result<Self> {
        let mut named = BTreeMap::new();
        if let Some(bytes) = chat_template_jinja {
            named.insert(DEFAULT.to_owned(), utf8(JINJA, bytes)?);
        }
        for (name, bytes) in additional {
            named.insert(name.clone(), utf8(&format!("additional_chat_templates/{name}.jinja"), bytes)?);
        }
        match tokenizer_config {
            Some(config) if named.is_empty() => of_config(config),
            _ => {
                let is_alone = named.len() == 1;
                let only = if is_alone { named.remove(DEFAULT) } else { None };
                Ok(Self { only, named, special_tokens: Vec::new() })
            }
        }
    }

    /// The special tokens that the templates may use, with their texts.
    #[must_use]
    pub fn with_special_tokens<'a>(mut self, tokens: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let tokens = tokens.into_iter().map(|(name, token)| (name.to_owned(), token.to_owned()));
        self.special_tokens = tokens.collect();
        self
    }

    /// The names of the templates, if they have names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.named.keys().map(String::as_str)
    }

    /// The prompt of a conversation by the template that `options` choose, until `interrupted` returns true.
    ///
    /// # Errors
    /// As for [`choose`](Self::choose), `Input` when the template fails, and `Cancelled`.
    pub fn apply_interruptible(
        &self,
        messages: &[Message],
        options: &ChatOptions,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<String> {
        let template = self.choose(options.chat_template.as_deref(), options.tools.is_some())?;
        template.render_interruptible(messages, options, interrupted)
    }

    /// The template of a call: `given` is one, or the name of one of the model's. Of named ones, `tool_use`
    /// is the default if there are tools, else `default`.
    ///
    /// # Errors
    /// `Input` when none is given and the model has no template or no default; or when it cannot be read.
    pub fn choose(&self, given: Option<&str>, has_tools: bool) -> Result<ChatTemplate> {
        let default = || {
            let tool_use = self.named.get(TOOL_USE).filter(|_| has_tools);
            self.only.as_ref().or(tool_use).or_else(|| self.named.get(DEFAULT))
        };
        let source = match given {
            Some(given) => self.named.get(given).map_or(given, String::as_str),
            None => default().ok_or_else(|| {
                Error::input(if self.named.is_empty() {
                    message!(
                        "the model has no chat template, and none is guessed; set " {chat_template}
                        " to the template that it was trained with"
                    )
                } else {
                    let names: Vec<&str> = self.names().collect();
                    message!(
                        "the model has several chat templates and none of them is the default; set " {chat_template}
                        " to one of {names:?}, or to a template"
                    )
                })
            })?,
        };
        let tokens = self.special_tokens.iter().map(|(name, token)| (name.as_str(), token.as_str()));
        ChatTemplate::with_special_tokens(source, tokens)
    }
}

fn utf8(file: &str, bytes: &[u8]) -> Result<String> {
    let text = std::str::from_utf8(bytes);
    text.map(str::to_owned)
        .map_err(|error| Error::load(format!("{file}: it must be UTF-8")).with_source(error))
}

/// The field `chat_template`: a text, a list of names with texts, or an object of such.
fn of_config(bytes: &[u8]) -> Result<ChatTemplates> {
    let config = read_object(CONFIG, bytes, MAX_TOKENIZER_BYTES)?;
    let named = match config.get("chat_template") {
        None | Some(Value::Null) => Some(BTreeMap::new()),
        Some(Value::String(only)) => {
            return Ok(ChatTemplates { only: Some(only.clone()), ..ChatTemplates::default() });
        }
        Some(Value::Array(list)) => list
            .iter()
            .map(|entry| {
                Some((entry.get("name")?.as_str()?.to_owned(), entry.get("template")?.as_str()?.to_owned()))
            })
            .collect(),
        Some(Value::Object(map)) => {
            map.iter().map(|(name, template)| Some((name.clone(), template.as_str()?.to_owned()))).collect()
        }
        Some(_) => None,
    };
    let wrong = "chat_template must be a text, or a list of objects with `name` and `template`";
    let named = named.ok_or_else(|| Error::load(format!("{CONFIG}: {wrong}")))?;
    Ok(ChatTemplates { named, ..ChatTemplates::default() })
}
