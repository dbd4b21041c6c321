//! Greedy search: the token with the highest processed score, the lowest id among equals.

use rsgen_core::{Error, Result, RowOutputs, TokenId};
use rsgen_kernels::{Isa, argmax};

use super::super::plan::GenerationPlan;
use super::rows::{RowSearch, TokenChoice};

/// transformers' greedy search of a plan.
pub(super) fn greedy_search(plan: GenerationPlan) -> RowSearch<HighestScore> {
    let choice = HighestScore(plan.config.isa);
    RowSearch::new(plan, choice, RowOutputs::LOGITS)
}

/// Takes the highest score.
pub(super) struct HighestScore(pub(super) Isa);

impl TokenChoice for HighestScore {
    fn choose(&mut self, scores: &[f32]) -> Result<TokenId> {
        let highest = argmax(self.0, scores);
        if scores[highest].is_nan() {
            return Err(Error::numerical("the processed scores hold NaN, so there is no highest one"));
        }
        Ok(TokenId(highest as u32))
    }

    fn skip_row(&mut self, _vocab_size: usize) {}
}
