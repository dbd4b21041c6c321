//! The methods of [`Generator`] that are named after a strategy.

use super::{Generator, Prompts};
use crate::engine::GenerationOutput;
use rsgen_core::error::Result;
use rsgen_generation::{GenerationConfig, GenerationMode, Strategy};

impl Generator {
    /// Takes the most probable token at each step.
    ///
    /// # Errors
    /// As for [`Generator::generate`]; and when a field is set that makes it another strategy.
    pub fn greedy_search(
        &self,
        prompts: impl Into<Prompts>,
        config: &GenerationConfig,
    ) -> Result<GenerationOutput> {
        self.generate(prompts, &strategy(GenerationMode::Greedy, config)?)
    }

    /// Draws each token at random from the model's distribution.
    ///
    /// # Errors
    /// As for [`Generator::generate`]; and when a field is set that makes it another strategy.
    pub fn sample(&self, prompts: impl Into<Prompts>, config: &GenerationConfig) -> Result<GenerationOutput> {
        self.generate(prompts, &strategy(GenerationMode::Sample, config)?)
    }

    /// Takes, of the `top_k` most probable tokens (4 unless set), the one that is probable and leads to a
    /// state unlike those before it; `penalty_alpha` (0.6 unless set) weighs the two.
    ///
    /// # Errors
    /// As for [`Generator::generate`]; and when a field is set that makes it another strategy.
    pub fn contrastive_search(
        &self,
        prompts: impl Into<Prompts>,
        config: &GenerationConfig,
    ) -> Result<GenerationOutput> {
        self.generate(prompts, &strategy(GenerationMode::ContrastiveSearch, config)?)
    }

    /// Contrasts the last layer's logits with those of an inner one; `dola_layers` says which, `"high"`
    /// unless set.
    ///
    /// # Errors
    /// As for [`Generator::generate`]; and when a field is set that makes it another strategy.
    pub fn dola(&self, prompts: impl Into<Prompts>, config: &GenerationConfig) -> Result<GenerationOutput> {
        self.generate(prompts, &strategy(GenerationMode::Dola, config)?)
    }

    /// Greedy search or sampling that checks several tokens in a pass: those that followed the newest ones
    /// where they occurred before. `prompt_lookup_num_tokens` (10 unless set) is how many at most: as many as
    /// measured times make fastest, or none, unless `num_assistant_tokens_schedule` is set.
    ///
    /// # Errors
    /// As for [`Generator::generate`]; and when a field is set that makes it another strategy.
    pub fn prompt_lookup(
        &self,
        prompts: impl Into<Prompts>,
        config: &GenerationConfig,
    ) -> Result<GenerationOutput> {
        self.generate(prompts, &strategy(GenerationMode::PromptLookup, config)?)
    }

    /// Greedy search or sampling that checks several tokens in a pass: those that the assistant, a smaller
    /// model that the generator was [opened](super::GeneratorOptions::assistant) with, has drafted.
    /// `num_assistant_tokens` (20 unless set) is how many at most: as many as measured times make fastest, or
    /// none, unless `num_assistant_tokens_schedule` is set. [`Call::assistant`](super::Call::assistant) names
    /// the assistant of a single call.
    ///
    /// # Errors
    /// As for [`Generator::generate`]; when a field is set that makes it another strategy; and when there is
    /// neither an assistant nor an `assistant_early_exit`.
    pub fn assisted_decoding(
        &self,
        prompts: impl Into<Prompts>,
        config: &GenerationConfig,
    ) -> Result<GenerationOutput> {
        let config = strategy(GenerationMode::AssistedDecoding, config)?;
        self.call(prompts).config(&config).assisted().run()
    }

    /// Keeps the `num_beams` best continuations at each step, 4 unless set, and returns the best of what
    /// ends.
    ///
    /// # Errors
    /// As for [`Generator::generate`]; and when a field is set that makes it another strategy.
    pub fn beam_search(
        &self,
        prompts: impl Into<Prompts>,
        config: &GenerationConfig,
    ) -> Result<GenerationOutput> {
        self.generate(prompts, &strategy(GenerationMode::BeamSearch, config)?)
    }

    /// Beam search whose continuations are drawn at random.
    ///
    /// # Errors
    /// As for [`Generator::generate`]; and when a field is set that makes it another strategy.
    pub fn beam_sample(
        &self,
        prompts: impl Into<Prompts>,
        config: &GenerationConfig,
    ) -> Result<GenerationOutput> {
        self.generate(prompts, &strategy(GenerationMode::BeamSample, config)?)
    }

    /// Beam search in groups that are kept apart, so that results differ: 4 beams in 2 groups with a
    /// `diversity_penalty` of 1.0, unless set.
    ///
    /// # Errors
    /// As for [`Generator::generate`]; and when a field is set that makes it another strategy.
    pub fn group_beam_search(
        &self,
        prompts: impl Into<Prompts>,
        config: &GenerationConfig,
    ) -> Result<GenerationOutput> {
        self.generate(prompts, &strategy(GenerationMode::GroupBeamSearch, config)?)
    }

    /// Finds the best output that holds the tokens of `force_words_ids` and `constraints`.
    ///
    /// # Errors
    /// As for [`Generator::generate`]; and when a field is set that makes it another strategy.
    pub fn constrained_beam_search(
        &self,
        prompts: impl Into<Prompts>,
        config: &GenerationConfig,
    ) -> Result<GenerationOutput> {
        self.generate(prompts, &strategy(GenerationMode::ConstrainedBeamSearch, config)?)
    }
}

/// The fields of a call, completed with those of the strategy that selects `mode`.
fn strategy(mode: GenerationMode, config: &GenerationConfig) -> Result<GenerationConfig> {
    Strategy::of(mode).apply(config, &GenerationConfig::new())
}
