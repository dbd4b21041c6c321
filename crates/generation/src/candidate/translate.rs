//! Drafts of an assistant with another tokenizer.
//!
//! Greedy search encodes again what is new: the text of the row for the assistant, and its draft for the
//! model. Both encode a few tokens before it again as well, since tokens depend on their neighbours, and find
//! with the longest diagonal of equal tokens where the new ones begin. Sampling needs the assistant's
//! probabilities, so it drafts only tokens that both vocabularies have.

use std::collections::HashMap;
use std::sync::Arc;

use rsgen_core::{Result, TokenId, memory};

use super::super::vocabulary::Vocabulary;

/// The vocabularies of a model and of an assistant with other tokens.
pub struct VocabularyMap {
    target: Arc<dyn Vocabulary>,
    assistant: Arc<dyn Vocabulary>,
    /// By the assistant's id.
    to_target: Vec<Option<TokenId>>,
    to_assistant: HashMap<TokenId, TokenId>,
}

impl VocabularyMap {
    /// Whether two vocabularies have the same tokens.
    pub fn is_same(target: &dyn Vocabulary, assistant: &dyn Vocabulary) -> bool {
        let same = |id: usize| {
            let id = TokenId(id as u32);
            target.token(id) == assistant.token(id) && target.token_bytes(id) == assistant.token_bytes(id)
        };
        target.len() == assistant.len() && (0..target.len()).all(same)
    }

    /// The map between two vocabularies.
    ///
    /// Tokens are the same if their texts are, as the tokenizers store them. Where the two store a space in
    /// different ways, such as `▁` and `Ġ`, one at the beginning of a token counts as equal.
    ///
    /// # Errors
    /// When a tokenizer fails.
    pub fn new(target: &Arc<dyn Vocabulary>, assistant: &Arc<dyn Vocabulary>) -> Result<Self> {
        let spaces = [space_of(&**target)?, space_of(&**assistant)?];
        let ids: HashMap<&str, TokenId> = (0..target.len() as u32)
            .filter_map(|id| Some((target.token(TokenId(id))?, TokenId(id))))
            .collect();
        let target_of = |id: usize| {
            let token = assistant.token(TokenId(id as u32))?;
            match spaces {
                [Some(here), Some(there)] if here != there && token.starts_with(there) => {
                    ids.get(&*format!("{here}{}", &token[there.len_utf8()..])).copied()
                }
                _ => ids.get(token).copied(),
            }
        };
        let to_target: Vec<Option<TokenId>> = (0..assistant.len()).map(target_of).collect();
        let pairs =
            to_target.iter().enumerate().filter_map(|(id, target)| Some(((*target)?, TokenId(id as u32))));
        let to_assistant = pairs.collect();
        Ok(Self { target: Arc::clone(target), assistant: Arc::clone(assistant), to_target, to_assistant })
    }

    /// The token of the model that equals one of the assistant.
    pub(crate) fn to_target(&self, token: TokenId) -> Option<TokenId> {
        self.to_target.get(token.index()).copied().flatten()
    }

    /// Removes the assistant's own tokens from its scores.
    pub(crate) fn keep_shared(&self, scores: &mut [f32]) {
        for (id, score) in scores.iter_mut().enumerate() {
            if self.to_target(TokenId(id as u32)).is_none() {
                *score = f32::NEG_INFINITY;
            }
        }
    }

    /// Appends the assistant's probabilities as those of the model's tokens, `[vocab_size]`.
    ///
    /// # Errors
    /// `Capacity` when there is no memory for them.
    pub(crate) fn scatter(&self, probabilities: &[f32], vocab_size: usize, out: &mut Vec<f32>) -> Result<()> {
        let first = out.len();
        memory::reserve(out, vocab_size, "probabilities")?;
        out.resize(first + vocab_size, 0.0);
        for (&probability, target) in probabilities.iter().zip(&self.to_target) {
            if let Some(out) = target.and_then(|target| out[first..].get_mut(target.index())) {
                *out = probability;
            }
        }
        Ok(())
    }

