//! A prompt of a plan: what the model computes of it, and what processors see.

use std::sync::Arc;

use rsgen_core::{Error, Result, TokenId};

use super::super::config::GenerationConfig;
use super::super::embeddings::Embeddings;
use super::super::logits::LogitsProcessorList;
use super::super::prompt::{PromptBatch, PromptInputs, PromptRow};
use super::super::source::Source;
use super::{PlanContext, tokens};

/// A prompt of a plan.
#[derive(Debug, Clone)]
pub struct PlannedPrompt {
    /// The ids, padding included, `[prompt_len]`.
    pub(crate) input_ids: Vec<TokenId>,
    pub(crate) tokens: Vec<TokenId>,
    /// What the encoder reads, if the model has one.
    source: Option<Arc<Source>>,
    /// In place of the tokens, padding left out.
    pub(super) embeddings: Option<Embeddings>,
    /// Which of the ids, or of the embeddings, are real.
    pub(crate) mask: Vec<bool>,
    pub(crate) padding_len: usize,
    /// For each processor, the prompt of the unconditional sequence that it requests.
    pub(crate) unconditional: Vec<Option<Vec<TokenId>>>,
    /// The last token before it was healed.
    pub(super) tail: Option<TokenId>,
    /// How many of the last tokens are text of the output.
    target_prefix_len: usize,
    pub(super) room: usize,
}

impl PlannedPrompt {
    /// The prompts of a request, with those of the unconditional sequences that its processors ask for.
    pub(super) fn all(
        prompts: &PromptBatch,
        sources: Vec<Arc<Source>>,
        processors: &LogitsProcessorList,
        context: &PlanContext,
    ) -> Result<Vec<Self>> {
        let sources = sources.into_iter().map(Some).chain(std::iter::repeat(None));
        let all = prompts.rows().iter().zip(sources).enumerate();
        all.map(|(index, (row, source))| Self::new(index, row, source, processors, context)).collect()
    }

    fn new(
        index: usize,
        row: &PromptRow,
        source: Option<Arc<Source>>,
        processors: &LogitsProcessorList,
        context: &PlanContext,
    ) -> Result<Self> {
        let tokens = row.tokens();
        let unconditional = processors.unconditional(context.first_prompt + index, &tokens);
        if source.is_some() && unconditional.iter().any(Option::is_some) {
            return Err(Error::input(
                "a logits processor asks for an unconditional sequence, which is not possible with an encoder-decoder \
                 model; leave it out",
            ));
        }
        let longest = tokens::check_unconditional(&unconditional, context)?;
        let embeddings = row.embeddings.as_ref().map(|all| all.unmasked(&row.mask)).transpose()?;
        let longest = longest.max(embeddings.as_ref().map_or(tokens.len(), Embeddings::len));
        let tail = context.healed.as_ref().and_then(|healed| healed.tails.get(index)).copied();
        Ok(Self {
            input_ids: row.input_ids.clone(),
            mask: row.mask.clone(),
            padding_len: row.padding_len(),
            tail: tail.filter(|tail| tokens.last() != Some(tail)),
            target_prefix_len: context.target_prefix_len.min(tokens.len()),
            room: context.context_len - longest,
            tokens,
            source,
            embeddings,
            unconditional,
        })
    }

    /// The ids, padding included.
    pub fn input_ids(&self) -> &[TokenId] {
        &self.input_ids
    }

    /// The ids without padding; of embeddings those that came with them.
    pub fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    /// What the encoder reads; `None` for a model without one.
    pub fn source(&self) -> Option<&Arc<Source>> {
        self.source.as_ref()
    }

    /// The tokens of the source; 0 without one.
    pub fn source_len(&self) -> usize {
        self.source.as_ref().map_or(0, |source| source.len())
    }

    /// The last token as it was before it was healed; `None` where it has stayed.
    pub fn tail(&self) -> Option<TokenId> {
        self.tail
    }

    /// The tokens before those that are text of the output, and those.
    pub fn split_target_prefix(&self) -> (&[TokenId], &[TokenId]) {
        self.tokens.split_at(self.tokens.len() - self.target_prefix_len)
    }

    /// The model's inputs: tokens or embeddings, padding left out.
    pub fn inputs(&self) -> PromptInputs<'_> {
        match &self.embeddings {
            Some(embeddings) => PromptInputs::Embeddings(embeddings),
            None => PromptInputs::Tokens(&self.tokens),
        }
    }

    /// The tokens that the model reads of it, those of the source included.
    pub fn num_tokens(&self) -> usize {
        self.inputs().len() + self.source_len()
    }

    /// The model's inputs, then for each processor the prompt of the unconditional sequence that it requests.
    pub(crate) fn texts(&self) -> impl Iterator<Item = Option<PromptInputs<'_>>> {
        let unconditional =
            self.unconditional.iter().map(|tokens| tokens.as_deref().map(PromptInputs::Tokens));
        std::iter::once(Some(self.inputs())).chain(unconditional)
    }

    /// The prompts of the unconditional sequences that run beside each row.
    pub fn unconditional(&self) -> impl Iterator<Item = &[TokenId]> {
        self.unconditional.iter().flatten().map(Vec::as_slice)
    }
}

/// The prompts for the processors that look at them, if a field asks for one: the sources, if there are any,
/// or the prompts as they were `given`, where they are healed.
pub(super) fn encoder_input_ids(
    fields: &GenerationConfig,
    prompts: &PromptBatch,
    sources: &[Arc<Source>],
    given: Option<&[Vec<TokenId>]>,
) -> Vec<Vec<TokenId>> {
    if fields.encoder_repetition_penalty.is_none() && fields.encoder_no_repeat_ngram_size.is_none() {
        return Vec::new();
    }
    if !sources.is_empty() {
        return sources.iter().map(|source| source.input_ids().to_vec()).collect();
    }
    match given {
        Some(given) if !given.is_empty() => given.to_vec(),
        _ => prompts.rows().iter().map(|row| row.input_ids.clone()).collect(),
    }
}
