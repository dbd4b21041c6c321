//! Searches: they request tokens to compute, and choose the next ones.
//!
//! A search is a state machine in two phases and never calls a model. [`Search::wants`] requests rows of
//! tokens; the engine computes them, perhaps in a batch with other searches; [`Search::advance`] takes the
//! results and returns events. One file per search; `registry.rs` maps modes to searches.

mod assisted;
mod beam;
mod contrastive;
pub mod details;
mod dola;
mod greedy;
mod healing;
mod inputs;
mod registry;
mod results;
mod rows;
mod sample;
mod sequences;
mod states;
mod step_logits;
#[cfg(test)]
mod tests;

use rsgen_core::{FinishReason, Result, TokenId};

use super::output::SearchOutput;
use super::plan::PlannedPrompt;

pub use super::prompt::{PromptInputs, RowInput};
pub use details::StepDetails;
pub use inputs::{ModelRole, SearchInputs, SequenceOp, WantedRow};
pub use registry::build;
pub use results::SearchResults;

/// A search for the continuations of one request's prompts.
///
/// `wants` and `advance` alternate until a step says `finished`, then `finish` gives the output; it may also
/// be called earlier, when the request is cancelled. The search numbers its sequences itself, from 0, those
/// of both models together. The engine releases the sequences that are left when it is finished or dropped.
pub trait Search: Send {
    /// Requests the next step: adds operations on sequences and rows to compute to the empty `inputs`. All
    /// rows of a step belong to one model; the operations may name sequences of either.
    fn wants(&mut self, inputs: &mut SearchInputs);

    /// Takes the results of the rows of the last `wants`, in the same order, and adds events to the empty
    /// `step`.
    ///
    /// # Errors
    /// When no token can be chosen from the results of the model, a processor or a criterion. The search
    /// cannot go on after an error.
    fn advance(&mut self, results: SearchResults<'_>, step: &mut SearchStep) -> Result<()>;

    /// Memory that it only uses within `advance`, for the sums of all continuations of its beams. The engine lends one list to
    /// all requests of a call, which would otherwise hold as much as the logits of all of them.
    fn sums(&mut self) -> Option<&mut Vec<f32>> {
        None
    }

    /// The prompts that it continues, once, if it has changed them: no event has come before.
    fn take_prompts(&mut self) -> Option<Vec<PlannedPrompt>> {
        None
    }

    /// The output. Rows that have not ended are marked as cancelled.
    fn finish(self: Box<Self>) -> SearchOutput;
}

/// The results of a step.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SearchStep {
    /// The new tokens, by row: those that no later step can change. A row that has ended gets no further
    /// events.
    pub events: Vec<TokenEvent>,
    /// Whether the search is over.
    pub finished: bool,
    /// More about the tokens, with `output_events`.
    pub details: StepDetails,
}

impl SearchStep {
    /// Empties it, keeping its memory.
    pub fn clear(&mut self) {
        self.events.clear();
        self.finished = false;
        self.details.clear();
    }
}

/// A token of a row.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenEvent {
    /// The row of the output.
    pub row: usize,
    /// The token.
    pub token: TokenId,
    /// Its log-probability under the model's own logits.
    pub logprob: f32,
    /// Its processed score, as in transformers' `scores`: not normalized.
    pub score: f32,
    /// Why the row ends with this token, if it does.
    pub finish: Option<FinishReason>,
    /// With `top_logprobs`, the most probable tokens at its place with their log-probabilities under the
    /// model's own logits, the most probable first.
    pub top_logprobs: Vec<(TokenId, f32)>,
}
