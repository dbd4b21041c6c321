//! Splits prompts by the regular expressions of a tokenizer.json, in bounded time.
//!
//! The expressions of real tokenizers need look-ahead, so they run on a backtracking engine, where a hostile one
//! takes exponential time. The `tokenizers` crate then silently treats the rest as unmatched and gives wrong tokens.
//! Here it is an error, and so is a search that takes too long for the length of the text. All other pre-tokenizers
//! are the crate's own.

use std::time::{Duration, Instant};

use fancy_regex::{Regex, RegexBuilder};
use serde::{Deserialize, Deserializer};
use tokenizers::pattern::{Invert, Pattern};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::metaspace::Metaspace;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{Offsets, PreTokenizedString, PreTokenizer, SplitDelimiterBehavior};

use super::budget::Budget;

/// The most backtracking steps of one search. Real expressions take steps in proportion to the text.
const MAX_BACKTRACKS: usize = 10_000_000;
/// The most time of a search in any text, and in addition for each of its bytes: a hundred times what real
/// expressions take.
const MAX_TIME: Duration = Duration::from_secs(2);
const MAX_TIME_PER_BYTE: Duration = Duration::from_micros(10);

/// The `pre_tokenizer` of a tokenizer.json.
#[derive(Debug, Clone)]
pub(super) enum Splitter {
    /// `Split` by a regular expression.
    Bounded { regex: BoundedRegex, behavior: SplitDelimiterBehavior, invert: bool },
    /// One after the other.
    Sequence(Vec<Splitter>),
    /// Any other kind.
    Other(PreTokenizerWrapper),
}

/// A regular expression with bounded searches.
#[derive(Debug, Clone)]
pub(super) struct BoundedRegex(Regex);

impl TryFrom<PreTokenizerWrapper> for Splitter {
    type Error = fancy_regex::Error;

    fn try_from(pre_tokenizer: PreTokenizerWrapper) -> Result<Self, Self::Error> {
        match pre_tokenizer {
            PreTokenizerWrapper::Split(Split {
                pattern: SplitPattern::Regex(regex),
                behavior,
                invert,
                ..
            }) => {
                let regex = RegexBuilder::new(&regex).backtrack_limit(MAX_BACKTRACKS).build()?;
                Ok(Self::Bounded { regex: BoundedRegex(regex), behavior, invert })
            }
            PreTokenizerWrapper::Sequence(sequence) => {
                sequence.into_iter().map(Self::try_from).collect::<Result<_, _>>().map(Self::Sequence)
            }
            other => Ok(Self::Other(other)),
        }
    }
}

impl From<Metaspace> for Splitter {
    fn from(metaspace: Metaspace) -> Self {
        Self::Other(metaspace.into())
    }
}

impl<'de> Deserialize<'de> for Splitter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::try_from(PreTokenizerWrapper::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

impl PreTokenizer for Splitter {
    fn pre_tokenize(&self, text: &mut PreTokenizedString) -> tokenizers::Result<()> {
        self.split(text, &Budget::new(&mut || false))
    }
}

impl Splitter {
    /// Splits a text within a budget.
    pub(super) fn split(&self, text: &mut PreTokenizedString, budget: &Budget<'_>) -> tokenizers::Result<()> {
        match self {
            Self::Bounded { regex, behavior, invert: false } => {
                text.split(|_, part| part.split(&Search { regex, budget }, *behavior))
            }
            Self::Bounded { regex, behavior, invert: true } => {
                text.split(|_, part| part.split(Invert(&Search { regex, budget }), *behavior))
            }
            Self::Sequence(splitters) => {
                splitters.iter().try_for_each(|splitter| splitter.split(text, budget))
            }
            Self::Other(other) => other.pre_tokenize(text),
        }
    }
}

/// A search within a budget.
struct Search<'a, 'b> {
    regex: &'a BoundedRegex,
    budget: &'a Budget<'b>,
}

impl Pattern for &Search<'_, '_> {
    fn find_matches(&self, inside: &str) -> tokenizers::Result<Vec<(Offsets, bool)>> {
        self.regex.parts(inside, self.budget)
    }
}

impl BoundedRegex {
    /// The parts of `inside`, each with whether it is a match.
    fn parts(&self, inside: &str, budget: &Budget<'_>) -> tokenizers::Result<Vec<(Offsets, bool)>> {
        let too_long = || format!("the regular expression {:?} takes too long on this text", self.0.as_str());
        let started = Instant::now();
        let allowed = MAX_TIME + MAX_TIME_PER_BYTE * u32::try_from(inside.len()).unwrap_or(u32::MAX);
        let mut parts = Vec::new();
        let mut end = 0;
        for found in self.0.find_iter(inside) {
            let found = found.map_err(|error| format!("{}: {error}", too_long()))?;
            budget.work(found.end() - end)?;
            if started.elapsed() > allowed {
                return Err(too_long().into());
            }
            if found.start() > end {
                parts.push(((end, found.start()), false));
            }
            parts.push(((found.start(), found.end()), true));
            end = found.end();
        }
        if end < inside.len() || inside.is_empty() {
            parts.push(((end, inside.len()), false));
        }
        Ok(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
    /// Takes 2^18 steps at each `a`, and then matches.
    const SLOW: &str = r"(?:a|aa){18}b(?!\S)|a";

    fn splitter(regex: &str, invert: bool) -> (Splitter, PreTokenizerWrapper) {
        let split = |pattern: &str| {
            Split::new(SplitPattern::Regex(pattern.into()), SplitDelimiterBehavior::Isolated, invert)
        };
        let split = PreTokenizerWrapper::from(split(regex).unwrap());
        (split.clone().try_into().unwrap(), split)
    }

    fn pieces(pre_tokenizer: &impl PreTokenizer, text: &str) -> tokenizers::Result<Vec<String>> {
        let mut parts = PreTokenizedString::from(text);
        pre_tokenizer.pre_tokenize(&mut parts)?;
        let splits = parts.get_splits(tokenizers::OffsetReferential::Original, tokenizers::OffsetType::Byte);
        Ok(splits.into_iter().map(|(piece, _, _)| piece.to_owned()).collect())
    }

    #[test]
    fn prompts_are_split_as_the_crate_splits_them() {
        for regex in [GPT2, "", "x*", "b", r"\s+(?!\S)", "(?=b)"] {
            for invert in [false, true] {
                let (ours, theirs) = splitter(regex, invert);
                for text in ["", "b", "abc b", "  a   b's  ", "Ünï 1234 x…\n\n\ny", "a".repeat(3000).as_str()]
                {
                    assert_eq!(
                        pieces(&ours, text).unwrap(),
                        pieces(&theirs, text).unwrap(),
                        "{regex:?} {text:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_search_without_end_is_an_error_in_time() {
        let started = Instant::now();
        let error = pieces(&splitter(SLOW, false).0, &"a".repeat(5000)).unwrap_err().to_string();
        assert!(error.contains("takes too long on this text") && error.contains("aa"), "{error}");
        assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    }

    #[test]
    fn a_search_that_gives_up_is_an_error_and_no_other_split() {
        let (ours, theirs) = splitter(r"(?:a|aa){40}b(?!\S)|a| ", false);
        let text = format!("a {}", "a".repeat(60));
        assert_eq!(pieces(&theirs, &text).unwrap().len(), 3, "the crate goes on with the rest as one piece");
        let error = pieces(&ours, &text).unwrap_err().to_string();
        assert!(error.contains("takes too long"), "{error}");
    }
}
