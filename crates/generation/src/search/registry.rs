//! Which search each mode runs. To add a search: its file, its mode, its strategy, its arm here, its golden.

use std::fmt;
use std::sync::Arc;

use rsgen_core::error::Result;

use super::super::config::GenerationConfig;
use super::super::healing::HealingSearch;
use super::super::mode::GenerationMode;
use super::super::plan::{DraftPlan, GenerationPlan, PlanContext};
use super::greedy::GreedySearch;
use super::sample::SampleSearch;
use super::{Search, assisted, beam, contrastive, dola};

/// Resolves the fields of a merged configuration for a mode.
///
/// # Errors
/// For the first invalid value.
pub(crate) fn plan(
    mode: GenerationMode,
    config: &GenerationConfig,
    context: &PlanContext,
) -> Result<SearchPlan> {
    match mode {
        GenerationMode::Greedy => Ok(SearchPlan::of_rows(config, GreedySearch::new)),
        GenerationMode::Sample => Ok(SearchPlan::of_rows(config, SampleSearch::new)),
        GenerationMode::PromptLookup => assisted::plan_lookup(config),
        GenerationMode::AssistedDecoding => assisted::plan_drafts(config, context),
        GenerationMode::ContrastiveSearch => contrastive::plan(config, context),
        GenerationMode::Dola => dola::plan(config, context),
        GenerationMode::BeamSearch
        | GenerationMode::BeamSample
        | GenerationMode::GroupBeamSearch
        | GenerationMode::ConstrainedBeamSearch => Ok(beam::plan(mode, config)),
    }
}

/// The resolved fields of a search.
#[derive(Clone)]
pub(crate) struct SearchPlan {
    /// The number of rows of each prompt that are computed in a step.
    pub(crate) sequences_each: usize,
    /// The sequences that it drafts in, if a model drafts.
    pub(crate) draft: Option<DraftPlan>,
    /// The most candidates of a row in a step.
    pub(crate) num_candidates: usize,
    make: Arc<dyn Fn(GenerationPlan) -> Box<dyn Search> + Send + Sync>,
}

impl SearchPlan {
    /// A search that computes `sequences_each` rows of each prompt in a step.
    pub(super) fn new<S: Search + 'static>(
        sequences_each: usize,
        make: impl Fn(GenerationPlan) -> S + Send + Sync + 'static,
    ) -> Self {
        Self {
            sequences_each,
            draft: None,
            num_candidates: 0,
            make: Arc::new(move |plan| Box::new(make(plan))),
        }
    }

    /// The same, with drafts of a model.
    pub(super) fn with_draft(mut self, draft: DraftPlan) -> Self {
        self.draft = Some(draft);
        self
    }

    /// The same, with up to so many candidates of each row.
    pub(super) fn with_candidates(mut self, num_candidates: usize) -> Self {
        self.num_candidates = num_candidates;
        self
    }

    /// A search that computes the rows of the output independently.
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

/// Builds the search of a plan, which heals its prompts first if the plan says so.
pub fn build(mut plan: GenerationPlan) -> Box<dyn Search> {
    if let Some(healing) = plan.healing.take() {
        return Box::new(HealingSearch::new(plan, *healing));
    }
    let SearchPlan { make, .. } = plan.search.clone();
    make(plan)
}
