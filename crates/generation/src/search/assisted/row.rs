//! A row of assisted decoding: its tokens, the sequences that hold them, and the candidates to check.

use std::ops::Range;
use std::sync::Arc;

use rsgen_core::{FinishReason, Result, RowOutputs, SeqId, TokenId};

use super::super::super::layer_states::LayerStates;
use super::super::super::logits::{ProcessorStates, RowContext, UnconditionalLogits};
use super::super::super::output::SequenceScores;
use super::super::super::plan::GenerationPlan;
use super::super::states::StatesReader;
use super::super::{ModelRole, PromptInputs, RowInput, SearchInputs, WantedRow};

/// A row of the output.
pub(super) struct Row {
    pub(super) index: usize,
    pub(super) prompt_index: usize,
    /// The prompt, padding included, and the generated tokens.
    pub(super) ids: Vec<TokenId>,
    /// Its sequence of the model, then for each processor the unconditional one that it requests. Empty
    /// before the prompt is computed.
    pub(super) sequences: Vec<Option<TrackedSequence>>,
    pub(super) states: ProcessorStates,
    pub(super) candidates: Candidates,
    pub(super) logprobs: Vec<f32>,
    pub(super) recorded: SequenceScores,
    /// What the layers computed of the prompt, as far as it is computed.
    pub(super) prompt_states: Option<Arc<LayerStates>>,
    /// The positions that the main sequence computes in a check, those of the prompt included.
    pub(super) computed: Range<usize>,
    pub(super) finish: Option<FinishReason>,
}

/// Tokens that the model is to check.
#[derive(Default)]
pub(super) struct Candidates {
    pub(super) tokens: Vec<TokenId>,
    /// The assistant's probabilities, `[tokens, vocab_size]`; empty when nothing depends on them.
    pub(super) probabilities: Vec<f32>,
    /// Further candidates, beyond the last token that fits: nothing checks them, but transformers draws for
    /// them.
    pub(super) beyond: usize,
    /// The first unchecked candidate, to measure whether drafting would pay.
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
        let prompt_index = index / plan.config.num_return_sequences;
        Self {
            index,
            prompt_index,
            ids: plan.prompts[prompt_index].input_ids.clone(),
            sequences: Vec::new(),
            states: plan.processors.new_states(),
            candidates: Candidates::default(),
            logprobs: Vec::new(),
            recorded: SequenceScores::of(&plan.config),
            prompt_states: None,
            computed: 0..0,
            finish: None,
        }
    }

    pub(super) fn is_active(&self) -> bool {
        self.finish.is_none()
    }

    /// The generated tokens.
    pub(super) fn new_tokens(&self, plan: &GenerationPlan) -> &[TokenId] {
        &self.ids[plan.config.prompt_len..]
    }

    /// Takes what the layers computed in a check, and records it for the tokens that it `emitted`.
    pub(super) fn keep_states(
        &mut self,
        plan: &GenerationPlan,
        states: &mut StatesReader<'_>,
        emitted: usize,
    ) -> Result<()> {
        let Range { start, end } = self.computed.clone();
        let prompt = &plan.prompts[self.prompt_index];
        let states = states.next(start..end, prompt.source_len())?;
        let before = self.new_tokens(plan).len() - emitted;
        // The position whose logits gave the first token.
        let first = prompt.inputs().len() + before - 1;
        for position in first..first + emitted {
            let kept = if position + 1 == prompt.inputs().len() {
                let last = states.part(0..position + 1 - start)?;
                let mut kept = match &self.prompt_states {
                    Some(begun) if start > 0 => {
                        let mut kept = begun.part(0..start)?;
                        kept.append(&last)?;
                        kept
                    }
                    _ => last,
                };
                kept.prompt_mask.clone_from(&prompt.mask);
                self.prompt_states = None;
                kept
            } else {
                states.part(position - start..position + 1 - start)?
            };
            self.recorded.keep_states(Some(&Arc::new(kept)));
        }
        Ok(())
    }

    /// The number of tokens that fit after the newest one, less the one that follows every draft.
    pub(super) fn room(&self, plan: &GenerationPlan) -> usize {
        plan.max_new_tokens(self.prompt_index).saturating_sub(self.ids.len() - plan.config.prompt_len + 1)
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
            prompt_len: plan.config.prompt_len,
            padding_len: plan.prompts[self.prompt_index].padding_len,
            prompt_index: self.prompt_index,
            row_index: self.index,
            isa: plan.config.isa,
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
    /// What every row delivers.
    pub(super) outputs: RowOutputs,
}

impl ComputedBy {
    pub(super) const TARGET: Self =
        Self { model: ModelRole::Target, last_layer: None, outputs: RowOutputs::NONE };

    /// What computes the `index`-th sequence of a row: the main one delivers what the plan keeps of the
    /// layers.
    pub(super) fn target(plan: &GenerationPlan, index: usize) -> Self {
        let outputs = if index == 0 { plan.config.layer_outputs } else { RowOutputs::NONE };
        Self { outputs, ..Self::TARGET }
    }
}

impl TrackedSequence {
    /// An empty sequence; `source` is the prompt whose source it sees.
    pub(super) fn create(
        model: ModelRole,
        source: Option<usize>,
        next: &mut u32,
        inputs: &mut SearchInputs,
    ) -> Self {
        let seq = next_seq(next);
        inputs.create_for(model, seq, source);
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

    /// Appends the tokens that it does not hold of a prompt, new tokens and candidates, in this order. Those
    /// from index `logits_from` on deliver logits.
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
                outputs: if index < logits_from { by.outputs } else { by.outputs.and(RowOutputs::LOGITS) },
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
