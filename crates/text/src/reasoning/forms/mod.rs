//! The table of forms: one file for each, and one line here.

mod command_a;
mod granite;
mod harmony;
mod mistral;
mod seed_oss;
mod think;

use rsgen_core::error::{Error, Result};

use super::Reader;
use super::marked::Marked;
use super::messages::Messages;

/// The name that stands for no form.
const NONE: &str = "none";

/// How a kind of models writes what it thinks.
#[derive(Debug)]
pub struct ReasoningForm {
    /// Its name, mostly that of vLLM's parser.
    pub name: &'static str,
    /// What the chat template of such a model contains: all texts of one of these lists.
    signs: &'static [&'static [&'static str]],
    /// The marks that thinking begins with, and those that it ends with; the first ones are what models write.
    begins: &'static [&'static str],
    ends: &'static [&'static str],
    /// Whether every answer begins with thinking, also where neither the prompt nor the model says so.
    is_always_open: bool,
    /// The parts of an answer that is several messages.
    messages: Option<MessageMarks>,
}

/// What stands around messages.
#[derive(Debug)]
struct MessageMarks {
    /// Between the end of thinking and the head of the next message.
    next: &'static str,
    /// The head of the answer.
    answer: &'static str,
    /// The special tokens that messages are written with.
    tokens: &'static [&'static str],
}

/// All forms. The first whose signs a template has is that of the model.
static FORMS: [&ReasoningForm; 7] = [
    &harmony::FORM,
    &command_a::FORM,
    &mistral::FORM,
    &seed_oss::FORM,
    &think::QWEN3,
    &think::DEEPSEEK_R1,
    &granite::FORM,
];

impl ReasoningForm {
    /// All forms.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        FORMS.iter().copied()
    }

    /// The form of this name; no form for `none`.
    ///
    /// # Errors
    /// `Input` when there is none of the name.
    pub fn named(name: &str) -> Result<Option<&'static Self>> {
        let found = Self::all().find(|form| form.name == name);
        if found.is_some() || name == NONE {
            return Ok(found);
        }
        let names: Vec<&str> = Self::all().map(|form| form.name).chain([NONE]).collect();
        Err(Error::input(format!("must be one of {}, but is {name:?}", names.join(", ")))
            .about("reasoning_parser"))
    }

    /// The form of the models that have this chat template; `None` if they do not think.
    #[must_use]
    pub fn of_template(source: &str) -> Option<&'static Self> {
        let has =
            |form: &&Self| form.signs.iter().any(|signs| signs.iter().all(|sign| source.contains(sign)));
        Self::all().find(has)
    }

    /// Whether a prompt has begun the thinking: it ends with the mark, or where its last message is to be
    /// continued, it ends after one that nothing has ended.
    #[must_use]
    pub fn is_open(&self, prompt: &str, continues: bool) -> bool {
        let last = |marks: &[&str]| marks.iter().filter_map(|mark| prompt.rfind(mark)).max();
        if continues {
            return last(self.begins) > last(self.ends);
        }
        self.is_always_open || self.begins.iter().any(|mark| prompt.trim_end().ends_with(mark))
    }

    /// What a tokenizer may have as a special token, and a text has to hold all the same.
    pub fn marks(&self) -> impl Iterator<Item = &'static str> {
        let tokens = self.messages.iter().flat_map(|marks| marks.tokens);
        self.begins.iter().chain(self.ends).chain(tokens).copied()
    }

    /// The text that thinking begins with.
    #[must_use]
    pub fn begin(&self) -> &'static str {
        self.begins[0]
    }

    /// The text that ends thinking, up to where an answer or a call begins.
    #[must_use]
    pub fn end(&self) -> String {
        format!("{}{}", self.ends[0], self.messages.as_ref().map_or("", |marks| marks.next))
    }

    /// The text that an answer begins with, which is none of it; empty for most.
    #[must_use]
    pub fn answer(&self) -> &'static str {
        self.messages.as_ref().map_or("", |marks| marks.answer)
    }

    pub(super) fn reader(&self, is_open: bool) -> Box<dyn Reader> {
        match self.messages {
            Some(_) => Box::new(Messages::new(is_open)),
            None => Box::new(Marked::new(self.begins, self.ends, is_open || self.is_always_open)),
        }
    }
}
