//! Which search a configuration asks for, by transformers' rules.

use std::fmt;

use super::config::GenerationConfig;
use super::search::{for_each_search, mode_of};

macro_rules! modes {
    ($( $file:ident { $( $(#[doc = $doc:literal])* $name:ident $mode:ident when $condition:ident {
        fixed: [$($fixed:tt)*],
        presets: [$($presets:tt)*],
        least_beams: $least_beams:literal,
        fields: [$($fields:tt)*]
    } )* } )*) => {
        /// The kinds of search, in the order of choice.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum GenerationMode {
            $($( $(#[doc = $doc])* $mode, )*)*
        }

        impl GenerationMode {
            /// Whether beams compete, so that the rows of the result are not known before the end.
            pub const fn has_beams(self) -> bool {
                match self {
                    $($( Self::$mode => $least_beams > 0, )*)*
                }
            }

            /// transformers' name, such as `greedy_search`.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $($( Self::$mode => stringify!($name), )*)*
                }
            }
        }
    };
}

for_each_search!(modes);

impl GenerationMode {
    /// The mode that the fields of a merged configuration select.
    pub fn of(config: &GenerationConfig) -> Self {
        mode_of(config)
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
