//! The named strategies: the fields that each of the generator's methods presets.
//!
//! `generate` with the same fields does the same.

use rsgen_core::{Error, Result, refuse_if};

use super::config::{AssistantTokensSchedule, DolaLayers, FieldInfo, GenerationConfig};
use super::mode::GenerationMode;

/// A named way to generate.
#[derive(Debug, Clone, Copy)]
pub struct Strategy {
    /// The name, which is that of the method.
    pub name: &'static str,
    /// What it does.
    pub doc: &'static str,
    /// The mode that its fields select.
    pub mode: GenerationMode,
}

/// Every strategy in the order of the modes: its method, its mode and what it does. `$write` is a macro that takes them.
#[doc(hidden)]
#[macro_export]
#[rustfmt::skip]
macro_rules! strategies {
    ($write:ident) => {
        $write! {
            greedy_search Greedy
                "Takes the most probable token at each step, also where the model's own configuration samples or \
                 has beams.";
            sample Sample
                "Draws each token at random from the model's distribution, which `temperature`, `top_k`, `top_p` \
                 and others shape; the same `seed` gives the same text.";
            contrastive_search ContrastiveSearch
                "Takes, of the `top_k` most probable tokens (4 unless set), the one that is probable and \
                 leads to a state unlike those before it; `penalty_alpha` (0.6 unless set) weighs the two.";
            dola Dola
                "Contrasts the last layer's logits with those of an inner one; `dola_layers` says which, \
                 `\"high\"` unless set, and `repetition_penalty` is 1.2 unless set.";
            prompt_lookup PromptLookup
                "Greedy search or sampling that checks several tokens in a pass: those that followed the \
                 newest ones where they occurred before. `prompt_lookup_num_tokens` (10 unless set) is how \
                 many at most.";
            assisted_decoding AssistedDecoding
                "Greedy search or sampling that checks several tokens in a pass: those that a smaller \
                 model, the assistant, has drafted. `num_assistant_tokens` (20 unless set) is how many at \
                 most.";
            beam_search BeamSearch
                "Keeps the `num_beams` most probable continuations at each step, 4 unless set, and returns the best \
                 that ends; `num_return_sequences` returns more of them.";
            beam_sample BeamSample
                "Beam search whose continuations are drawn at random; `num_beams` is 4 unless set.";
            group_beam_search GroupBeamSearch
                "Beam search in groups that are kept apart, so that results differ: 4 beams in 2 groups \
                 with a `diversity_penalty` of 1.0, unless set.";
            constrained_beam_search ConstrainedBeamSearch
                "Finds, with 4 beams unless `num_beams` is set, the best output that holds the tokens of \
                 `force_words_ids` and `constraints`.";
        }
    };
}

macro_rules! table {
    ($( $name:ident $mode:ident $doc:literal; )*) => {
        impl Strategy {
            /// All strategies, in the order of the modes.
            pub const ALL: &'static [Self] = &[$( Self::of(GenerationMode::$mode) ),*];

            /// What the strategy of a mode does.
            const fn doc_of(mode: GenerationMode) -> &'static str {
                match mode {
                    $( GenerationMode::$mode => $doc, )*
                }
            }
        }
    };
}

strategies!(table);

impl Strategy {
    /// The strategy that selects a mode.
    pub const fn of(mode: GenerationMode) -> Self {
        Self { name: mode.as_str(), doc: Self::doc_of(mode), mode }
    }

    /// Fields that define the strategy: a caller may not set them to other values.
    fn fixed(&self) -> GenerationConfig {
        let mut fixed = GenerationConfig::new();
        fixed.num_beams = (!self.mode.has_beams()).then_some(1);
        fixed.do_sample = match self.mode {
            GenerationMode::Sample | GenerationMode::BeamSample => Some(true),
            // They draw or not.
            GenerationMode::Dola | GenerationMode::PromptLookup | GenerationMode::AssistedDecoding => None,
            _ => Some(false),
        };
        fixed
    }

    /// Defaults of other fields.
    fn presets(&self) -> GenerationConfig {
        let presets = GenerationConfig::new();
        match self.mode {
            GenerationMode::Greedy | GenerationMode::Sample => presets,
            GenerationMode::ContrastiveSearch => presets.penalty_alpha(0.6).top_k(4),
            GenerationMode::Dola => presets.dola_layers(DolaLayers::High).repetition_penalty(1.2),
            GenerationMode::PromptLookup => adaptive().prompt_lookup_num_tokens(10),
            GenerationMode::AssistedDecoding => adaptive(),
            GenerationMode::GroupBeamSearch => presets.num_beams(4).num_beam_groups(2).diversity_penalty(1.0),
            GenerationMode::BeamSearch
            | GenerationMode::BeamSample
            | GenerationMode::ConstrainedBeamSearch => presets.num_beams(4),
        }
    }

