//! Selects the search of a configuration, by transformers' rules.

use std::fmt;

use super::config::GenerationConfig;

/// The kinds of search; [`Strategy`](super::Strategy) says what each does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum GenerationMode {
    /// `greedy_search`
    #[default]
    Greedy,
    /// `sample`
    Sample,
    /// `contrastive_search`
    ContrastiveSearch,
    /// `dola`
    Dola,
    /// `prompt_lookup`
    PromptLookup,
    /// `assisted_decoding`
    AssistedDecoding,
    /// `beam_search`
    BeamSearch,
    /// `beam_sample`
    BeamSample,
    /// `group_beam_search`
    GroupBeamSearch,
    /// `constrained_beam_search`
    ConstrainedBeamSearch,
}

impl GenerationMode {
    /// The mode that the fields of a merged configuration select, with or without a draft model:
    /// transformers' `get_generation_mode`. What transformers calls `assisted_generation` has two names here.
    pub fn of(config: &GenerationConfig, has_draft: bool) -> Self {
        let samples = config.do_sample == Some(true);
        let has_beams = config.num_beams.is_some_and(|beams| beams > 1);
        let has_groups = config.num_beam_groups.is_some_and(|groups| groups > 1);
        let contrasts =
            config.penalty_alpha.is_some_and(|alpha| alpha > 0.0) && config.top_k_or_default() > 1;
        if config.force_words_ids.is_some() || config.forces_texts() {
            // A single beam is an error when the plan is made.
            Self::ConstrainedBeamSearch
        } else if has_beams && has_groups {
            Self::GroupBeamSearch
        } else if has_beams {
            if samples { Self::BeamSample } else { Self::BeamSearch }
        } else if config.dola_layers.is_some() {
            Self::Dola
        } else if contrasts && !samples {
            Self::ContrastiveSearch
        } else if config.assistant_early_exit.is_some() {
            Self::AssistedDecoding
        } else if config.prompt_lookup_num_tokens.is_some() {
            Self::PromptLookup
        } else if has_draft {
            Self::AssistedDecoding
        } else if samples {
            Self::Sample
        } else {
            Self::Greedy
        }
    }

    /// The name, mostly transformers', such as `greedy_search`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Greedy => "greedy_search",
            Self::Sample => "sample",
            Self::ContrastiveSearch => "contrastive_search",
            Self::Dola => "dola",
            Self::PromptLookup => "prompt_lookup",
            Self::AssistedDecoding => "assisted_decoding",
            Self::BeamSearch => "beam_search",
            Self::BeamSample => "beam_sample",
            Self::GroupBeamSearch => "group_beam_search",
            Self::ConstrainedBeamSearch => "constrained_beam_search",
        }
    }

    /// Whether beams compete, so that the rows of the result are not known before the end.
    pub const fn has_beams(self) -> bool {
        matches!(
            self,
            Self::BeamSearch | Self::BeamSample | Self::GroupBeamSearch | Self::ConstrainedBeamSearch
        )
    }
}

/// The name as words, such as `greedy search`.
impl fmt::Display for GenerationMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dola => f.write_str("DoLa"),
            named => f.write_str(&named.as_str().replace('_', " ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn num_beams_and_do_sample_select_the_mode() {
        let config = GenerationConfig::new;
        let of = |config: &GenerationConfig| GenerationMode::of(config, false);
        assert_eq!(of(&config()), GenerationMode::Greedy);
        assert_eq!(of(&config().temperature(0.5).top_p(0.9)), GenerationMode::Greedy);
        assert_eq!(of(&config().do_sample(false)), GenerationMode::Greedy);
        assert_eq!(of(&config().do_sample(true)), GenerationMode::Sample);
        assert_eq!(of(&config().num_beams(1).do_sample(true)), GenerationMode::Sample);
        assert_eq!(of(&config().num_beams(2)), GenerationMode::BeamSearch);
        assert_eq!(of(&config().num_beams(2).do_sample(true)), GenerationMode::BeamSample);
        assert_eq!(of(&config().num_beams(4).num_beam_groups(2)), GenerationMode::GroupBeamSearch);
        let forced = config().num_beams(4).force_words_ids(Vec::new());
        assert_eq!(of(&forced), GenerationMode::ConstrainedBeamSearch);
        assert_eq!(of(&config().penalty_alpha(0.6)), GenerationMode::ContrastiveSearch);
        assert_eq!(of(&config().penalty_alpha(0.6).top_k(1)), GenerationMode::Greedy);
        assert_eq!(of(&config().penalty_alpha(0.6).do_sample(true)), GenerationMode::Sample);
        let dola = config().dola_layers(vec![0]);
        assert_eq!(of(&dola.clone().do_sample(true)), GenerationMode::Dola);
        assert_eq!(of(&dola), GenerationMode::Dola);
    }

    #[test]
    fn a_draft_model_assists_greedy_search_and_sampling_only() {
        let config = GenerationConfig::new;
        let of = |config: &GenerationConfig| GenerationMode::of(config, true);
        assert_eq!(of(&config()), GenerationMode::AssistedDecoding);
        assert_eq!(of(&config().do_sample(true)), GenerationMode::AssistedDecoding);
        assert_eq!(of(&config().num_beams(2)), GenerationMode::BeamSearch);
        assert_eq!(of(&config().penalty_alpha(0.6)), GenerationMode::ContrastiveSearch);
        assert_eq!(of(&config().dola_layers(vec![0])), GenerationMode::Dola);
        let lookup = config().prompt_lookup_num_tokens(3_usize);
        assert_eq!(of(&lookup), GenerationMode::PromptLookup);
        let exit = lookup.assistant_early_exit(1_usize);
        assert_eq!(GenerationMode::of(&exit, false), GenerationMode::AssistedDecoding);
    }
}
