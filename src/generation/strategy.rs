//! The named ways to generate: what each of the generator's methods presets of a configuration.
//!
//! A strategy is nothing that `generate` could not do with the same fields. To add one: its line in
//! [`for_each_strategy`], which makes the methods too.

use crate::error::{Error, Result};

use super::config::{FieldValue, GenerationConfig};

/// A named way to generate.
#[derive(Debug, Clone, Copy)]
pub struct Strategy {
    /// The name, which is that of the method.
    pub name: &'static str,
    /// What it does.
    pub doc: &'static str,
    /// Fields that make the strategy what it is: a caller may not set them otherwise.
    fixed: &'static [(&'static str, Setting)],
    /// Fields that hold unless the caller sets them.
    presets: &'static [(&'static str, Setting)],
    /// The fewest beams that it makes sense with.
    least_beams: usize,
}

/// The value of a field.
#[derive(Debug, Clone, Copy)]
enum Setting {
    Flag(bool),
    Count(u64),
    Number(f64),
    Text(&'static str),
}

impl Setting {
    fn value(self) -> FieldValue {
        match self {
            Self::Flag(value) => value.into(),
            Self::Count(value) => value.into(),
            Self::Number(value) => value.into(),
            Self::Text(value) => value.into(),
        }
    }
}

/// Hands the table of strategies to the macro `$then`: the documentation of the method, its name and the constant's,
/// the fields that make it what it is (`fixed`: a caller may not set them otherwise), those that hold unless the caller
/// sets them (`presets`), and the fewest beams that it makes sense with.
macro_rules! for_each_strategy {
    ($then:ident) => {
        $then! {
            /// Takes the most probable token at each step.
            greedy_search GREEDY_SEARCH {
                fixed: [do_sample = Setting::Flag(false), num_beams = Setting::Count(1)],
                presets: [],
                least_beams: 0
            }

            /// Draws each token at random from the model's distribution.
            sample SAMPLE {
                fixed: [do_sample = Setting::Flag(true), num_beams = Setting::Count(1)],
                presets: [],
                least_beams: 0
            }

            /// Keeps the `num_beams` best continuations at each step, 4 unless set, and returns the best of what ends.
            beam_search BEAM_SEARCH {
                fixed: [do_sample = Setting::Flag(false)],
                presets: [num_beams = Setting::Count(4)],
                least_beams: 2
            }

            /// Beam search whose continuations are drawn at random.
            beam_sample BEAM_SAMPLE {
                fixed: [do_sample = Setting::Flag(true)],
                presets: [num_beams = Setting::Count(4)],
                least_beams: 2
            }

            /// Beam search in groups that are kept apart, so that results differ: 4 beams in 2 groups with a
            /// `diversity_penalty` of 1.0, unless set.
            group_beam_search GROUP_BEAM_SEARCH {
                fixed: [do_sample = Setting::Flag(false)],
                presets: [
                    num_beams = Setting::Count(4),
                    num_beam_groups = Setting::Count(2),
                    diversity_penalty = Setting::Number(1.0),
                ],
                least_beams: 2
            }

            /// Finds the best output that holds the tokens of `force_words_ids` and `constraints`.
            constrained_beam_search CONSTRAINED_BEAM_SEARCH {
                fixed: [do_sample = Setting::Flag(false)],
                presets: [num_beams = Setting::Count(4)],
                least_beams: 2
            }

            /// Takes, of the `top_k` most probable tokens (4 unless set), the one that is probable and leads to a state
            /// unlike those before it; `penalty_alpha` (0.6 unless set) weighs the two.
            contrastive_search CONTRASTIVE_SEARCH {
                fixed: [do_sample = Setting::Flag(false), num_beams = Setting::Count(1)],
                presets: [penalty_alpha = Setting::Number(0.6), top_k = Setting::Count(4)],
                least_beams: 0
            }

            /// Contrasts the last layer's logits with those of an inner one; `dola_layers` says which, `"high"` unless set.
            dola DOLA {
                fixed: [num_beams = Setting::Count(1)],
                presets: [dola_layers = Setting::Text("high"), repetition_penalty = Setting::Number(1.2)],
                least_beams: 0
            }
        }
    };
}
pub(crate) use for_each_strategy;

macro_rules! table {
    ($( $(#[doc = $doc:literal])* $name:ident $constant:ident {
        fixed: [$($fixed:ident = $value:expr),* $(,)?],
        presets: [$($preset:ident = $default:expr),* $(,)?],
        least_beams: $least_beams:literal
    } )*) => {
        impl Strategy {
            $(
                $(#[doc = $doc])*
                pub const $constant: Self = Self {
                    name: stringify!($name),
                    doc: concat!($($doc),*),
                    fixed: &[$((stringify!($fixed), $value)),*],
                    presets: &[$((stringify!($preset), $default)),*],
                    least_beams: $least_beams,
                };
            )*

            /// All strategies.
            pub const ALL: &'static [Self] = &[$(Self::$constant),*];
        }
    };
}

for_each_strategy!(table);

impl Strategy {
    /// The fields of a call over those of a configuration that was passed with it, made this strategy's.
    ///
    /// # Errors
    /// `Config` when the call sets a field so that it would be another strategy; a configuration that was passed gives
    /// way.
    pub fn apply(&self, call: &GenerationConfig, passed: &GenerationConfig) -> Result<GenerationConfig> {
        let given = call.to_json();
        let mut config = call.over_passed(passed);
        for &(field, setting) in self.fixed {
            let value = setting.value();
            if given.get(field).is_some_and(|given| FieldValue::from(given.clone()) != value) {
                return Err(Error::config(format!(
                    "`{field}` cannot be set in {}(), which sets it; leave it out, or call generate()",
                    self.name
                )));
            }
            config.set(field, &value)?;
        }
        for (field, setting) in self.presets {
            if config.get(field).is_none_or(|value| value == FieldValue::Null) {
                config.set(field, &setting.value())?;
            }
        }
        match config.num_beams {
            Some(beams) if beams < self.least_beams => Err(Error::config(format!(
                "`num_beams` must be {} or more in {}(), but is {beams}; leave it out, or call generate()",
                self.least_beams, self.name
            ))),
            _ => Ok(config),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::mode::GenerationMode;
    use super::*;

    #[test]
    fn every_strategy_selects_the_mode_of_its_name() {
        for strategy in Strategy::ALL {
            let mut config = strategy.apply(&GenerationConfig::new(), &GenerationConfig::new()).unwrap();
            if strategy.name == Strategy::CONSTRAINED_BEAM_SEARCH.name {
                config = config.force_words_ids(Vec::new());
            }
            assert_eq!(GenerationMode::of(&config).as_str(), strategy.name);
        }
    }

    #[test]
    fn a_preset_gives_way_to_the_caller_and_a_fixed_field_does_not() {
        let (none, sampled) = (GenerationConfig::new(), GenerationConfig::new().do_sample(true).num_beams(7));
        for (call, passed) in [(&sampled.clone().do_sample(false), &none), (&none, &sampled)] {
            let config = Strategy::BEAM_SEARCH.apply(call, passed).unwrap();
            assert_eq!((config.num_beams, config.do_sample), (Some(7), Some(false)));
        }
        let same = Strategy::SAMPLE.apply(&GenerationConfig::new().do_sample(true), &none);
        assert!(same.is_ok(), "saying it twice is no contradiction");
        for (strategy, config, field) in [
            (Strategy::SAMPLE, GenerationConfig::new().do_sample(false), "do_sample"),
            (Strategy::GREEDY_SEARCH, GenerationConfig::new().num_beams(2), "num_beams"),
            (Strategy::BEAM_SEARCH, GenerationConfig::new().num_beams(1), "num_beams"),
        ] {
            let error = strategy.apply(&config, &none).unwrap_err().to_string();
            assert!(error.contains(field) && error.contains(strategy.name), "{error}");
        }
    }
}
