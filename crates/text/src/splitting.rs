//! The pre-tokenizer of a tokenizer.json, one stage after the other and within a budget.
//!
//! Regular expressions are searched in bounded time. All else is the `tokenizers` crate's own.

use serde::{Deserialize, Deserializer};
use tokenizers::normalizers::ByteLevel;
use tokenizers::pattern::{Invert, Pattern};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::metaspace::Metaspace;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::tokenizer::normalizer::Range;
use tokenizers::{
    NormalizedString, Normalizer, OffsetReferential, OffsetType, Offsets, PreTokenizedString, PreTokenizer,
    SplitDelimiterBehavior,
};

use super::bounded_regex::BoundedRegex;
use super::budget::{Budget, check_length};
use rsgen_core::error::{Error, Result};

/// What `ByteLevel` splits by.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// The `pre_tokenizer` of a tokenizer.json.
#[derive(Debug, Clone)]
pub(super) enum Splitter {
    /// `Split` by a regular expression.
    Split {
        regex: BoundedRegex,
        behavior: SplitDelimiterBehavior,
        invert: bool,
    },
    ByteLevel {
        add_prefix_space: bool,
        regex: Option<BoundedRegex>,
    },
    /// One after the other.
    Sequence(Vec<Splitter>),
    /// Any other kind.
    Other(PreTokenizerWrapper),
}

impl TryFrom<PreTokenizerWrapper> for Splitter {
    type Error = Error;

    fn try_from(pre_tokenizer: PreTokenizerWrapper) -> Result<Self> {
        Ok(match pre_tokenizer {
            PreTokenizerWrapper::Split(Split {
                pattern: SplitPattern::Regex(regex),
                behavior,
                invert,
                ..
            }) => Self::Split { regex: BoundedRegex::new(&regex)?, behavior, invert },
            PreTokenizerWrapper::ByteLevel(byte_level) => Self::ByteLevel {
                add_prefix_space: byte_level.add_prefix_space,
                regex: byte_level.use_regex.then(|| BoundedRegex::new(GPT2)).transpose()?,
            },
            PreTokenizerWrapper::Sequence(sequence) => {
                Self::Sequence(sequence.into_iter().map(Self::try_from).collect::<Result<_>>()?)
            }
            other => Self::Other(other),
        })
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
        if let Self::Sequence(splitters) = self {
            return splitters.iter().try_for_each(|splitter| splitter.split(text, budget));
        }
        let parts = text.get_splits(OffsetReferential::Normalized, OffsetType::None);
        check_length(parts.iter().map(|(part, ..)| self.longest(part)).sum())?;
        match self {
            Self::Split { regex, behavior, invert: false } => {
                text.split(|_, part| pieces(part, &Search { regex, budget }, *behavior, budget))?;
            }
            Self::Split { regex, behavior, invert: true } => {
                text.split(|_, part| pieces(part, Invert(&Search { regex, budget }), *behavior, budget))?;
            }
            Self::ByteLevel { add_prefix_space, regex } => {
                text.split(|_, mut part| {
                    if *add_prefix_space && !part.get().starts_with(' ') {
                        part.prepend(" ");
                    }
                    match regex {
                        Some(regex) => {
                            let isolated = SplitDelimiterBehavior::Isolated;
                            pieces(part, &Search { regex, budget }, isolated, budget)
                        }
                        None => Ok(Box::new(std::iter::once(part)) as Pieces<'_>),
                    }
                })?;
                text.normalize(|part| {
                    budget.work(part.get().len())?;
                    ByteLevel.normalize(part)
                })?;
            }
            Self::Other(other) => other.pre_tokenize(text)?,
            Self::Sequence(_) => {}
        }
        Ok(budget.check()?)
    }

    /// The most bytes that a part has afterwards.
    fn longest(&self, part: &str) -> usize {
        match self {
            Self::ByteLevel { .. } => {
                let long = part.bytes().filter(|byte| !matches!(byte, b'!'..=b'~')).count();
                part.len() + long + " ".len() + 1
            }
            Self::Other(PreTokenizerWrapper::Metaspace(metaspace)) => {
                let spaces = part.bytes().filter(|&byte| byte == b' ').count();
                part.len() + (spaces + 1) * metaspace.get_replacement().len_utf8()
            }
            _ => part.len(),
        }
    }
}

type Pieces<'a> = Box<dyn Iterator<Item = NormalizedString> + 'a>;

/// [`NormalizedString::split`], one piece at a time where the behavior allows it: the pieces end early when the caller gives
/// up.
fn pieces<'a>(
    part: NormalizedString,
    pattern: impl Pattern,
    behavior: SplitDelimiterBehavior,
    budget: &'a Budget<'_>,
) -> tokenizers::Result<Pieces<'a>> {
    let removes_matches = match behavior {
        SplitDelimiterBehavior::Isolated => false,
        SplitDelimiterBehavior::Removed => true,
        _ => return Ok(Box::new(part.split(pattern, behavior)?.into_iter())),
    };
    let ranges = pattern.find_matches(part.get())?.into_iter();
    let ranges = ranges.filter(move |&(_, is_match)| !(removes_matches && is_match));
    Ok(Box::new(ranges.map_while(move |((start, end), _)| {
        budget.work(end - start).ok()?;
        part.slice(Range::Normalized(start..end))
    })))
}

