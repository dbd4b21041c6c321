//! A row of assisted decoding: its tokens, the sequences that hold them, and the candidates to check.

use crate::types::{FinishReason, RowOutputs, SeqId, TokenId};

use super::super::super::logits::{ProcessorStates, RowContext, UnconditionalLogits};
use super::super::super::output::SequenceScores;
use super::super::super::plan::GenerationPlan;
use super::super::{ModelRole, PromptInputs, RowInput, SearchInputs, WantedRow};

/// A row of the output.
pub(super) struct Row {
    pub(super) index: usize,
    pub(super) prompt_index: usize,
    /// The prompt, padding included, and the generated tokens.
    pub(super) ids: Vec<TokenId>,
    /// Its sequence of the model, then for each processor the unconditional one that it requests. Empty before the prompt
    /// is computed.
    pub(super) sequences: Vec<Option<TrackedSequence>>,
    pub(super) states: ProcessorStates,
    pub(super) candidates: Candidates,
    pub(super) logprobs: Vec<f32>,
    pub(super) recorded: SequenceScores,
    pub(super) finish: Option<FinishReason>,
}

/// Tokens that the model is to check.
#[derive(Default)]
pub(super) struct Candidates {
    pub(super) tokens: Vec<TokenId>,
    /// The assistant's probabilities, `[tokens, vocab_size]`; empty when nothing depends on them.
    pub(super) probabilities: Vec<f32>,
    /// Further candidates, beyond the last token that fits: nothing checks them, but transformers draws for them.
    pub(super) beyond: usize,
    /// The first of candidates that are not checked: whether the model chooses it tells what they would be worth.
    pub(super) unchecked: Option<TokenId>,
}

impl Candidates {
    /// Keeps the first `most` tokens that were looked up.
    pub(super) fn limit(&mut self, most: usize) {
        self.unchecked = self.tokens.first().copied().filter(|_| most == 0);
        self.tokens.truncate(most);
        self.beyond = 0;
    }

    pub(super) fn clear(&mut self) {
        self.tokens.clear();
        self.probabilities.clear();
        self.beyond = 0;
        self.unchecked = None;
    }
}

impl Row {
    pub(super) fn new(plan: &GenerationPlan, index: usize) -> Self {
        let prompt_index = index / plan.num_return_sequences();
        Self {
            index,
            prompt_index,
            ids: plan.prompts[prompt_index].input_ids.clone(),
            sequences: Vec::new(),
            states: plan.processors.new_states(),
            candidates: Candidates::default(),
            logprobs: Vec::new(),
            recorded: SequenceScores::of(plan),
            finish: None,
        }
    }

    pub(super) fn is_active(&self) -> bool {
        self.finish.is_none()
    }

    /// The generated tokens.
    pub(super) fn new_tokens(&self, plan: &GenerationPlan) -> &[TokenId] {
        &self.ids[plan.prompt_len..]
    }

    /// The number of tokens that fit after the newest one, less the one that follows every draft.
    pub(super) fn room(&self, plan: &GenerationPlan) -> usize {
        plan.max_new_tokens(self.prompt_index).saturating_sub(self.ids.len() - plan.prompt_len + 1)
    }

    /// The context that processors see after `ids`.
    pub(super) fn context<'a>(
        &self,
        plan: &GenerationPlan,
        ids: &'a [TokenId],
        unconditional: UnconditionalLogits<'a>,
        states: Option<&'a mut ProcessorStates>,
    ) -> RowContext<'a> {
        RowContext {
            input_ids: ids,
            prompt_len: plan.prompt_len,
            padding_len: plan.prompts[self.prompt_index].padding_len,
            prompt_index: self.prompt_index,
            row_index: self.index,
            isa: plan.isa,
            unconditional,
            states,
            processor_index: 0,
        }
    }
}

/// A sequence, and how many tokens it holds.
#[derive(Debug, Clone, Copy)]
pub(super) struct TrackedSequence {
    pub(super) seq: SeqId,
    pub(super) len: usize,
}

/// What computes the rows of a sequence.
#[derive(Debug, Clone, Copy)]
pub(super) struct ComputedBy {
    pub(super) model: ModelRole,
    /// The number of layers; all if `None`.
    pub(super) last_layer: Option<usize>,
}

impl ComputedBy {
    pub(super) const TARGET: Self = Self { model: ModelRole::Target, last_layer: None };
}

impl TrackedSequence {
    /// An empty sequence.
    pub(super) fn create(model: ModelRole, next: &mut u32, inputs: &mut SearchInputs) -> Self {
        let seq = next_seq(next);
        inputs.create_for(model, seq);
        Self { seq, len: 0 }
    }

    /// A copy.
    pub(super) fn fork(self, next: &mut u32, inputs: &mut SearchInputs) -> Self {
        let seq = next_seq(next);
        inputs.fork(self.seq, seq);
        Self { seq, ..self }
    }

    /// Drops the tokens from `len` on.
    pub(super) fn truncate(&mut self, len: usize, inputs: &mut SearchInputs) {
        if self.len > len {
            inputs.truncate(self.seq, len);
            self.len = len;
        }
    }

    /// Appends the tokens that it does not hold of a prompt, new tokens and candidates, in this order. Those from index
    /// `logits_from` on deliver logits.
    pub(super) fn extend(
        &mut self,
        prompt: PromptInputs<'_>,
        [new, candidates]: [&[TokenId]; 2],
        logits_from: usize,
        by: ComputedBy,
        inputs: &mut SearchInputs,
    ) {
        let len = prompt.len() + new.len() + candidates.len();
        for index in self.len..len {
            let input = match index.checked_sub(prompt.len()) {
                None => prompt.input(index),
                Some(index) => {
                    let candidate = || candidates[index - new.len()];
                    RowInput::Token(new.get(index).copied().unwrap_or_else(candidate))
                }
            };
            inputs.push(WantedRow {
                model: by.model,
                seq: self.seq,
                input,
                is_prompt: index < prompt.len(),
                last_layer: by.last_layer,
                outputs: if index < logits_from { RowOutputs::NONE } else { RowOutputs::LOGITS },
            });
        }
        self.len = len;
    }
}

/// A number that no sequence of the search has.
fn next_seq(next: &mut u32) -> SeqId {
    *next += 1;
    SeqId(*next - 1)
}
