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
}

impl GenerationMode {
    /// The mode that the fields of a merged configuration select.
    pub fn of(config: &GenerationConfig) -> Self {
        if config.do_sample == Some(true) { Self::Sample } else { Self::Greedy }
    }

    /// Whether tokens are drawn at random.
    pub const fn samples(self) -> bool {
        matches!(self, Self::Sample)
    }

    /// transformers' name: `greedy_search` or `sample`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Greedy => "greedy_search",
            Self::Sample => "sample",
        }
    }
}

impl fmt::Display for GenerationMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn do_sample_alone_selects_sampling() {
        let config = GenerationConfig::new;
        assert_eq!(GenerationMode::of(&config()), GenerationMode::Greedy);
        assert_eq!(GenerationMode::of(&config().temperature(0.5).top_p(0.9)), GenerationMode::Greedy);
        assert_eq!(GenerationMode::of(&config().do_sample(false)), GenerationMode::Greedy);
        assert_eq!(GenerationMode::of(&config().do_sample(true)), GenerationMode::Sample);
    }
}
