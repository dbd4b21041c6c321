//! Which search each mode runs. To add a search: its file, its mode, its strategy, its arm here, its golden;
//! what only it needs of the model stands in the plan's `search.rs`.

use super::super::mode::GenerationMode;
use super::super::plan::GenerationPlan;
use super::assisted::AssistedSearch;
use super::contrastive::ContrastiveSearch;
use super::dola::dola_search;
use super::greedy::greedy_search;
use super::healing::HealingSearch;
use super::sample::sample_search;
use super::{Search, beam};

/// Builds the search of a plan, which heals its prompts first if the plan says so.
pub fn build(mut plan: GenerationPlan) -> Box<dyn Search> {
    if let Some(healing) = plan.healing.take() {
        return Box::new(HealingSearch::new(plan, *healing));
    }
    match plan.config.mode {
        GenerationMode::Greedy => Box::new(greedy_search(plan)),
        GenerationMode::Sample => Box::new(sample_search(plan)),
        GenerationMode::PromptLookup | GenerationMode::AssistedDecoding => {
            Box::new(AssistedSearch::new(plan))
        }
        GenerationMode::ContrastiveSearch => Box::new(ContrastiveSearch::new(plan)),
        GenerationMode::Dola => dola_search(plan),
        GenerationMode::BeamSearch
        | GenerationMode::BeamSample
        | GenerationMode::GroupBeamSearch
        | GenerationMode::ConstrainedBeamSearch => beam::build(plan),
    }
}
