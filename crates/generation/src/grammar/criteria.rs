//! Ends rows whose grammar has ended, where no token ends a row.

use std::collections::BTreeMap;

use rsgen_core::error::Result;
use rsgen_core::sync::Mutex;
use rsgen_core::types::FinishReason;

use super::super::stopping::{StopContext, StoppingCriterion};
use super::{GrammarState, RequestGrammar};

/// Stops a row when nothing can follow in its grammar. For requests without an end-of-sequence token: in
/// others that token ends the row.
pub(super) struct GrammarCriteria {
    grammar: RequestGrammar,
    /// By row: a state finds its way back where the rows of beams change places.
    states: Mutex<BTreeMap<usize, GrammarState>>,
}

impl GrammarCriteria {
    pub(super) fn new(grammar: RequestGrammar) -> Self {
        Self { grammar, states: Mutex::default() }
    }
}

impl StoppingCriterion for GrammarCriteria {
    fn name(&self) -> &'static str {
        "GrammarCriteria"
    }

    fn should_stop(&self, row: &StopContext<'_>) -> Result<Option<FinishReason>> {
        let mut states = self.states.lock();
        let state = states.entry(row.row_index).or_insert_with(|| self.grammar.state());
        Ok(state.has_ended(row.new_tokens())?.then_some(FinishReason::Stop))
    }
}