    /// Merges the fields of a call, a configuration that was passed with it, and this strategy.
    ///
    /// # Errors
    /// `Config` when the call sets a field that makes it another strategy. The strategy overrides a passed
    /// configuration.
    pub fn apply(&self, call: &GenerationConfig, passed: &GenerationConfig) -> Result<GenerationConfig> {
        let (fixed, presets) = (self.fixed(), self.presets());
        let contradicts = |field: &&FieldInfo| {
            let value = fixed.get(field.name);
            value.is_some() && call.get(field.name).is_some_and(|given| Some(given) != value)
        };
        if let Some(field) = GenerationConfig::FIELDS.iter().find(contradicts) {
            return Err(Error::config(format!(
                "cannot be set in {}(), which sets it; leave it out, or call generate()",
                self.name
            ))
            .about(field.name));
        }
        let config = fixed.merged_over(&call.over_passed(passed)).merged_over(&presets);
        let beams = config.num_beams.unwrap_or(1);
        refuse_if(self.mode.has_beams() && beams < 2, "num_beams", || {
            format!("must be 2 or more in {}(), but is {beams}; leave it out, or call generate()", self.name)
        })?;
        let off = config.switched_off.iter().find(|name| presets.get(name).is_some());
        let mode = |config: &GenerationConfig| GenerationMode::of(config, false);
        match off.filter(|_| mode(&presets.merged_over(&config)) != mode(&config)) {
            Some(field) => Err(Error::config(format!(
                "cannot be switched off in {}(); leave it out, or call generate()",
                self.name
            ))
            .about(*field)),
            None => Ok(config),
        }
    }
}

/// Drafts as long as measured times make fastest.
fn adaptive() -> GenerationConfig {
    GenerationConfig::new().num_assistant_tokens_schedule(AssistantTokensSchedule::Adaptive)
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
            let has_draft = strategy.mode == GenerationMode::AssistedDecoding;
            assert_eq!(GenerationMode::of(&config, has_draft), strategy.mode);
            assert_eq!(Strategy::of(strategy.mode).name, strategy.name);
            let one_beam = strategy.apply(&GenerationConfig::new().num_beams(1), &GenerationConfig::new());
            assert_eq!(strategy.mode.has_beams(), one_beam.is_err());
        }
    }

    /// The rows of a page's table of fields: name, default, and the value that the method sets.
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
            let path = format!("{}/../../docs/strategies/{}.md", env!("CARGO_MANIFEST_DIR"), strategy.name);
            let page = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
            let rows = rows(&page);
            let set = |settings: GenerationConfig, before: &'static str| {
                GenerationConfig::FIELDS.iter().filter_map(move |field| {
                    Some((field.name, format!("{before}{}", settings.get(field.name)?)))
                })
            };
            let fixed = set(strategy.fixed(), "always ");
            let mut methods: Vec<(&str, String)> = fixed.chain(set(strategy.presets(), "")).collect();
            for [name, default, method] in rows {
                let name = name.trim_matches('`');
                let field = GenerationConfig::FIELDS.iter().find(|field| field.name == name);
                assert_eq!(field.map(|field| field.default), Some(default), "{path}: {name}");
                let reads = field.is_some_and(|field| field.searches.includes(strategy.mode, true));
                assert!(reads, "{path}: {name} is not read by it");
                let found = methods.iter().position(|(field, _)| *field == name);
                let expected = found.map_or(String::new(), |index| methods.swap_remove(index).1);
                assert_eq!(method, expected, "{path}: {name}");
            }
            assert!(methods.is_empty(), "{path}: no rows for {methods:?}");
        }
    }

    #[test]
    fn what_a_call_switches_off_stays_off_unless_it_makes_the_strategy() {
        let apply = |mode, field: &str| {
            let call = GenerationConfig::new().switch_off(field).unwrap();
            Strategy::of(mode).apply(&call, &GenerationConfig::new())
        };
        assert_eq!(apply(GenerationMode::Dola, "repetition_penalty").unwrap().repetition_penalty, None);
        assert_eq!(apply(GenerationMode::BeamSearch, "do_sample").unwrap().do_sample, Some(false));
        for (mode, field) in [
            (GenerationMode::ContrastiveSearch, "top_k"),
            (GenerationMode::Dola, "dola_layers"),
            (GenerationMode::BeamSearch, "num_beams"),
            (GenerationMode::GroupBeamSearch, "num_beam_groups"),
        ] {
            let error = apply(mode, field).unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{field}` ")), "{error}");
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