    /// Whether the vocabularies have no token in common.
    pub(crate) fn is_disjoint(&self) -> bool {
        self.to_assistant.is_empty()
    }

    fn encode_for_assistant(&self, ids: &[TokenId], add_special: bool) -> Result<Vec<TokenId>> {
        self.assistant.encode(&self.target.decode(ids, true)?, add_special)
    }

    fn encode_for_target(&self, ids: &[TokenId]) -> Result<Vec<TokenId>> {
        self.target.encode(&self.assistant.decode(ids, true)?, true)
    }
}

/// The character that a tokenizer stores for a space.
fn space_of(vocabulary: &dyn Vocabulary) -> Result<Option<char>> {
    let first = vocabulary.encode(" ", false)?.first().copied();
    Ok(first.and_then(|first| vocabulary.token(first)?.chars().next()))
}

/// The text of a row as the assistant reads it.
pub(crate) struct Translation {
    map: Arc<VocabularyMap>,
    /// The assistant's tokens: the row, and then the draft.
    pub(crate) ids: Vec<TokenId>,
    /// How many of them are the row's.
    row_len: usize,
    /// The number of the model's tokens that `ids` stands for; 0 before the first draft.
    target_len: usize,
}

impl Translation {
    pub(crate) fn new(map: &Arc<VocabularyMap>) -> Self {
        Self { map: Arc::clone(map), ids: Vec::new(), row_len: 0, target_len: 0 }
    }

    /// Encodes the tokens of a row for the assistant, again from `lookbehind` tokens before the new ones.
    ///
    /// # Errors
    /// When a tokenizer fails.
    pub(crate) fn encode_again(&mut self, target_ids: &[TokenId], lookbehind: usize) -> Result<()> {
        if self.target_len > lookbehind {
            let window = self.map.encode_for_assistant(&target_ids[self.target_len - lookbehind..], true)?;
            let known = &self.ids[self.ids.len().saturating_sub(window.len())..];
            match new_tokens(known, &window) {
                None => self.ids.extend(window),
                Some(NewTokens { replaced, replacement, new }) => {
                    if !replacement.is_empty() {
                        self.ids.truncate(self.ids.len() - replaced);
                        self.ids.extend_from_slice(replacement);
                    }
                    self.ids.extend_from_slice(new);
                }
            }
        } else {
            self.ids = self.map.encode_for_assistant(target_ids, true)?;
        }
        self.target_len = target_ids.len();
        self.row_len = self.ids.len();
        Ok(())
    }

    /// The candidates that the draft stands for, encoded from `lookbehind` tokens before it.
    ///
    /// # Errors
    /// When a tokenizer fails.
    pub(crate) fn candidates(&self, target_ids: &[TokenId], lookbehind: usize) -> Result<Vec<TokenId>> {
        let window = self.map.encode_for_target(&self.ids[self.row_len.saturating_sub(lookbehind)..])?;
        let known = &target_ids[target_ids.len().saturating_sub(window.len())..];
        Ok(match new_tokens(known, &window) {
            None => window,
            Some(NewTokens { new, .. }) => new.to_vec(),
        })
    }

    /// Replaces rejected tokens of the last draft by the token that follows the accepted ones; first encodes
    /// the whole row.
    ///
    /// # Errors
    /// When a tokenizer fails.
    pub(crate) fn append_new(&mut self, target_ids: &[TokenId]) -> Result<()> {
        let covered = self.target_len.min(target_ids.len() - 1);
        let is_first = self.target_len == 0;
        self.ids.truncate(self.ids.len() - (self.target_len - covered));
        let new = &target_ids[covered..];
        let shared = match new {
            [token] if !is_first => self.map.to_assistant.get(token),
            _ => None,
        };
        match shared {
            Some(&shared) => self.ids.push(shared),
            None => self.ids.extend(self.map.encode_for_assistant(new, false)?),
        }
        self.target_len = target_ids.len();
        self.row_len = self.ids.len();
        Ok(())
    }

