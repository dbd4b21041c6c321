//! The thinking of a model in a conversation: the form in which it writes it, the tokens around it, and the thinking
//! in its answers.

use std::sync::Arc;

use super::{Generator, ToolUse};
use crate::engine::GenerationOutput;
use rsgen_core::error::Result;
use rsgen_core::types::TokenId;
use rsgen_generation::GenerationConfig;
use rsgen_text::{ChatOptions, Detokenizer, ReasoningForm, ReasoningParser, Tokenizer, ToolCall};

/// How a model writes what it thinks. Clones share it.
#[derive(Debug, Clone)]
pub struct Reasoning {
    form: &'static ReasoningForm,
    tokenizer: Tokenizer,
    /// The special tokens that thinking is written with.
    kept: Arc<[TokenId]>,
}

impl Generator {
    /// How the model writes what it thinks; `None` if it does not think. The form is that of the chat template, or
    /// `parser` by its name, where `none` leaves all in the answer.
    ///
    /// # Errors
    /// `Input` when there is no parser of the name, or no template.
    pub fn reasoning(&self, options: &ChatOptions, parser: Option<&str>) -> Result<Option<Reasoning>> {
        let form = if let Some(name) = parser {
            ReasoningForm::named(name)?
        } else {
            let has_tools = options.tools.as_ref().is_some_and(|tools| !tools.is_empty());
            let template = self.chat_templates().choose(options.chat_template.as_deref(), has_tools)?;
            ReasoningForm::of_template(template.source())
        };
        let Some(form) = form else { return Ok(None) };
        let tokenizer = self.tokenizer()?.clone();
        let special = |mark: &str| tokenizer.id(mark).filter(|&id| tokenizer.is_special(id));
        let kept = form.marks().filter_map(special).collect();
        Ok(Some(Reasoning { form, tokenizer, kept }))
    }
}

impl Reasoning {
    /// The special tokens that are part of an answer's text.
    #[must_use]
    pub fn kept_tokens(&self) -> &Arc<[TokenId]> {
        &self.kept
    }

    /// Whether the prompt of a conversation has begun the thinking, or goes on within it.
    #[must_use]
    pub fn is_open(&self, prompt: &str, options: &ChatOptions) -> bool {
        self.form.is_open(prompt, options.continue_final_message.is_some())
    }

    /// What finds the thinking in an answer.
    #[must_use]
    pub fn parser(&self, is_open: bool) -> ReasoningParser {
        ReasoningParser::new(self.form, is_open)
    }

    /// What makes a text of tokens that has the marks of thinking, where they are special tokens.
    #[must_use]
    pub fn detokenizer(&self) -> Option<Detokenizer> {
        let keeping = || Detokenizer::new(&self.tokenizer, &[], true).keeping(&self.kept);
        (!self.kept.is_empty()).then(keeping)
    }

    /// Sets the tokens around the thinking, where a grammar has to begin behind it or a budget to end it.
    /// `has_to_call` says that the grammar is that of calls of tools.
    ///
    /// # Errors
    /// When the tokenizer fails.
    pub fn set(&self, config: &mut GenerationConfig, is_open: bool, has_to_call: bool) -> Result<()> {
        let has_grammar = config.grammar.is_some() || config.regex.is_some() || config.json_schema.is_some();
        let is_needed = has_grammar || config.thinking_token_budget.is_some();
        if !is_needed || config.think_end_token_ids.is_some() {
            return Ok(());
        }
        let ids = |text: &str| self.tokenizer.encode(text, false);
        let start = if is_open { Vec::new() } else { ids(self.form.begin())? };
        let answer = if has_to_call { Vec::new() } else { ids(self.form.answer())? };
        config.think_start_token_ids = Some(start);
        config.think_end_token_ids = Some(ids(&self.form.end())?);
        config.answer_start_token_ids = Some(answer);
        Ok(())
    }
}

/// A reply of a conversation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reply {
    /// What the model thought.
    pub reasoning: String,
    /// What it says: neither thinking nor calls.
    pub text: String,
    /// The calls of tools.
    pub tool_calls: Vec<ToolCall>,
}

impl Reply {
    /// Reads a row of an output: with the thinking of a model, and whether the prompt has begun it; with tools.
    #[must_use]
    pub fn read(
        output: &GenerationOutput,
        row: usize,
        reasoning: Option<(&Reasoning, bool)>,
        tools: Option<&ToolUse>,
    ) -> Self {
        let row = &output.rows[row];
        let kept = kept_tokens(reasoning.map(|(reasoning, _)| reasoning), tools);
        let tokenizer =
            reasoning.map(|(reasoning, _)| &reasoning.tokenizer).or(tools.map(ToolUse::tokenizer));
        let text = match (tokenizer, &row.text) {
            (None, text) => text.clone().unwrap_or_default(),
            (_, Some(text)) if kept.is_empty() => text.clone(),
            (Some(tokenizer), _) => {
                let mut detokenizer = Detokenizer::new(tokenizer, &[], true).keeping(&kept);
                let mut text = row.healed.clone();
                text.extend(row.generated.token_ids.iter().map(|&id| detokenizer.push(id)));
                text.push_str(&detokenizer.flush());
                text
            }
        };
        let (reasoning, text) = match reasoning {
            Some((reasoning, is_open)) => reasoning.parser(is_open).parse(&text),
            None => (String::new(), text),
        };
        let (text, tool_calls) = match tools {
            Some(tools) => tools.parser().parse(&text),
            None => (text, Vec::new()),
        };
        Self { reasoning, text, tool_calls }
    }
}

/// The special tokens that are part of a text with thinking and calls.
pub(crate) fn kept_tokens(reasoning: Option<&Reasoning>, tools: Option<&ToolUse>) -> Arc<[TokenId]> {
    let (reasoning, tools) = (reasoning.map(Reasoning::kept_tokens), tools.map(ToolUse::kept_tokens));
    reasoning.into_iter().chain(tools).flat_map(|kept| kept.iter().copied()).collect()
}
