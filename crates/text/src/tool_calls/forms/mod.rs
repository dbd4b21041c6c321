//! The table of forms: one file for each, and one line here.

mod command_r;
mod deepseek;
mod granite;
mod hermes;
mod json;
mod llama3;
mod mistral;
mod openai;
mod phi4_mini;
mod pythonic;
mod qwen3_coder;

use rsgen_core::error::{Error, Result};

use super::bodies::Body;
use super::tools::Tools;

/// A mark that calls begin with, and what reads them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark(pub(super) &'static str, pub(super) Make);

pub(super) type Make = fn(&Tools) -> Box<dyn Body>;

/// How a kind of models writes tool calls.
#[derive(Debug)]
pub struct ToolForm {
    /// Its name, mostly that of vLLM's parser.
    pub name: &'static str,
    /// What the chat template of such a model contains: all texts of one of these lists.
    pub(super) signs: &'static [&'static [&'static str]],
    pub(super) marks: &'static [Mark],
    /// The letters by which calls without a mark begin a line.
    pub(super) bare: Option<(&'static [char], Make)>,
    /// Marks that stand around calls, and are none of the text.
    pub(super) dropped: &'static [&'static str],
    /// Further marks within calls.
    pub(super) inner: &'static [&'static str],
    pub(super) writes: Writes,
}

/// What a model writes around the names and the arguments of its calls.
#[derive(Debug)]
pub(super) struct Writes {
    /// Before the first call, and after the last one.
    pub(super) begin: &'static str,
    pub(super) end: &'static str,
    /// Before the name, which is written as within quotes; between it and the arguments; after them.
    pub(super) call: [&'static str; 3],
    pub(super) between: &'static str,
    /// How the arguments are written.
    pub(super) arguments: Arguments,
}

/// How arguments are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arguments {
    Json,
    /// Each between marks of its own.
    Xml,
    /// As Python writes keyword arguments.
    Python,
}

/// All forms. The first whose signs a template has is that of the model; the last one has none.
static FORMS: [&ToolForm; 13] = [
    &openai::FORM,
    &qwen3_coder::FORM,
    &deepseek::V3,
    &deepseek::V31,
    &mistral::V11,
    &mistral::V1,
    &command_r::FORM,
    &granite::FORM,
    &phi4_mini::FORM,
    &hermes::FORM,
    &pythonic::FORM,
    &llama3::FORM,
    &json::FORM,
];

impl ToolForm {
    /// All forms.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        FORMS.iter().copied()
    }

    /// The form of this name.
    ///
    /// # Errors
    /// `Input` when there is none.
    pub fn named(name: &str) -> Result<&'static Self> {
        Self::all().find(|form| form.name == name).ok_or_else(|| {
            let names: Vec<&str> = Self::all().map(|form| form.name).collect();
            Error::input(format!("must be one of {}, but is {name:?}", names.join(", "))).about("tool_parser")
        })
    }

    /// The form of the models that have this chat template.
    #[must_use]
    pub fn of_template(source: &str) -> &'static Self {
        let has =
            |form: &&Self| form.signs.iter().any(|signs| signs.iter().all(|sign| source.contains(sign)));
        Self::all().find(has).unwrap_or(&json::FORM)
    }

    /// What a tokenizer may have as a special token, and an answer has to have in its text all the same.
    pub fn marks(&self) -> impl Iterator<Item = &'static str> {
        self.marks
            .iter()
            .map(|mark| mark.0)
            .chain(self.dropped.iter().copied())
            .chain(self.inner.iter().copied())
    }
}
