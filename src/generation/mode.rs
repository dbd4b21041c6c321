//! Selects the search of a configuration, by transformers' rules.

use std::fmt;

use super::config::GenerationConfig;

/// The kinds of search; [`Strategy`](super::Strategy) says what each does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GenerationMode {
    /// `greedy_search`
    Greedy,
    /// `sample`
    Sample,
    /// `contrastive_search`
    ContrastiveSearch,
    /// `dola`
    Dola,
    /// `assisted_generation`
    Assisted,
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
    /// The mode that the fields of a merged configuration select: transformers' `get_generation_mode`.
    pub fn of(config: &GenerationConfig) -> Self {
        let samples = config.do_sample == Some(true);
        let has_beams = config.num_beams.is_some_and(|beams| beams > 1);
        let has_groups = config.num_beam_groups.is_some_and(|groups| groups > 1);
        let contrasts =
            config.penalty_alpha.is_some_and(|alpha| alpha > 0.0) && config.top_k_or_default() > 1;
        if config.force_words_ids.is_some() {
            // A single beam is an error when the plan is made.
            Self::ConstrainedBeamSearch
        } else if has_beams && has_groups {
            Self::GroupBeamSearch
        } else if has_beams {
            if samples { Self::BeamSample } else { Self::BeamSearch }
        } else if config.dola_layers.is_some() {
            Self::Dola
        } else if config.prompt_lookup_num_tokens.is_some() && (samples || !contrasts) {
            Self::Assisted
        } else if samples {
            Self::Sample
        } else if contrasts {
            Self::ContrastiveSearch
        } else {
            Self::Greedy
        }
    }

    /// transformers' name, such as `greedy_search`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Greedy => "greedy_search",
            Self::Sample => "sample",
            Self::ContrastiveSearch => "contrastive_search",
            Self::Dola => "dola",
            Self::Assisted => "assisted_generation",
            Self::BeamSearch => "beam_search",
            Self::BeamSample => "beam_sample",
            Self::GroupBeamSearch => "group_beam_search",
            Self::ConstrainedBeamSearch => "constrained_beam_search",
        }
    }

    /// Whether beams compete, so that the rows of the result are not known before the end.
    pub const fn has_beams(self) -> bool {
        !matches!(self, Self::Greedy | Self::Sample | Self::ContrastiveSearch | Self::Dola | Self::Assisted)
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
        assert_eq!(GenerationMode::of(&config()), GenerationMode::Greedy);
        assert_eq!(GenerationMode::of(&config().temperature(0.5).top_p(0.9)), GenerationMode::Greedy);
        assert_eq!(GenerationMode::of(&config().do_sample(false)), GenerationMode::Greedy);
        assert_eq!(GenerationMode::of(&config().do_sample(true)), GenerationMode::Sample);
        assert_eq!(GenerationMode::of(&config().num_beams(1).do_sample(true)), GenerationMode::Sample);
        assert_eq!(GenerationMode::of(&config().num_beams(2)), GenerationMode::BeamSearch);
        assert_eq!(GenerationMode::of(&config().num_beams(2).do_sample(true)), GenerationMode::BeamSample);
        assert_eq!(
            GenerationMode::of(&config().num_beams(4).num_beam_groups(2)),
            GenerationMode::GroupBeamSearch
        );
        let forced = config().num_beams(4).force_words_ids(Vec::new());
        assert_eq!(GenerationMode::of(&forced), GenerationMode::ConstrainedBeamSearch);
        assert_eq!(GenerationMode::of(&config().penalty_alpha(0.6)), GenerationMode::ContrastiveSearch);
        assert_eq!(GenerationMode::of(&config().penalty_alpha(0.6).top_k(1)), GenerationMode::Greedy);
        assert_eq!(GenerationMode::of(&config().penalty_alpha(0.6).do_sample(true)), GenerationMode::Sample);
        let dola = config().dola_layers(vec![0]);
        assert_eq!(GenerationMode::of(&dola.clone().do_sample(true)), GenerationMode::Dola);
        assert_eq!(GenerationMode::of(&dola), GenerationMode::Dola);
    }
}
