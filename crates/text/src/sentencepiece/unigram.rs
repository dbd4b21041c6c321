//! Splits texts by a unigram language model: finds the segmentation with the greatest sum of scores.
//!
//! Sums are in single precision, as in SentencePiece, and reset to zero in long texts where it does. Of equal
//! sums the first one found wins: that with the longest last piece.

use super::normalizer::character;
use super::prefix_trie::PrefixTrie;
use super::vocabulary::{PieceKind, Vocabulary};
use crate::budget::Budget;
use rsgen_core::error::Result;

/// The penalty of an unknown character below the worst piece.
const UNKNOWN_PENALTY: f32 = 10.0;
/// Sums beyond this are reset to zero, to stay precise.
const MAX_SUM: f32 = 100_000.0;
/// Marks positions that no segmentation reaches.
const NOWHERE: u32 = u32::MAX;

/// The model; its pieces are in the vocabulary.
#[derive(Debug)]
pub(super) struct Unigram {
    trie: PrefixTrie,
    unknown_score: f32,
}

/// The best segmentation of the text up to some position.
#[derive(Clone, Copy)]
struct Best {
    score: f32,
    /// Where its last piece starts.
    start: u32,
    id: u32,
}

impl Unigram {
    pub(super) fn new(vocabulary: &Vocabulary) -> Self {
        let normal = vocabulary.pieces.iter().filter(|piece| piece.kind == PieceKind::Normal);
        let min_score = normal.map(|piece| piece.score).fold(f32::MAX, f32::min);
        let found = |kind| matches!(kind, PieceKind::Normal | PieceKind::UserDefined);
        let pieces = (0_u32..).zip(&vocabulary.pieces).filter(|(_, piece)| found(piece.kind));
        Self {
            trie: PrefixTrie::new(pieces.map(|(id, piece)| (&*piece.text, id))),
            unknown_score: min_score - UNKNOWN_PENALTY,
        }
    }

    /// Splits a text of at most 1 GiB into parts, each with its piece, which may be the unknown one.
    pub(super) fn cut<'t>(
        &self,
        vocabulary: &Vocabulary,
        text: &'t str,
        budget: &Budget<'_>,
    ) -> Result<Vec<(&'t str, u32)>> {
        let mut best = vec![Best { score: 0.0, start: NOWHERE, id: 0 }; text.len() + 1];
        let (mut start, mut frontier) = (0, 0);
        while start < text.len() {
            budget.work(0)?;
            let so_far = best[start].score;
            if so_far.abs() > MAX_SUM {
                let reached = |best: &&mut Best| best.start != NOWHERE;
                best[start..=frontier].iter_mut().filter(reached).for_each(|best| best.score -= so_far);
            }
            let so_far = best[start].score;
            let character = character(&text[start..]);
            let mut is_known = false;
            for (length, id) in self.trie.prefixes(&text.as_bytes()[start..]) {
                let score = match vocabulary.kind(id) {
                    PieceKind::UserDefined => (0.1 * (length - 1) as f64) as f32,
                    _ => vocabulary.score(id),
                };
                frontier = frontier.max(start + length);
                offer(&mut best[start + length], score + so_far, start, id);
                is_known |= length == character;
            }
            if !is_known {
                frontier = frontier.max(start + character);
                offer(&mut best[start + character], self.unknown_score + so_far, start, vocabulary.unknown);
            }
            start += character;
        }
        let mut pieces = Vec::new();
        let mut end = text.len();
        while end > 0 {
            let Best { start, id, .. } = best[end];
            pieces.push((&text[start as usize..end], id));
            end = start as usize;
        }
        pieces.reverse();
        Ok(pieces)
    }
}

fn offer(best: &mut Best, score: f32, start: usize, id: u32) {
    if best.start == NOWHERE || score > best.score {
        *best = Best { score, start: start as u32, id };
    }
}