/// A search within a budget.
struct Search<'a, 'b> {
    regex: &'a BoundedRegex,
    budget: &'a Budget<'b>,
}

impl Pattern for &Search<'_, '_> {
    fn find_matches(&self, inside: &str) -> tokenizers::Result<Vec<(Offsets, bool)>> {
        Ok(self.regex.parts(inside, self.budget)?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::bounded_regex::LOOK_AHEAD;
    use super::*;
    use std::time::{Duration, Instant};

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
        let words = [r"\s*[\r\n]+", r" ?\p{L}+", r"\s\p{N}|[^\s\p{L}]", "x*", r"\|", ""]
            .map(|words| format!("{words}{LOOK_AHEAD}"));
        let others = [GPT2, "", "x*", "b", r"\s+(?!\S)", "(?=b)", r"\|\s+(?!\S)|\s+"].map(str::to_owned);
        for regex in words.iter().chain(&others) {
            for invert in [false, true] {
                let (ours, theirs) = splitter(regex, invert);
                for text in [
                    "",
                    "b",
                    "abc b",
                    "  a   b's  ",
                    "Ünï 1234 x…\n\n\ny",
                    " \u{a0} \r\n \t x|| ",
                    "a".repeat(3000).as_str(),
                ] {
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
    fn byte_level_splits_as_the_crate_does() {
        for (add_prefix_space, use_regex) in [(false, false), (false, true), (true, false), (true, true)] {
            let theirs =
                tokenizers::pre_tokenizers::byte_level::ByteLevel::new(add_prefix_space, true, use_regex);
            let ours = Splitter::try_from(PreTokenizerWrapper::from(theirs)).unwrap();
            for text in ["", "b", " b", "  a   b's  ", "Ünï 1234 x…\n\n\ny \u{a0} \u{a0}x", "日本 語"]
            {
                assert_eq!(pieces(&ours, text).unwrap(), pieces(&theirs, text).unwrap(), "{text:?}");
            }
        }
    }

    #[test]
    fn searching_and_cutting_both_end_at_an_interrupt() {
        let split = |most_polls: usize| {
            let mut polls = 0;
            let mut interrupted = || {
                polls += 1;
                polls == most_polls
            };
            let mut text = PreTokenizedString::from("one two ".repeat(20_000));
            let result = splitter(r" ?\p{L}+", false).0.split(&mut text, &Budget::new(&mut interrupted));
            (polls, result.err().map(|error| error.to_string()))
        };
        let (polls, error) = split(usize::MAX);
        assert_eq!(error, None);
        assert!(polls >= 2 * (160_000 / 4096), "{polls} polls");
        for most in [1, 5, polls / 2, polls - 5, polls] {
            let (ended_at, error) = split(most);
            assert_eq!(ended_at, most);
            assert!(error.is_some_and(|error| error.contains("cancelled")), "at poll {most}");
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
