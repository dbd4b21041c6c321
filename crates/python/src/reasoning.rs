//! The thinking of conversations: how a call's model writes it, and which tokens of a stream are it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use pyo3::prelude::*;

use super::errors::guarded;
use super::output::GenerationOutput;
use super::stream::TokenStream;
use rsgen::generator::{ChatPrompt, Generator};
use rsgen::{Reasoning, engine};
use rsgen_core::error::Result;
use rsgen_core::sync::Mutex;
use rsgen_generation::GenerationConfig;
use rsgen_text::{ChatOptions, Detokenizer, ReasoningParser};

/// How the model thinks in the conversations of a call.
pub(super) struct Thinks {
    reasoning: Reasoning,
    /// Whether the grammar of the call is that of calls of tools.
    pub(super) holds_calls: bool,
    /// For each prompt whether it has begun the thinking, once they are known.
    are_open: OnceLock<Vec<bool>>,
}

impl Thinks {
    /// # Errors
    /// When there is no parser of that name.
    pub(super) fn new(
        generator: &Generator,
        options: &ChatOptions,
        parser: Option<&str>,
    ) -> Result<Option<Self>> {
        let found = match parser {
            Some(_) => generator.reasoning(options, parser)?,
            // What a template lacks is said when the prompt is made.
            None => generator.reasoning(options, None).unwrap_or_default(),
        };
        let new = |reasoning| Self { reasoning, holds_calls: false, are_open: OnceLock::new() };
        Ok(found.map(new))
    }

    /// The configuration of a call with these prompts.
    ///
    /// # Errors
    /// When the tokenizer fails.
    pub(super) fn config(
        &self,
        prompts: &[ChatPrompt],
        options: &ChatOptions,
        config: &GenerationConfig,
    ) -> Result<GenerationConfig> {
        let are_open = prompts.iter().map(|prompt| self.reasoning.is_open(&prompt.text, options));
        let are_open = self.are_open.get_or_init(|| are_open.collect());
        let mut config = config.clone();
        self.reasoning.set(&mut config, are_open.first().copied().unwrap_or_default(), self.holds_calls)?;
        Ok(config)
    }

    /// For a row of this prompt.
    pub(super) fn of_prompt(&self, index: usize) -> (&Reasoning, bool) {
        let is_open = self.are_open.get().and_then(|are_open| are_open.get(index)).copied();
        (&self.reasoning, is_open.unwrap_or_default())
    }
}

/// The rows of a stream, whose text is thinking or not.
#[derive(Default)]
pub(super) struct StreamedRows {
    rows: Mutex<BTreeMap<usize, Row>>,
    is_reasoning: AtomicBool,
}

struct Row {
    parser: ReasoningParser,
    /// Where marks are special tokens, which the text of tokens lacks.
    detokenizer: Option<Detokenizer>,
}

impl StreamedRows {
    /// Adds a token, and returns what it adds to the answer.
    pub(super) fn add(&self, thinks: &Thinks, token: &engine::StreamedToken) -> String {
        let mut rows = self.rows.lock();
        let row = rows.entry(token.index).or_insert_with(|| {
            let (reasoning, is_open) = thinks.of_prompt(0);
            Row { parser: reasoning.parser(is_open), detokenizer: reasoning.detokenizer() }
        });
        let ends = token.finish_reason.is_some();
        let text = match &mut row.detokenizer {
            None => token.text.clone(),
            Some(detokenizer) => {
                let rest = detokenizer.push(token.id);
                let end = if ends { detokenizer.flush() } else { String::new() };
                format!("{}{rest}{end}", token.healed)
            }
        };
        let before = row.parser.is_reasoning();
        let mut answer = row.parser.split(&text, false).1;
        self.is_reasoning.store(before || row.parser.is_reasoning(), Ordering::Relaxed);
        if ends {
            answer.push_str(&row.parser.split("", true).1);
        }
        answer
    }
}

/// What a call shares with its output.
pub(super) type SharedThinks = Option<Arc<Thinks>>;

#[guarded]
#[pymethods]
impl TokenStream {
    /// bool: Whether the last token that was read is thinking, or a mark of it: not the answer.
    ///
    /// False outside of conversations, and for models that do not think.
    #[getter]
    fn is_reasoning(&self) -> bool {
        self.typed.rows.is_reasoning.load(Ordering::Relaxed)
    }
}

#[guarded]
#[pymethods]
impl GenerationOutput {
    /// str: What the model thought in the first row before it answered; empty if it did not think.
    ///
    /// `text` has it as the model wrote it, and `messages` have the answer without it.
    #[getter]
    fn reasoning(&self) -> &str {
        self.replies.first.as_ref().map_or("", |reply| &reply.2)
    }
}
