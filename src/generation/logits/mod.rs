//! Logits processors: what may change the scores of a step before a token is chosen.
//!
//! One file per processor, named as in transformers. `PROCESSORS` lists them in their order of application,
//! which is part of what makes results equal to transformers'. To add one: its file, its `mod` line, its line
//! in the table.

mod context;
mod list;
mod min_length;
mod min_new_tokens;
mod min_p;
mod repetition_penalty;
mod temperature;
mod top_k;
mod top_p;

use std::sync::Arc;

use crate::error::Result;
use crate::types::TokenId;

use super::config::GenerationConfig;

pub use context::{ProcessContext, ProcessorState, RowContext, ScoreRows};
pub use list::{LogitsProcessorList, ProcessorStates, RowToProcess};
pub use min_length::MinLengthLogitsProcessor;
pub use min_new_tokens::MinNewTokensLengthLogitsProcessor;
pub use min_p::MinPLogitsWarper;
pub use repetition_penalty::RepetitionPenaltyLogitsProcessor;
pub use temperature::TemperatureLogitsWarper;
pub use top_k::TopKLogitsWarper;
pub use top_p::TopPLogitsWarper;

/// Changes the scores of the next token, in place.
///
/// One object serves all rows of a request, and a request may be computed beside others, so it holds no
/// changing state of its own: what has to be remembered of a sequence lives in a [`ProcessorState`], which
/// follows the sequence when it forks.
pub trait LogitsProcessor: Send + Sync {
    /// The name, unique within a request. A processor with the name of a built-in one takes its place.
    fn name(&self) -> &str;

    /// Processes all rows of a request that are not finished: `rows` is `[num_rows, vocab_size]`, `context`
    /// describes the same rows in the same order. Calls [`process_row`](Self::process_row) for each unless
    /// overridden.
    ///
    /// # Errors
    /// What `process_row` gives; the request ends with it.
    fn process(&self, rows: &mut ScoreRows<'_>, context: &mut ProcessContext<'_>) -> Result<()> {
        for (index, row) in context.rows.iter_mut().enumerate() {
            self.process_row(rows.row_mut(index), row)?;
        }
        Ok(())
    }

    /// Processes one row: `scores` is `[vocab_size]`, raw logits or, in beam searches, log-probabilities.
    ///
    /// # Errors
    /// Whatever makes the row impossible; the request ends with it.
    fn process_row(&self, scores: &mut [f32], row: &mut RowContext<'_>) -> Result<()>;

    /// The memory for one sequence, if the processor needs any; it comes back in [`RowContext::state`].
    fn new_state(&self) -> Option<Box<dyn ProcessorState>> {
        None
    }

    /// The prompt of a second sequence that is to run beside each row of prompt `prompt_index`, whose tokens
    /// (padding left out) are `prompt`. It gets the same new tokens as the row, and its logits come in the
    /// same step, in [`RowContext::companion_logits`].
    fn companion(&self, _prompt_index: usize, _prompt: &[TokenId]) -> Option<Vec<TokenId>> {
        None
    }
}

/// What the constructors of processors are made from: the merged configuration, with what the plan has
/// resolved of it.
#[derive(Debug)]
pub(super) struct ProcessorSettings<'a> {
    /// The fields of the call, over those of the model, over nothing.
    pub(super) config: &'a GenerationConfig,
    pub(super) do_sample: bool,
    /// Length of the prompt, padding included.
    pub(super) prompt_len: usize,
    /// `min_length`, or what `min_new_tokens` makes of it.
    pub(super) min_length: usize,
    pub(super) eos_token_ids: &'a [TokenId],
}

type Built = Result<Option<Arc<dyn LogitsProcessor>>>;

/// When a built-in processor takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AppliesTo {
    /// Every search.
    AllSearches,
    /// Searches that draw at random; elsewhere its fields are checked and have no effect.
    Sampling,
}

/// A line of `PROCESSORS`.
pub(super) enum Place {
    /// A processor of this crate.
    BuiltIn(BuiltIn),
    /// Where the caller's processors go that don't replace a built-in one.
    Callers,
}

/// A built-in processor.
pub(super) struct BuiltIn {
    /// The configuration field that switches it on.
    pub(super) field: &'static str,
    pub(super) applies_to: AppliesTo,
    /// Checks the field's value; makes the processor when the value asks for one.
    pub(super) build: fn(&ProcessorSettings<'_>) -> Built,
}

/// All processors, in their order of application.
pub(super) const PROCESSORS: &[Place] = {
    use AppliesTo::{AllSearches, Sampling};
    &[
        built_in("repetition_penalty", AllSearches, RepetitionPenaltyLogitsProcessor::build),
        built_in("min_length", AllSearches, MinLengthLogitsProcessor::build),
        built_in("min_new_tokens", AllSearches, MinNewTokensLengthLogitsProcessor::build),
        Place::Callers,
        built_in("temperature", Sampling, TemperatureLogitsWarper::build),
        built_in("top_k", Sampling, TopKLogitsWarper::build),
        built_in("top_p", Sampling, TopPLogitsWarper::build),
        built_in("min_p", Sampling, MinPLogitsWarper::build),
    ]
};

const fn built_in(
    field: &'static str,
    applies_to: AppliesTo,
    build: fn(&ProcessorSettings<'_>) -> Built,
) -> Place {
    Place::BuiltIn(BuiltIn { field, applies_to, build })
}

/// The processors of a request, in order: the built-in ones that its settings ask for, and the caller's.
///
/// A caller's processor takes the place of a built-in one of the same name; the warpers after
/// `Place::Callers` are not replaced, as in transformers, which makes them last.
pub(super) fn build(
    settings: &ProcessorSettings<'_>,
    callers: &[Arc<dyn LogitsProcessor>],
) -> Result<LogitsProcessorList> {
    let mut list: Vec<Arc<dyn LogitsProcessor>> = Vec::new();
    let mut waiting: Vec<&Arc<dyn LogitsProcessor>> = callers.iter().collect();
    let mut callers_placed = false;
    for place in PROCESSORS {
        match place {
            Place::Callers => {
                list.extend(waiting.drain(..).map(Arc::clone));
                callers_placed = true;
            }
            Place::BuiltIn(entry) => {
                let Some(processor) = (entry.build)(settings)? else { continue };
                if entry.applies_to == AppliesTo::Sampling && !settings.do_sample {
                    continue;
                }
                let namesake = waiting.iter().position(|caller| caller.name() == processor.name());
                match namesake {
                    Some(index) if !callers_placed => list.push(Arc::clone(waiting.remove(index))),
                    _ => list.push(processor),
                }
            }
        }
    }
    Ok(LogitsProcessorList::new(list))
}

/// Makes `tokens` impossible.
fn remove(scores: &mut [f32], tokens: &[TokenId]) {
    for token in tokens {
        if let Some(score) = scores.get_mut(token.index()) {
            *score = f32::NEG_INFINITY;
        }
    }
}

#[cfg(test)]
mod tests;
