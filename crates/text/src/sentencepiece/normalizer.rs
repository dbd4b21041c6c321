//! Normalizes a text before it is split: applies the character map, replaces spaces, and adds the dummy
//! space.

use super::charsmap::Charsmap;
use super::prefix_trie::PrefixTrie;
use crate::budget::{Budget, check_length};
use rsgen_core::error::Result;

/// The character for a space in pieces: U+2581.
pub(super) const SPACE: &str = "▁";

/// The settings of a normalizer. User-defined symbols pass through it unchanged.
#[derive(Debug)]
pub(super) struct Normalizer {
    pub(super) charsmap: Option<Charsmap>,
    pub(super) add_dummy_prefix: bool,
    pub(super) remove_extra_whitespaces: bool,
    pub(super) escape_whitespaces: bool,
    /// The dummy space comes after the text.
    pub(super) whitespace_as_suffix: bool,
}

impl Normalizer {
    /// Normalizes a text.
    pub(super) fn normalize(
        &self,
        text: &str,
        user_defined: &PrefixTrie,
        add_dummy_prefix: bool,
        budget: &Budget<'_>,
    ) -> Result<String> {
        let mut rest = text;
        if self.remove_extra_whitespaces {
            while let (taken, " ") = self.next_part(rest, user_defined) {
                budget.work(taken)?;
                rest = &rest[taken..];
            }
        }
        if rest.is_empty() {
            return Ok(String::new());
        }
        let space = if self.escape_whitespaces { SPACE } else { " " };
        let mut normalized = String::with_capacity(rest.len() + rest.len() / 2 + space.len());
        if add_dummy_prefix && !self.whitespace_as_suffix {
            normalized.push_str(space);
        }
        let mut after_space = self.remove_extra_whitespaces;
        while !rest.is_empty() {
            let (taken, part) = self.next_part(rest, user_defined);
            budget.work(taken)?;
            check_length(normalized.len())?;
            let part = if after_space { part.trim_start_matches(' ') } else { part };
            for (index, words) in part.split(' ').enumerate() {
                if index > 0 {
                    normalized.push_str(space);
                }
                normalized.push_str(words);
            }
            if !part.is_empty() {
                after_space = self.remove_extra_whitespaces && part.ends_with(' ');
            }
            rest = &rest[taken..];
        }
        if self.remove_extra_whitespaces {
            normalized.truncate(normalized.trim_end_matches(space).len());
        }
        if add_dummy_prefix && self.whitespace_as_suffix {
            normalized.push_str(space);
        }
        Ok(normalized)
    }

    /// The number of bytes that the next step consumes, and their replacement: a symbol, a rule's text, or
    /// the unchanged character.
    fn next_part<'a>(&'a self, text: &'a str, user_defined: &PrefixTrie) -> (usize, &'a str) {
        let Some(charsmap) = &self.charsmap else {
            if user_defined.is_empty() && !self.remove_extra_whitespaces {
                return (text.len(), text);
            }
            let length = symbol(text, user_defined).unwrap_or_else(|| character(text));
            return (length, &text[..length]);
        };
        if let Some(length) = symbol(text, user_defined) {
            return (length, &text[..length]);
        }
        charsmap.longest_match(text).unwrap_or_else(|| {
            let length = character(text);
            (length, &text[..length])
        })
    }
}

/// The length of the user-defined symbol that `text` begins with.
pub(super) fn symbol(text: &str, user_defined: &PrefixTrie) -> Option<usize> {
    user_defined.longest_prefix(text.as_bytes()).map(|(length, _)| length)
}

/// The length of the first character; 0 without one.
pub(super) fn character(text: &str) -> usize {
    text.chars().next().map_or(0, char::len_utf8)
}
