//! Searches: which tokens to compute next, and which to choose.
//!
//! A search is a state machine in two phases and never calls a model. [`Search::wants`] says which token rows
//! it needs computed; whoever owns the loop computes them, perhaps together with those of other searches;
//! [`Search::advance`] takes the results and answers with events. One file per search; `registry.rs` says
//! which one a mode runs.

mod beam;
mod contrastive;
mod dola;
mod greedy;
mod inputs;
mod registry;
mod results;
mod rows;
mod sample;
mod sequences;
#[cfg(test)]
mod tests;

use crate::error::Result;
use crate::types::{FinishReason, TokenId};

use super::output::SearchOutput;

pub use inputs::{ModelRole, RowInput, SearchInputs, SequenceOp, WantedRow};
pub use registry::build;
pub(super) use registry::{SearchPlan, plan};
pub use results::{ModelResults, SearchResults};

/// A search for the continuations of one request's prompts.
///
/// `wants` and `advance` alternate until a step says `finished`, then `finish` gives the output; it may also
/// be called before, when the request is given up. The search numbers its sequences itself, from 0. Those it
/// has not released when it is finished or dropped are released by the owner of the loop.
pub trait Search: Send {
    /// Asks for the next step: operations on sequences and rows to compute, added to `inputs`, which is empty.
    fn wants(&mut self, inputs: &mut SearchInputs);

    /// Takes what the rows of the last `wants` gave, in order of asking, and adds what it brings to `step`, which is
    /// empty.
    ///
    /// # Errors
    /// When the model, a processor or a criterion gives something that no token can be chosen from. The
    /// search cannot go on after an error.
    fn advance(&mut self, results: SearchResults<'_>, step: &mut SearchStep) -> Result<()>;

    /// The output. Rows that have not ended are marked as cancelled.
    fn finish(self: Box<Self>) -> SearchOutput;
}

/// What a step has brought.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SearchStep {
    /// The new tokens, by row. A row that has ended gets no further events.
    pub events: Vec<TokenEvent>,
    /// Whether the search is over.
    pub finished: bool,
}

impl SearchStep {
    /// Empties it, keeping its memory.
    pub fn clear(&mut self) {
        self.events.clear();
        self.finished = false;
    }
}

/// A token of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
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
}
