//! Calls whose random numbers go on from those of earlier calls.

use rsgen_core::Result;
use rsgen_generation::{GenerationConfig, PlanContext, RandomState};

use super::call::Call;
use super::lists;

impl Call<'_> {
    /// Draws on from this state, in place of a seed, and leaves it after the last draw: two calls draw what
    /// transformers draws in two calls after one `torch.manual_seed`. The prompts of a list draw independently of
    /// each other, each with a seed that is drawn from the state.
    ///
    /// Calls that run at the same time must not share a state: they would draw the same numbers.
    pub fn random_state(mut self, state: RandomState) -> Self {
        self.context.random_state = Some(state);
        self
    }
}

/// The seed of each request.
pub(super) fn seeds(
    config: &GenerationConfig,
    context: &mut PlanContext,
    requests: usize,
) -> Result<Option<Vec<u64>>> {
    let defaults = &context.model_defaults;
    let samples = config.merged_over(defaults).do_sample == Some(true);
    match context.random_state.take_if(|_| requests > 1) {
        Some(state) => Ok(samples.then(|| (0..requests).map(|_| state.next_seed()).collect())),
        None => lists::seeds(config, defaults, requests),
    }
}
