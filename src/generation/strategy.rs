//! The named ways to generate: what each of the generator's methods presets of a configuration.
//!
//! A strategy is nothing that `generate` could not do with the same fields. The table of searches makes them, and the
//! methods too.

use crate::error::{Error, Result};

use super::config::{FieldValue, GenerationConfig};
use super::mode::GenerationMode;
use super::search::for_each_search;

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

macro_rules! table {
    ($( $file:ident { $( $(#[doc = $doc:literal])* $name:ident $mode:ident when $condition:ident {
        fixed: [$($fixed:ident = $value:expr),* $(,)?],
        presets: [$($preset:ident = $default:expr),* $(,)?],
        least_beams: $least_beams:literal,
        fields: [$($fields:tt)*]
    } )* } )*) => {
        impl Strategy {
            /// All strategies.
            pub const ALL: &'static [Self] = &[$($( Self::of(GenerationMode::$mode), )*)*];

            /// The strategy that selects a mode.
            pub const fn of(mode: GenerationMode) -> Self {
                match mode {
                    $($( GenerationMode::$mode => Self {
                        name: stringify!($name),
                        doc: concat!($($doc),*),
                        fixed: &[$((stringify!($fixed), $value)),*],
                        presets: &[$((stringify!($preset), $default)),*],
                        least_beams: $least_beams,
                    }, )*)*
                }
            }
        }
    };
}

for_each_search!(table);

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
    use super::*;

    #[test]
    fn every_strategy_selects_the_mode_of_its_name() {
        for strategy in Strategy::ALL {
            let mut config = strategy.apply(&GenerationConfig::new(), &GenerationConfig::new()).unwrap();
            if strategy.name == GenerationMode::ConstrainedBeamSearch.as_str() {
                config = config.force_words_ids(Vec::new());
            }
            assert_eq!(GenerationMode::of(&config).as_str(), strategy.name);
        }
    }

    /// The rows of a page's table of fields: name, default, and what the method makes of it.
    fn rows(page: &str) -> Vec<[&str; 3]> {
        let table = page.lines().skip_while(|line| !line.starts_with("| field | default |")).skip(2);
        table
            .take_while(|line| line.starts_with('|'))
            .filter_map(|line| {
                line.split('|').skip(1).take(3).map(str::trim).collect::<Vec<_>>().try_into().ok()
            })
            .collect()
    }

    #[test]
    fn the_page_of_each_strategy_says_what_its_fields_are_and_what_the_method_makes_of_them() {
        for strategy in Strategy::ALL {
            let path = format!("{}/docs/strategies/{}.md", env!("CARGO_MANIFEST_DIR"), strategy.name);
            let page = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
            let rows = rows(&page);
            let set = |settings: &'static [(&'static str, Setting)], before: &'static str| {
                settings.iter().map(move |&(field, setting)| (field, format!("{before}{}", setting.value())))
            };
            let mut methods: Vec<(&str, String)> =
                set(strategy.fixed, "always ").chain(set(strategy.presets, "")).collect();
            for [name, default, method] in rows {
                let name = name.trim_matches('`');
                let field = GenerationConfig::FIELDS.iter().find(|field| field.name == name);
                assert_eq!(field.map(|field| field.default), Some(default), "{path}: {name}");
                let found = methods.iter().position(|(field, _)| *field == name);
                let expected = found.map_or(String::new(), |place| methods.swap_remove(place).1);
                assert_eq!(method, expected, "{path}: {name}");
            }
            assert!(methods.is_empty(), "{path}: no rows for {methods:?}");
        }
    }

    #[test]
    fn a_preset_gives_way_to_the_caller_and_a_fixed_field_does_not() {
        let (none, sampled) = (GenerationConfig::new(), GenerationConfig::new().do_sample(true).num_beams(7));
        for (call, passed) in [(&sampled.clone().do_sample(false), &none), (&none, &sampled)] {
            let config = Strategy::of(GenerationMode::BeamSearch).apply(call, passed).unwrap();
            assert_eq!((config.num_beams, config.do_sample), (Some(7), Some(false)));
        }
        let same =
            Strategy::of(GenerationMode::Sample).apply(&GenerationConfig::new().do_sample(true), &none);
        assert!(same.is_ok(), "saying it twice is no contradiction");
        for (strategy, config, field) in [
            (Strategy::of(GenerationMode::Sample), GenerationConfig::new().do_sample(false), "do_sample"),
            (Strategy::of(GenerationMode::Greedy), GenerationConfig::new().num_beams(2), "num_beams"),
            (Strategy::of(GenerationMode::BeamSearch), GenerationConfig::new().num_beams(1), "num_beams"),
        ] {
            let error = strategy.apply(&config, &none).unwrap_err().to_string();
            assert!(error.contains(field) && error.contains(strategy.name), "{error}");
        }
    }
}
