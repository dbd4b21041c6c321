//! The regular expressions of a tokenizer.json, searched in bounded time.
//!
//! The expressions of real tokenizers differ from those of a linear-time engine in one point, a look-ahead at their
//! end: white space leaves its last character to the word that follows. That rule is applied here, and the rest runs
//! in linear time. Other look-around runs on a backtracking engine, where a hostile expression takes exponential time.
//! The `tokenizers` crate then silently treats the rest of a text as unmatched and gives wrong tokens. Here it is an
//! error, and so is a search that takes too long for the length of the text.

use std::time::{Duration, Instant};

use fancy_regex::RegexBuilder;
use regex_automata::Input;
use regex_automata::meta::{Config, Regex};
use tokenizers::Offsets;

use super::budget::Budget;
use rsgen_core::error::{Error, Result};
use rsgen_core::json::shown;

/// The end of the expressions that GPT-2 and its successors split by.
pub(super) const LOOK_AHEAD: &str = r"|\s+(?!\S)|\s+";
/// The largest compiled expression: those of real tokenizers take half of it.
const MAX_COMPILED_BYTES: usize = 1 << 20;
/// The most backtracking steps of one search. Real expressions take steps in proportion to the text.
const MAX_BACKTRACKS: usize = 10_000_000;
/// The most time of a search in any text, and in addition for each of its bytes: many times what real expressions take.
const MAX_TIME: Duration = Duration::from_secs(2);
const MAX_TIME_PER_BYTE: Duration = Duration::from_micros(2);

/// A regular expression with bounded searches.
#[derive(Debug, Clone)]
pub(super) struct BoundedRegex {
    source: String,
    engine: Engine,
}

#[derive(Debug, Clone)]
enum Engine {
    /// With `splits_spaces`, the second of two patterns matches white space, which leaves its last character to what
    /// follows.
    Linear {
        regex: Regex,
        splits_spaces: bool,
    },
    Backtracking(fancy_regex::Regex),
}

impl BoundedRegex {
    /// Compiles an expression.
    ///
    /// # Errors
    /// `Load` when it is not valid, or too large.
    pub(super) fn new(source: &str) -> Result<Self> {
        let linear = |patterns: &[&str]| {
            let config = Config::new().nfa_size_limit(Some(MAX_COMPILED_BYTES));
            Regex::builder().configure(config).build_many(patterns).ok()
        };
        let words = source.strip_suffix(LOOK_AHEAD).filter(|words| !words.ends_with('\\'));
        let engine = if let Some(regex) = words.and_then(|words| linear(&[words, r"\s+"])) {
            Engine::Linear { regex, splits_spaces: true }
        } else if let Some(regex) = linear(&[source]) {
            Engine::Linear { regex, splits_spaces: false }
        } else {
            let regex = RegexBuilder::new(source)
                .backtrack_limit(MAX_BACKTRACKS)
                .delegate_size_limit(MAX_COMPILED_BYTES)
                .build();
            Engine::Backtracking(regex.map_err(|error| {
                let rule = format!(
                    "a regular expression must be valid and compile to at most {MAX_COMPILED_BYTES} bytes"
                );
                Error::load(format!("{rule}, found {}", shown(&source.into()))).with_source(error)
            })?)
        };
        Ok(Self { source: source.to_owned(), engine })
    }

    /// An expression that matches only this text.
    pub(super) fn of_text(text: &str) -> Result<Self> {
        Self::new(&fancy_regex::escape(text))
    }

    /// Whether it needs no look-around and no back-reference.
    pub(super) fn is_linear(&self) -> bool {
        matches!(self.engine, Engine::Linear { .. })
    }

    /// Whether it matches the empty text.
    pub(super) fn matches_empty(&self) -> bool {
        !matches!(self.first("", 0), Ok(None))
    }

    /// The parts of a text, each with whether it is a match.
    ///
    /// # Errors
    /// `Input` when it takes too long; `Cancelled`.
    pub(super) fn parts(&self, text: &str, budget: &Budget<'_>) -> Result<Vec<(Offsets, bool)>> {
        let started = Instant::now();
        let allowed = MAX_TIME + MAX_TIME_PER_BYTE * u32::try_from(text.len()).unwrap_or(u32::MAX);
        let mut parts = Vec::new();
        let (mut end, mut at) = (0, 0);
        let mut last_match = None;
        while at <= text.len() {
            let Some((start, stop)) = self.first(text, at)? else { break };
            budget.work(stop - end)?;
            if started.elapsed() > allowed {
                return Err(self.too_long());
            }
            at = stop;
            if start == stop {
                at += text[stop..].chars().next().map_or(1, char::len_utf8);
                // No empty match follows a match at once.
                if last_match == Some(stop) {
                    continue;
                }
            }
            last_match = Some(stop);
            if start > end {
                parts.push(((end, start), false));
            }
            parts.push(((start, stop), true));
            end = stop;
        }
        if end < text.len() || text.is_empty() {
            parts.push(((end, text.len()), false));
        }
        Ok(parts)
    }

    /// The first match that begins at `at` or later.
    fn first(&self, text: &str, at: usize) -> Result<Option<Offsets>> {
        let (regex, splits_spaces) = match &self.engine {
            Engine::Linear { regex, splits_spaces } => (regex, *splits_spaces),
            Engine::Backtracking(regex) => {
                let found =
                    regex.find_from_pos(text, at).map_err(|error| self.too_long().with_source(error))?;
                return Ok(found.map(|found| (found.start(), found.end())));
            }
        };
        let Some(found) = regex.search(&Input::new(text).range(at..)) else { return Ok(None) };
        let (start, mut end) = (found.start(), found.end());
        if splits_spaces && found.pattern().as_usize() == 1 && end < text.len() {
            let last = text[start..end].char_indices().next_back().map_or(0, |(last, _)| start + last);
            end = if last > start { last } else { end };
        }
        Ok(Some((start, end)))
    }

    #[cold]
    fn too_long(&self) -> Error {
        Error::input(format!(
            "the regular expression {} of the tokenizer takes too long on this text; shorten it, or break its long runs of \
             like characters",
            shown(&self.source.as_str().into())
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(regex: &BoundedRegex, text: &str) -> Result<Vec<(Offsets, bool)>> {
        regex.parts(text, &Budget::new(&mut || false))
    }

    #[test]
    fn real_expressions_split_long_runs_in_linear_time() {
        const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
        let regex = BoundedRegex::new(LLAMA3).unwrap();
        for (unit, expected) in [("a", 1), (" ", 1), ("!", 1), ("\n", 1), ("\t\n", 1)] {
            let text = unit.repeat(1_200_000 / unit.len());
            assert_eq!(parts(&regex, &text).unwrap().len(), expected, "{unit:?}");
        }
    }

    #[test]
    fn a_large_expression_is_refused() {
        for hostile in [r"(?:\p{L}{100}){100}", r"(?:\p{L}{50}){50}(?!b)"] {
            let error = BoundedRegex::new(hostile).unwrap_err().to_string();
            assert!(error.contains("at most 1048576 bytes"), "{error}");
        }
    }
}
