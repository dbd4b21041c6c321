//! The named ways to generate: what each of the generator's methods presets of a configuration.
//!
//! A strategy is nothing that `generate` could not do with the same fields. To add one: its line in
//! [`Strategy::ALL`], and the method that names it in each language.

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

impl Strategy {
    /// The most probable token at each step.
    pub const GREEDY_SEARCH: Self = Self {
        name: "greedy_search",
        doc: "takes the most probable token at each step",
        fixed: &[("do_sample", Setting::Flag(false)), ("num_beams", Setting::Count(1))],
        presets: &[],
        least_beams: 0,
    };

    /// A token drawn at each step.
    pub const SAMPLE: Self = Self {
        name: "sample",
        doc: "draws each token at random",
        fixed: &[("do_sample", Setting::Flag(true)), ("num_beams", Setting::Count(1))],
        presets: &[],
        least_beams: 0,
    };

    /// Continuations that compete.
    pub const BEAM_SEARCH: Self = Self {
        name: "beam_search",
        doc: "keeps the best of several continuations in each step",
        fixed: &[("do_sample", Setting::Flag(false))],
        presets: &[("num_beams", Setting::Count(4))],
        least_beams: 2,
    };

    /// Continuations that compete and are drawn.
    pub const BEAM_SAMPLE: Self = Self {
        name: "beam_sample",
        doc: "draws several continuations in each step and keeps the best",
        fixed: &[("do_sample", Setting::Flag(true))],
        presets: &[("num_beams", Setting::Count(4))],
        least_beams: 2,
    };

    /// Groups of beams that are kept apart.
    pub const GROUP_BEAM_SEARCH: Self = Self {
        name: "group_beam_search",
        doc: "keeps groups of beams apart, so that results differ",
        fixed: &[("do_sample", Setting::Flag(false))],
        presets: &[
            ("num_beams", Setting::Count(4)),
            ("num_beam_groups", Setting::Count(2)),
            ("diversity_penalty", Setting::Number(1.0)),
        ],
        least_beams: 2,
    };

    /// An output that holds given tokens.
    pub const CONSTRAINED_BEAM_SEARCH: Self = Self {
        name: "constrained_beam_search",
        doc: "finds the best output that holds the tokens of `force_words_ids` and `constraints`",
        fixed: &[("do_sample", Setting::Flag(false))],
        presets: &[("num_beams", Setting::Count(4))],
        least_beams: 2,
    };

    /// Probable tokens that lead to new states.
    pub const CONTRASTIVE_SEARCH: Self = Self {
        name: "contrastive_search",
        doc: "takes the candidate that is probable and leads to a state unlike those before it",
        fixed: &[("do_sample", Setting::Flag(false)), ("num_beams", Setting::Count(1))],
        presets: &[("penalty_alpha", Setting::Number(0.6)), ("top_k", Setting::Count(4))],
        least_beams: 0,
    };

    /// The last layer contrasted with an inner one.
    pub const DOLA: Self = Self {
        name: "dola",
        doc: "contrasts the last layer with an inner one",
        fixed: &[("num_beams", Setting::Count(1))],
        presets: &[("dola_layers", Setting::Text("high")), ("repetition_penalty", Setting::Number(1.2))],
        least_beams: 0,
    };

    /// All strategies.
    pub const ALL: &'static [Self] = &[
        Self::GREEDY_SEARCH,
        Self::SAMPLE,
        Self::BEAM_SEARCH,
        Self::BEAM_SAMPLE,
        Self::GROUP_BEAM_SEARCH,
        Self::CONSTRAINED_BEAM_SEARCH,
        Self::CONTRASTIVE_SEARCH,
        Self::DOLA,
    ];

    /// What the caller has set, made this strategy's.
    ///
    /// # Errors
    /// `Config` when the caller has set a field so that it would be another strategy.
    pub fn apply(&self, mut config: GenerationConfig) -> Result<GenerationConfig> {
        let given = config.to_json();
        for &(field, setting) in self.fixed {
            let value = setting.value();
            if let Some(given) = given.get(field).filter(|&given| FieldValue::from(given.clone()) != value) {
                return Err(Error::config(format!(
                    "`{field}` must be {value} in {}, which sets it, but is {given}; leave it out, or use `generate`",
                    self.name
                )));
            }
            config.set(field, &value)?;
        }
        for (field, setting) in self.presets.iter().filter(|(field, _)| !given.contains_key(*field)) {
            config.set(field, &setting.value())?;
        }
        match config.num_beams {
            Some(beams) if beams < self.least_beams => Err(Error::config(format!(
                "`num_beams` must be {} or more in {}, but is {beams}; leave it out, or use `generate`",
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
            let mut config = strategy.apply(GenerationConfig::new()).unwrap();
            if strategy.name == Strategy::CONSTRAINED_BEAM_SEARCH.name {
                config = config.force_words_ids(Vec::new());
            }
            assert_eq!(GenerationMode::of(&config).as_str(), strategy.name);
        }
    }

    #[test]
    fn a_preset_gives_way_to_the_caller_and_a_fixed_field_does_not() {
        let config = Strategy::BEAM_SEARCH.apply(GenerationConfig::new().num_beams(7)).unwrap();
        assert_eq!((config.num_beams, config.do_sample), (Some(7), Some(false)));
        let same = Strategy::SAMPLE.apply(GenerationConfig::new().do_sample(true));
        assert!(same.is_ok(), "saying it twice is no contradiction");
        for (strategy, config, field) in [
            (Strategy::SAMPLE, GenerationConfig::new().do_sample(false), "do_sample"),
            (Strategy::GREEDY_SEARCH, GenerationConfig::new().num_beams(2), "num_beams"),
            (Strategy::BEAM_SEARCH, GenerationConfig::new().num_beams(1), "num_beams"),
        ] {
            let error = strategy.apply(config).unwrap_err().to_string();
            assert!(error.contains(field) && error.contains(strategy.name), "{error}");
        }
    }
}
