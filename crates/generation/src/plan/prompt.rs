//! A prompt of a plan: what the model computes of it, and what processors see.

use rsgen_core::types::TokenId;

use super::super::embeddings::Embeddings;
use super::super::search::PromptInputs;

/// A prompt of a plan.
#[derive(Debug, Clone)]
pub struct PlannedPrompt {
    /// The ids, padding included, `[prompt_len]`.
    pub(crate) input_ids: Vec<TokenId>,
    pub(crate) tokens: Vec<TokenId>,
    /// In place of the tokens, padding left out.
    pub(super) embeddings: Option<Embeddings>,
    /// Which of the ids, or of the embeddings, are real.
    pub(crate) mask: Vec<bool>,
    pub(crate) padding_len: usize,
    /// For each processor, the prompt of the unconditional sequence that it requests.
    pub(crate) unconditional: Vec<Option<Vec<TokenId>>>,
    /// The last token before it was healed.
    pub(super) tail: Option<TokenId>,
    pub(super) room: usize,
}

impl PlannedPrompt {
    /// The ids, padding included.
    pub fn input_ids(&self) -> &[TokenId] {
        &self.input_ids
    }

    /// The ids without padding; of embeddings those that came with them.
    pub fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    /// The last token as it was before it was healed; `None` where it has stayed.
    pub fn tail(&self) -> Option<TokenId> {
        self.tail
    }

    /// What the model computes: tokens or embeddings, padding left out.
    pub fn inputs(&self) -> PromptInputs<'_> {
        match &self.embeddings {
            Some(embeddings) => PromptInputs::Embeddings(embeddings),
            None => PromptInputs::Tokens(&self.tokens),
        }
    }

    /// What the model computes, then for each processor the prompt of the unconditional sequence that it requests.
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
