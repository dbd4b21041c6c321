//! Cuts long words where byte-pair encoding never merges, so that a long text is encoded piece by piece.
//!
//! A merge across a border makes a token that holds the two characters beside it. So a border between two characters
//! that follow each other in no token of the vocabulary changes nothing, as long as both are tokens themselves.

use std::collections::{HashMap, HashSet};

use tokenizers::models::bpe::BPE;

/// The shortest piece that is cut off.
const MIN_PIECE_BYTES: usize = 16 << 10;

/// The borders at which a word may be cut.
#[derive(Debug)]
pub(super) struct Borders {
    characters: HashSet<char>,
    /// Those that follow each other in a token.
    joined: HashSet<(char, char)>,
}

impl Borders {
    /// The borders of a vocabulary; `None` when its tokens are not what their texts say, or depend on the whole word.
    pub(super) fn new(bpe: &BPE) -> Option<Self> {
        let vocab: HashMap<String, u32> = bpe.get_vocab();
        let depends = bpe.dropout.is_some()
            || bpe.ignore_merges
            || bpe.continuing_subword_prefix.is_some()
            || bpe.end_of_word_suffix.is_some()
            || vocab.values().collect::<HashSet<_>>().len() < vocab.len();
        if depends {
            return None;
        }
        let mut borders = Self { characters: HashSet::new(), joined: HashSet::new() };
        for token in vocab.keys() {
            let mut rest = token.chars();
            borders.characters.extend(rest.next().filter(|char| char.len_utf8() == token.len()));
            borders.joined.extend(token.chars().zip(rest));
        }
        Some(borders)
    }

    /// The pieces of a word.
    pub(super) fn pieces<'a>(&'a self, word: &'a str) -> impl Iterator<Item = &'a str> {
        let mut rest = word;
        std::iter::from_fn(move || {
            let pairs = rest.char_indices().zip(rest.char_indices().skip(1));
            let mut late = pairs.skip_while(|(_, (at, _))| *at < MIN_PIECE_BYTES);
            let border = late.find(|&((_, left), (_, right))| {
                self.characters.contains(&left)
                    && self.characters.contains(&right)
                    && !self.joined.contains(&(left, right))
            });
            let (piece, after) = rest.split_at(border.map_or(rest.len(), |(_, (at, _))| at));
            rest = after;
            Some(piece).filter(|piece| !piece.is_empty())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokenizers::Model as _;
    use tokenizers::models::bpe::BpeBuilder;

    fn bpe(fuse_unk: bool, byte_fallback: bool) -> BPE {
        let tokens = ["?", "a", "b", "▁", "▁a", "ab", "▁ab", "aa", "ba", "<0xC3>", "<0xA9>", "<0xC3>a"];
        let mut id = 0..;
        let vocab = tokens.map(|token| (token.to_owned(), id.next().unwrap_or(0)));
        let merges = [("▁", "a"), ("a", "b"), ("▁a", "b"), ("a", "a"), ("b", "a"), ("<0xC3>", "a")];
        let merges = merges.map(|(left, right)| (left.to_owned(), right.to_owned())).to_vec();
        let builder = BpeBuilder::new().vocab_and_merges(vocab, merges);
        builder.unk_token("?".to_owned()).fuse_unk(fuse_unk).byte_fallback(byte_fallback).build().unwrap()
    }

    #[test]
    fn the_tokens_of_pieces_are_those_of_the_word() {
        for (fuse_unk, byte_fallback) in [(false, false), (true, false), (true, true)] {
            let bpe = bpe(fuse_unk, byte_fallback);
            let borders = Borders::new(&bpe).unwrap();
            // Any order of the characters, known and unknown.
            let mut seed = 1_u32;
            let mut draw = || {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                ['a', 'b', '▁', 'é', '日', '?'][(seed >> 16) as usize % 6]
            };
            let word: String = (0..60_000).map(|_| draw()).collect();
            let pieces: Vec<&str> = borders.pieces(&word).collect();
            assert!(pieces.len() > 5 && pieces.concat() == word, "{} pieces", pieces.len());
            let ids = |text: &str| {
                bpe.tokenize(text).unwrap().into_iter().map(|token| token.id).collect::<Vec<_>>()
            };
            assert_eq!(pieces.iter().flat_map(|piece| ids(piece)).collect::<Vec<_>>(), ids(&word));
        }
    }

    #[test]
    fn a_vocabulary_whose_words_are_wholes_is_not_cut() {
        let mut whole = bpe(false, false);
        whole.ignore_merges = true;
        assert!(Borders::new(&whole).is_none());
    }
}
