//! The pre-tokenizer of a tokenizer.json: the `tokenizers` crate's own, but for its regular expressions,
//! which are searched by `expression`.

use serde::{Deserialize, Deserializer};
use tokenizers::normalizers::ByteLevel;
use tokenizers::pattern::{Invert, Pattern};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{
    NormalizedString, Normalizer as _, OffsetReferential, OffsetType, Offsets, PreTokenizedString,
    PreTokenizer, SplitDelimiterBehavior,
};

use super::budget::check_length;
use super::expression::Expression;
use super::worker;
use rsgen_core::error::{Error, Result};

/// What `ByteLevel` splits by.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// The `pre_tokenizer` of a tokenizer.json.
#[derive(Debug, Clone)]
pub(super) enum Splitter {
    /// `Split` by a regular expression.
    Split {
        regex: Expression,
        behavior: SplitDelimiterBehavior,
        invert: bool,
    },
    ByteLevel {
        add_prefix_space: bool,
        regex: Option<Expression>,
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
            }) => Self::Split { regex: Expression::new(&regex)?, behavior, invert },
            PreTokenizerWrapper::ByteLevel(byte_level) => Self::ByteLevel {
                add_prefix_space: byte_level.add_prefix_space,
                regex: byte_level.use_regex.then(|| Expression::new(GPT2)).transpose()?,
            },
            PreTokenizerWrapper::Sequence(sequence) => {
                Self::Sequence(sequence.into_iter().map(Self::try_from).collect::<Result<_>>()?)
            }
            other => Self::Other(other),
        })
    }
}

impl<'de> Deserialize<'de> for Splitter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::try_from(PreTokenizerWrapper::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

impl PreTokenizer for Splitter {
    fn pre_tokenize(&self, text: &mut PreTokenizedString) -> tokenizers::Result<()> {
        match self {
            Self::Split { regex, behavior, invert: false } => {
                text.split(|_, part| part.split(Search(regex), *behavior))?;
            }
            Self::Split { regex, behavior, invert: true } => {
                text.split(|_, part| part.split(Invert(Search(regex)), *behavior))?;
            }
            Self::ByteLevel { add_prefix_space, regex } => {
                text.split(|_, mut part| {
                    if *add_prefix_space && !part.get().starts_with(' ') {
                        part.prepend(" ");
                    }
                    match regex {
                        Some(regex) => part.split(Search(regex), SplitDelimiterBehavior::Isolated),
                        None => Ok(vec![part]),
                    }
                })?;
                text.normalize(|part: &mut NormalizedString| ByteLevel.normalize(part))?;
            }
            Self::Sequence(splitters) => {
                splitters.iter().try_for_each(|splitter| splitter.pre_tokenize(text))?;
            }
            Self::Other(other) => other.pre_tokenize(text)?,
        }
        Ok(check_parts(text)?)
    }
}

/// Checks between two stages: the length of a text, and that its caller still waits.
pub(super) fn check_parts(text: &PreTokenizedString) -> Result<()> {
    worker::check()?;
    let parts = text.get_splits(OffsetReferential::Normalized, OffsetType::None);
    check_length(parts.iter().map(|(part, ..)| part.len()).sum())
}

/// An expression as the crate's pattern.
struct Search<'a>(&'a Expression);

impl Pattern for Search<'_> {
    fn find_matches(&self, inside: &str) -> tokenizers::Result<Vec<(Offsets, bool)>> {
        Ok(self.0.parts(inside)?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::expression::LOOK_AHEAD;
    use super::*;

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
    fn a_search_that_gives_up_is_an_error_and_no_other_split() {
        let (ours, theirs) = splitter(r"(?:a|aa){40}b(?!\S)|a| ", false);
        let text = format!("a {}", "a".repeat(60));
        assert_eq!(pieces(&theirs, &text).unwrap().len(), 3, "the crate goes on with the rest as one piece");
        let error = pieces(&ours, &text).unwrap_err().to_string();
        assert!(error.contains("takes too long"), "{error}");
    }
}
