//! Which search each mode runs. To add a search: its file, its mode, its strategy, its arm here, its golden.

use std::fmt;
use std::sync::Arc;

use crate::error::Result;

use super::super::config::GenerationConfig;
use super::super::mode::GenerationMode;
use super::super::plan::{GenerationPlan, PlanContext};
use super::greedy::GreedySearch;
use super::sample::SampleSearch;
use super::{Search, beam, contrastive, dola};

/// What the fields of a merged configuration come to in a mode.
///
/// # Errors
/// The first value that is not possible.
pub(in crate::generation) fn plan(
    mode: GenerationMode,
    config: &GenerationConfig,
    context: &PlanContext,
) -> Result<SearchPlan> {
    match mode {
        GenerationMode::Greedy => Ok(SearchPlan::of_rows(config, GreedySearch::new)),
        GenerationMode::Sample => Ok(SearchPlan::of_rows(config, SampleSearch::new)),
        GenerationMode::ContrastiveSearch => contrastive::plan(config, context),
        GenerationMode::Dola => dola::plan(config, context),
        GenerationMode::BeamSearch
        | GenerationMode::BeamSample
        | GenerationMode::GroupBeamSearch
        | GenerationMode::ConstrainedBeamSearch => Ok(beam::plan(mode, config)),
    }
}

/// What the fields of a search come to.
#[derive(Clone)]
pub(in crate::generation) struct SearchPlan {
    /// The number of rows of each prompt that are computed in a step.
    pub(in crate::generation) sequences_each: usize,
    make: Arc<dyn Fn(GenerationPlan) -> Box<dyn Search> + Send + Sync>,
}

impl SearchPlan {
    /// A search that computes so many rows of each prompt in a step.
    pub(super) fn new<S: Search + 'static>(
        sequences_each: usize,
        make: impl Fn(GenerationPlan) -> S + Send + Sync + 'static,
    ) -> Self {
        Self { sequences_each, make: Arc::new(move |plan| Box::new(make(plan))) }
    }

    /// A search that computes the rows of the output, each by itself.
    pub(super) fn of_rows<S: Search + 'static>(
        config: &GenerationConfig,
        make: impl Fn(GenerationPlan) -> S + Send + Sync + 'static,
    ) -> Self {
        Self::new(config.num_return_sequences.unwrap_or(1), make)
    }
}

impl fmt::Debug for SearchPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SearchPlan").field("sequences_each", &self.sequences_each).finish_non_exhaustive()
    }
}

/// The search that a plan asks for.
pub fn build(plan: GenerationPlan) -> Box<dyn Search> {
    let SearchPlan { make, .. } = plan.search.clone();
    make(plan)
}
