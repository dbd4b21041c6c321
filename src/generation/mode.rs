//! Which search a configuration asks for, by transformers' rules.

use std::fmt;

use super::config::GenerationConfig;

/// The kinds of search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GenerationMode {
    /// The most probable token at each step.
    Greedy,
    /// A token drawn from the distribution at each step.
    Sample,
    /// The best of several continuations that compete in each step.
    BeamSearch,
    /// Beam search whose continuations are drawn.
    BeamSample,
    /// Beam search in groups that are kept apart.
    GroupBeamSearch,
    /// Beam search whose output has to hold given tokens.
    ConstrainedBeamSearch,
    /// A token that is probable and leads to a state unlike those before it.
    ContrastiveSearch,
    /// The last layer contrasted with an inner one, then the most probable token or one drawn.
    Dola,
}

impl GenerationMode {
    /// The mode that the fields of a merged configuration select.
    pub fn of(config: &GenerationConfig) -> Self {
        let samples = config.do_sample == Some(true);
        let contrasts =
            config.penalty_alpha.is_some_and(|alpha| alpha > 0.0) && config.top_k.unwrap_or(50) > 1;
        match config.num_beams {
            // With a single beam it is refused when it is planned.
            _ if config.force_words_ids.is_some() => Self::ConstrainedBeamSearch,
            None | Some(0 | 1) if config.dola_layers.is_some() => Self::Dola,
            None | Some(0 | 1) if !samples && contrasts => Self::ContrastiveSearch,
            None | Some(0 | 1) if samples => Self::Sample,
            None | Some(0 | 1) => Self::Greedy,
            _ if config.num_beam_groups.is_some_and(|groups| groups > 1) => Self::GroupBeamSearch,
            _ if samples => Self::BeamSample,
            _ => Self::BeamSearch,
        }
    }

    /// Whether beams compete, so that the rows of the result are not known before the end.
    pub const fn has_beams(self) -> bool {
        match self {
            Self::BeamSearch | Self::BeamSample | Self::GroupBeamSearch | Self::ConstrainedBeamSearch => true,
            Self::Greedy | Self::Sample | Self::ContrastiveSearch | Self::Dola => false,
        }
    }

    /// transformers' name, such as `greedy_search`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Greedy => "greedy_search",
            Self::Sample => "sample",
            Self::BeamSearch => "beam_search",
            Self::BeamSample => "beam_sample",
            Self::GroupBeamSearch => "group_beam_search",
            Self::ConstrainedBeamSearch => "constrained_beam_search",
            Self::ContrastiveSearch => "contrastive_search",
            Self::Dola => "dola",
        }
    }
}

/// In words, such as `greedy search`.
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
