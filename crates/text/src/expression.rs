//! The regular expressions of a tokenizer.json, which split a text into matches and what is between them.
//!
//! The expressions of real tokenizers differ from those of a linear-time engine in one point, a look-ahead at
//! their end: white space leaves its last character to the word that follows. That rule is applied here, so
//! that the rest runs in linear time. Other look-around backtracks. The `tokenizers` crate treats the rest of
//! a text as unmatched when such a search gives up, and gives wrong tokens; here it is an error.

use fancy_regex::{Regex, RegexBuilder};
use tokenizers::Offsets;

use super::worker;
use rsgen_core::error::{Error, Result};
use rsgen_core::json::shown;

/// The end of the expressions that GPT-2 and its successors split by.
pub(super) const LOOK_AHEAD: &str = r"|\s+(?!\S)|\s+";
/// The largest compiled expression: those of real tokenizers take half of it.
const MAX_COMPILED_BYTES: usize = 1 << 20;
/// The most backtracking steps of one search. Real expressions take steps in proportion to the text.
const MAX_BACKTRACKS: usize = 10_000_000;
/// What a regular expression has that the engine without backtracking does not know.
const BACKTRACKING: [&str; 9] = ["(?=", "(?!", "(?<=", "(?<!", "(?>", "++", "*+", "?+", r"\G"];

/// A regular expression.
#[derive(Debug, Clone)]
pub(super) struct Expression {
    source: String,
    regex: Regex,
    /// Of an expression that ends with [`LOOK_AHEAD`], what is before that. `regex` then ends with `\s+`.
    words: Option<Regex>,
}

impl Expression {
    /// Compiles an expression.
    ///
    /// # Errors
    /// `Load` when it is not valid, or too large.
    pub(super) fn new(source: &str) -> Result<Self> {
        let words = source.strip_suffix(LOOK_AHEAD).filter(|words| !words.ends_with('\\'));
        if let Some(words) = words
            && !backtracks(words)
            && let (Ok(regex), Ok(words)) = (compile(&format!(r"(?:{words})|\s+")), compile(words))
        {
            return Ok(Self { source: source.to_owned(), regex, words: Some(words) });
        }
        let regex = compile(source).map_err(|error| {
            let rule = format!(
                "a regular expression must be valid and compile to at most {MAX_COMPILED_BYTES} bytes"
            );
            Error::load(format!("{rule}, found {}", shown(&source.into()))).with_source(error)
        })?;
        Ok(Self { source: source.to_owned(), regex, words: None })
    }

    /// An expression that matches only this text.
    pub(super) fn of_text(text: &str) -> Result<Self> {
        Self::new(&fancy_regex::escape(text))
    }

    /// Whether it matches the empty text.
    pub(super) fn matches_empty(&self) -> bool {
        !matches!(self.first("", 0), Ok(None))
    }

    /// Whether a search may take more than linear time.
    pub(super) fn backtracks(&self) -> bool {
        self.words.is_none() && backtracks(&self.source)
    }

    /// The parts of a text, each with whether it is a match.
    ///
    /// # Errors
    /// `Input` when a search backtracks without end; `Cancelled` on a worker that was left.
    pub(super) fn parts(&self, text: &str) -> Result<Vec<(Offsets, bool)>> {
        let mut parts = Vec::new();
        let (mut end, mut at) = (0, 0);
        let mut last_match = None;
        while at <= text.len() {
            let Some((start, stop)) = self.first(text, at)? else { break };
            worker::check()?;
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
        let find = |regex: &Regex, at: usize| -> Result<Option<Offsets>> {
            let found = regex.find_from_pos(text, at).map_err(|error| self.too_long().with_source(error))?;
            Ok(found.map(|found| (found.start(), found.end())))
        };
        let Some((start, end)) = find(&self.regex, at)? else { return Ok(None) };
        let found = &text[start..end];
        let (Some(words), Some((last, _))) = (&self.words, found.char_indices().next_back()) else {
            return Ok(Some((start, end)));
        };
        let may_split = last > 0 && end < text.len() && found.chars().all(char::is_whitespace);
        // White space that is a word keeps its last character.
        if !may_split || find(words, start)?.is_some_and(|(word, _)| word == start) {
            return Ok(Some((start, end)));
        }
        Ok(Some((start, start + last)))
    }

    #[cold]
    fn too_long(&self) -> Error {
        Error::input(format!(
            "the regular expression {} of the tokenizer takes too long on this text; shorten it, or break its long runs \
             of like characters",
            shown(&self.source.as_str().into())
        ))
    }
}

fn compile(source: &str) -> Result<Regex, Box<fancy_regex::Error>> {
    let mut builder = RegexBuilder::new(source);
    builder.backtrack_limit(MAX_BACKTRACKS).delegate_size_limit(MAX_COMPILED_BYTES).build().map_err(Box::new)
}

/// Whether an expression needs the engine that backtracks. One that does not may be taken for one that does.
fn backtracks(source: &str) -> bool {
    let is_reference =
        |pair: &[u8]| pair[0] == b'\\' && (pair[1].is_ascii_digit() || b"kK".contains(&pair[1]));
    BACKTRACKING.iter().any(|sign| source.contains(sign)) || source.as_bytes().windows(2).any(is_reference)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_expressions_split_long_runs_in_linear_time() {
        const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
        let regex = Expression::new(LLAMA3).unwrap();
        assert!(!regex.backtracks());
        for (unit, expected) in [("a", 1), (" ", 1), ("!", 1), ("\n", 1), ("\t\n", 1)] {
            let text = unit.repeat(1_200_000 / unit.len());
            assert_eq!(regex.parts(&text).unwrap().len(), expected, "{unit:?}");
        }
        let alternating = " \n".repeat(200) + &"  a".repeat(200_000);
        assert_eq!(regex.parts(&alternating).unwrap().len(), 1 + 2 * 200_000);
    }

    #[test]
    fn a_large_expression_is_refused() {
        for hostile in [r"(?:\p{L}{100}){100}", r"(?:\p{L}{50}){50}(?!b)"] {
            let error = Expression::new(hostile).unwrap_err().to_string();
            assert!(error.contains("at most 1048576 bytes"), "{error}");
        }
    }
}
