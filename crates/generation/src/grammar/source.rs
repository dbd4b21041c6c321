//! The grammar that the fields of a configuration ask for.

use rsgen_core::error::{Error, Result};
use rsgen_core::message;

use super::super::config::{GenerationConfig, JsonSchema};

/// The text of a grammar.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum GrammarSource {
    JsonSchema(JsonSchema),
    Regex(String),
    /// In the notation of Lark.
    Lark(String),
}

impl GrammarSource {
    /// What a configuration asks for.
    ///
    /// # Errors
    /// `Config` when it asks for more than one.
    pub(super) fn of(config: &GenerationConfig) -> Result<Option<Self>> {
        let given = [
            config.json_schema.clone().map(Self::JsonSchema),
            config.regex.clone().map(Self::Regex),
            config.grammar.clone().map(Self::Lark),
        ];
        let mut given = given.into_iter().flatten();
        let first = given.next();
        match (&first, given.next()) {
            (Some(first), Some(second)) => Err(Error::config(message!(
                "and " {(second.field())} " are both set, but a text follows one grammar; leave out one of them"
            ))
            .about(first.field())),
            _ => Ok(first),
        }
    }

    /// The field that it comes from.
    pub(super) fn field(&self) -> &'static str {
        match self {
            Self::JsonSchema(_) => "json_schema",
            Self::Regex(_) => "regex",
            Self::Lark(_) => "grammar",
        }
    }

    /// Its text, as long as what it is compiled from.
    pub(super) fn text(&self) -> std::borrow::Cow<'_, str> {
        match self {
            Self::JsonSchema(schema) => schema.to_text().into(),
            Self::Regex(text) | Self::Lark(text) => text.into(),
        }
    }
}
