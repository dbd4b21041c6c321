//! The processors of a request as one: applying them in order, with each row's states and companions.

use std::sync::Arc;

use crate::error::{Result, ResultExt};
use crate::types::TokenId;

use super::{LogitsProcessor, ProcessContext, ProcessorState, RowContext, ScoreRows};

/// Processors in their order of application.
#[derive(Clone, Default)]
pub struct LogitsProcessorList {
    processors: Vec<Arc<dyn LogitsProcessor>>,
}

/// What the processors of a list remember of one sequence.
#[derive(Default)]
pub struct ProcessorStates {
    /// One entry per processor of the list.
    states: Vec<Option<Box<dyn ProcessorState>>>,
}

impl ProcessorStates {
    /// The states of a sequence that begins as a copy of this one.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self { states: self.states.iter().map(|state| state.as_ref().map(|state| state.fork())).collect() }
    }
}

/// A row to process: the fields of [`RowContext`], with what belongs to every processor of the list.
pub struct RowToProcess<'a> {
    /// All ids so far, padding included.
    pub input_ids: &'a [TokenId],
    /// Length of the prompt, padding included.
    pub prompt_len: usize,
    /// Ids before the first that is not padding.
    pub padding_len: usize,
    /// The prompt within the request.
    pub prompt_index: usize,
    /// The row within the request.
    pub row_index: usize,
    /// The group of beams.
    pub beam_group: usize,
    /// Tokens that earlier groups chose in this step.
    pub group_tokens: &'a [TokenId],
    /// The companion's logits for each processor of the list, `[vocab_size]` where there is a companion.
    pub companion_logits: Vec<Option<&'a [f32]>>,
    /// What each processor remembers of this sequence.
    pub states: &'a mut ProcessorStates,
}

impl LogitsProcessorList {
    /// These processors, in this order.
    pub fn new(processors: Vec<Arc<dyn LogitsProcessor>>) -> Self {
        Self { processors }
    }

    /// The number of processors.
    pub fn len(&self) -> usize {
        self.processors.len()
    }

    /// Whether there is no processor, so that scores are the logits themselves.
    pub fn is_empty(&self) -> bool {
        self.processors.is_empty()
    }

    /// The processors' names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.processors.iter().map(|processor| processor.name())
    }

    /// The states of a new sequence.
    pub fn new_states(&self) -> ProcessorStates {
        ProcessorStates { states: self.processors.iter().map(|processor| processor.new_state()).collect() }
    }

    /// The companion prompt that each processor wants beside the rows of a prompt, padding left out.
    pub fn companions(&self, prompt_index: usize, prompt: &[TokenId]) -> Vec<Option<Vec<TokenId>>> {
        self.processors.iter().map(|processor| processor.companion(prompt_index, prompt)).collect()
    }

    /// Applies every processor in order to `scores`, `[rows.len(), vocab_size]`.
    ///
    /// # Errors
    /// The first error of a processor, with its name.
    pub fn process(&self, scores: &mut ScoreRows<'_>, rows: &mut [RowToProcess<'_>]) -> Result<()> {
        for (place, processor) in self.processors.iter().enumerate() {
            let rows = rows
                .iter_mut()
                .map(|row| RowContext {
                    input_ids: row.input_ids,
                    prompt_len: row.prompt_len,
                    padding_len: row.padding_len,
                    prompt_index: row.prompt_index,
                    row_index: row.row_index,
                    beam_group: row.beam_group,
                    group_tokens: row.group_tokens,
                    companion_logits: row.companion_logits.get(place).copied().flatten(),
                    state: row.states.states.get_mut(place).and_then(Option::as_mut),
                })
                .collect();
            processor.process(scores, &mut ProcessContext { rows }).context(|| processor.name())?;
        }
        Ok(())
    }
}

impl std::fmt::Debug for LogitsProcessorList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}
