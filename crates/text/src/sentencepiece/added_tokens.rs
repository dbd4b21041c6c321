//! Tokens that are matched in a text before the model splits it: transformers' added tokens, special ones
//! included.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use tokenizers::AddedToken;

use super::prefix_trie::PrefixTrie;
use crate::budget::Budget;
use crate::tokenizer::MAX_TOKEN_ID;
use rsgen_core::error::{Error, Result};
use rsgen_core::json::shown;

/// Added tokens by id, and a matcher for them.
#[derive(Debug)]
pub(crate) struct AddedTokens {
    by_id: BTreeMap<u32, AddedToken>,
    by_content: HashMap<String, u32>,
    trie: PrefixTrie,
}

/// A part of a text.
pub(crate) enum Part<'t> {
    Token(u32),
    Text(Cow<'t, str>),
}

/// Checks the ids of added tokens.
pub(super) fn check_ids(by_id: &BTreeMap<u32, AddedToken>) -> Result<()> {
    match by_id.last_key_value().filter(|&(&id, _)| id > MAX_TOKEN_ID) {
        Some((highest, token)) => Err(Error::load(format!(
            "added token {}: token ids must be at most {MAX_TOKEN_ID}, found {highest}",
            shown(&token.content.as_str().into())
        ))),
        None => Ok(()),
    }
}

impl AddedTokens {
    pub(crate) fn new(by_id: BTreeMap<u32, AddedToken>) -> Self {
        let by_content: HashMap<String, u32> =
            by_id.iter().map(|(&id, token)| (token.content.clone(), id)).collect();
        let trie = PrefixTrie::new(by_content.iter().map(|(content, &id)| (content.as_str(), id)));
        Self { by_id, by_content, trie }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &AddedToken)> {
        self.by_id.iter().map(|(&id, token)| (id, token))
    }

    pub(crate) fn id(&self, content: &str) -> Option<u32> {
        self.by_content.get(content).copied()
    }

    /// Splits a text at its added tokens. A token may include the white space beside it, or match only whole
    /// words.
    pub(crate) fn split<'t>(
        &self,
        text: &'t str,
        budget: &Budget<'_>,
    ) -> Result<impl Iterator<Item = Part<'t>>> {
        let mut parts = self.cut(text, budget)?;
        for index in 0..parts.len() {
            budget.work(parts[index].len())?;
            let Some(token) = self.token(&parts[index]) else { continue };
            let (strips_right, strips_left, single_word) = (token.rstrip, token.lstrip, token.single_word);
            let (left, right) = (index.wrapping_sub(1), index + 1);
            let touches = |part: Option<&Cow<'_, str>>, side: fn(&str) -> Option<char>| {
                part.and_then(|part| side(part)).is_some_and(|char| char != ' ')
            };
            let touches_left = touches(parts.get(left), |part| part.chars().next_back());
            let touches_right = touches(parts.get(right), |part| part.chars().next());
            if strips_right && let Some(right) = parts.get_mut(right) {
                replace(right, |text| text.trim_start_matches(is_space));
            }
            if strips_left && let Some(left) = parts.get_mut(left) {
                replace(left, |text| text.trim_end_matches(is_space));
            }
            if single_word && touches_left {
                let token = std::mem::take(&mut parts[index]);
                parts[left].to_mut().push_str(&token);
            } else if single_word && touches_right {
                let token = std::mem::take(&mut parts[index]);
                parts[right].to_mut().insert_str(0, &token);
            }
        }
        Ok(parts.into_iter().filter(|part| !part.is_empty()).map(|part| match self.id(&part) {
            Some(id) => Part::Token(id),
            None => Part::Text(part),
        }))
    }

    /// The parts of a text, each a token or plain text. Of overlapping tokens the first wins, then the
    /// longest.
    fn cut<'t>(&self, text: &'t str, budget: &Budget<'_>) -> Result<Vec<Cow<'t, str>>> {
        let mut parts = Vec::new();
        let (mut done, mut at) = (0, 0);
        while at < text.len() {
            budget.work(0)?;
            if let Some((length, _)) = self.trie.longest_prefix(&text.as_bytes()[at..]) {
                if done < at {
                    parts.push(Cow::Borrowed(&text[done..at]));
                }
                parts.push(Cow::Borrowed(&text[at..at + length]));
                at += length;
                done = at;
            } else {
                at += 1;
            }
        }
        if done < text.len() {
            parts.push(Cow::Borrowed(&text[done..]));
        }
        Ok(parts)
    }

    fn token(&self, content: &str) -> Option<&AddedToken> {
        self.by_id.get(&self.id(content)?)
    }
}

fn replace<'t>(part: &mut Cow<'t, str>, cut: impl for<'a> Fn(&'a str) -> &'a str) {
    *part = match std::mem::take(part) {
        Cow::Borrowed(text) => Cow::Borrowed(cut(text)),
        Cow::Owned(text) => Cow::Owned(cut(&text).to_owned()),
    };
}

/// White space as Python's `str.strip` has it.
pub(crate) fn is_space(char: char) -> bool {
    char.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&char)
}