    /// Appends a drafted token that both vocabularies have. Returns the model's; `None` if it is the
    /// assistant's alone.
    pub(crate) fn push_shared(&mut self, token: TokenId) -> Option<TokenId> {
        let target = self.map.to_target(token)?;
        self.ids.push(token);
        self.target_len += 1;
        Some(target)
    }
}

/// How the tokens of a window continue known ones.
struct NewTokens<'a> {
    /// The number of known tokens at the end that `replacement` stands for.
    replaced: usize,
    replacement: &'a [TokenId],
    new: &'a [TokenId],
}

/// Compares known tokens with a window that encodes them again, with more text at its end: the longest run of
/// equal tokens shows how the two lie. `None` if they have no token in common.
fn new_tokens<'a>(known: &[TokenId], window: &'a [TokenId]) -> Option<NewTokens<'a>> {
    let (row, column, len) = longest_diagonal(window, known)?;
    let start = row + len;
    let replaced = known.len() - (column + len);
    let end = (start + replaced).min(window.len());
    Some(NewTokens { replaced, replacement: &window[start..end], new: &window[end..] })
}

/// The first of the longest runs of tokens that are equal in both: where it begins in each, and its length.
fn longest_diagonal(rows: &[TokenId], columns: &[TokenId]) -> Option<(usize, usize, usize)> {
    let mut best: Option<(usize, usize, usize)> = None;
    // The run that ends at each column of the last row.
    let mut runs = vec![0; columns.len() + 1];
    for (row, token) in rows.iter().enumerate() {
        for column in (0..columns.len()).rev() {
            runs[column + 1] = if columns[column] == *token { runs[column] + 1 } else { 0 };
        }
        for (column, &len) in runs[1..].iter().enumerate().filter(|(_, len)| **len > 0) {
            let found = (row + 1 - len, column + 1 - len, len);
            // Of equal length, the one that begins first.
            let is_better = best.is_none_or(|best| (len, best.0, best.1) > (best.2, found.0, found.1));
            if is_better {
                best = Some(found);
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(ids: &[u32]) -> Vec<TokenId> {
        ids.iter().copied().map(TokenId).collect()
    }

    /// A vocabulary of words: each token is a text of the list; the longest that fits is taken.
    struct Words(Vec<&'static str>, char);

    impl Vocabulary for Words {
        fn len(&self) -> usize {
            self.0.len()
        }

        fn token(&self, token: TokenId) -> Option<&str> {
            self.0.get(token.index()).copied()
        }

        fn token_bytes(&self, token: TokenId) -> Option<&[u8]> {
            self.token(token).map(str::as_bytes)
        }

        fn decode(&self, tokens: &[TokenId], _skip_special: bool) -> Result<String> {
            let text: String = tokens.iter().filter_map(|&token| self.token(token)).collect();
            Ok(text.replace(self.1, " "))
        }

        fn encode(&self, text: &str, _add_special: bool) -> Result<Vec<TokenId>> {
            let text = text.replace(' ', self.1.encode_utf8(&mut [0; 4]));
            let (mut rest, mut ids) = (&text[..], Vec::new());
            while !rest.is_empty() {
                let fits = self.0.iter().enumerate().filter(|(_, token)| rest.starts_with(**token));
                let (id, token) = fits.max_by_key(|(_, token)| token.len()).expect("all letters are tokens");
                ids.push(TokenId(id as u32));
                rest = &rest[token.len()..];
            }
            Ok(ids)
        }
    }

    /// `Ġ` and whole words for the model, `▁` and pieces for the assistant.
    fn map() -> Arc<VocabularyMap> {
        let target = Words(vec!["Ġ", "a", "b", "c", "Ġab", "Ġcab", "abc"], 'Ġ');
        let assistant = Words(vec!["c", "b", "a", "▁", "▁ab", "ca", "bc"], '▁');
        let (target, assistant): (Arc<dyn Vocabulary>, Arc<dyn Vocabulary>) =
            (Arc::new(target), Arc::new(assistant));
        assert!(VocabularyMap::is_same(&*target, &*target) && !VocabularyMap::is_same(&*target, &*assistant));
        Arc::new(VocabularyMap::new(&target, &assistant).unwrap())
    }

    #[test]
    fn tokens_of_equal_text_are_shared_whatever_the_sign_of_a_space() {
        let map = map();
        let targets: Vec<Option<u32>> =
            (0..8).map(|id| map.to_target(TokenId(id)).map(|token| token.0)).collect();
        assert_eq!(targets, [Some(3), Some(2), Some(1), Some(0), Some(4), None, None, None]);
        assert!(!map.is_disjoint());
    }

    #[test]
    fn the_longest_diagonal_is_the_first_of_its_length() {
        for (rows, columns, expected) in [
            (&[1, 2, 3][..], &[9, 1, 2][..], Some((0, 1, 2))),
            (&[1, 2], &[3, 4], None),
            (&[5, 1, 5], &[5, 7, 5], Some((0, 0, 1))),
            (&[1, 2, 8, 1, 2], &[1, 2], Some((0, 0, 2))),
            (&[1, 2, 1, 2, 3], &[1, 2, 3], Some((2, 0, 3))),
            (&[1, 1], &[1, 1, 1], Some((0, 0, 2))),
            (&[], &[1], None),
        ] {
            assert_eq!(longest_diagonal(&ids(rows), &ids(columns)), expected, "{rows:?} {columns:?}");
        }
    }

    #[test]
    fn a_window_says_what_it_replaces_and_what_is_new() {
        let (known, window) = (ids(&[1, 2, 3]), ids(&[2, 4, 5]));
        let found = new_tokens(&known, &window).unwrap();
        assert_eq!((found.replaced, found.replacement, found.new), (1, &ids(&[4])[..], &ids(&[5])[..]));
        let window = ids(&[2]);
        let found = new_tokens(&known, &window).unwrap();
        assert_eq!((found.replaced, found.replacement.len(), found.new.len()), (1, 0, 0));
        assert!(new_tokens(&known, &ids(&[7])).is_none());
    }

    #[test]
    fn a_row_is_encoded_again_from_a_few_tokens_before_the_new_ones() {
        let map = map();
        for lookbehind in [0, 1, 2, 10] {
            let mut translation = Translation::new(&map);
            // " ab cab"
            let row = ids(&[4, 5]);
            translation.encode_again(&row, lookbehind).unwrap();
            assert_eq!(translation.ids, ids(&[4, 3, 5, 1]));
            // The draft "bc ab", of which the model takes "b" and then "a".
            translation.ids.extend(ids(&[6, 4]));
            assert_eq!(translation.candidates(&row, 4).unwrap(), ids(&[2, 3, 4]), "lookbehind {lookbehind}");
            translation.encode_again(&ids(&[4, 5, 2, 1]), lookbehind).unwrap();
            let text = map.assistant.decode(&translation.ids, true).unwrap();
            assert!(text.ends_with('a'), "{text:?}, lookbehind {lookbehind}");
            if lookbehind > 1 {
                assert_eq!(text, " ab cabba");
            }
        }
    }

    #[test]
    fn a_draft_of_shared_tokens_loses_those_that_were_rejected() {
        let map = map();
        let mut translation = Translation::new(&map);
        // " ab"
        translation.append_new(&ids(&[4])).unwrap();
        assert_eq!(translation.ids, ids(&[4]));
        assert_eq!(translation.push_shared(TokenId(1)), Some(TokenId(2)));
        assert_eq!(translation.push_shared(TokenId(0)), Some(TokenId(3)));
        assert_eq!(translation.push_shared(TokenId(5)), None);
        // The model takes "b" and then " cab", which the assistant writes with three tokens.
        translation.append_new(&ids(&[4, 2, 5])).unwrap();
        assert_eq!(translation.ids, ids(&[4, 1, 3, 5, 1]));
        // Nothing is accepted of one more draft.
        translation.push_shared(TokenId(2));
        translation.append_new(&ids(&[4, 2, 5, 3])).unwrap();
        assert_eq!(translation.ids, ids(&[4, 1, 3, 5, 1, 0]));
    }
}
