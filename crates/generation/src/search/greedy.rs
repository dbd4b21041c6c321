//! Greedy search: the token with the highest processed score, the lowest id among equals.

use rsgen_core::error::{Error, Result};
use rsgen_core::types::TokenId;
use rsgen_kernels::{Isa, argmax};

use super::super::output::SearchOutput;
use super::super::plan::GenerationPlan;
use super::rows::{RowSearch, TokenChoice};
use super::{Search, SearchInputs, SearchResults, SearchStep};

/// transformers' greedy search.
pub(super) struct GreedySearch {
    highest: HighestScore,
    rows: RowSearch,
}

impl GreedySearch {
    pub(super) fn new(plan: GenerationPlan) -> Self {
        Self { highest: HighestScore(plan.config.isa), rows: RowSearch::new(plan) }
    }
}

impl Search for GreedySearch {
    fn wants(&mut self, inputs: &mut SearchInputs) {
        self.rows.wants(inputs);
    }

    fn advance(&mut self, results: SearchResults<'_>, step: &mut SearchStep) -> Result<()> {
        self.rows.advance(results, &mut self.highest, step)
    }

    fn finish(self: Box<Self>) -> SearchOutput {
        self.rows.finish()
    }
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
