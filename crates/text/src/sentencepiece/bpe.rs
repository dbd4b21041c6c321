//! Byte-pair encoding as in SentencePiece: of all adjacent parts whose joint text is a piece, merges those
//! with the best score first, ties from left to right. The parts need not be pieces themselves.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};

use super::normalizer::{character, symbol};
use super::vocabulary::{PieceKind, Vocabulary};
use crate::budget::Budget;
use rsgen_core::error::Result;

/// No neighbour.
const NONE: u32 = u32::MAX;

/// A part of the text; empty once merged into the part before it.
struct Part {
    start: u32,
    end: u32,
    before: u32,
    after: u32,
    /// Whether it is a user-defined symbol, which is never merged.
    frozen: bool,
}

/// Two adjacent parts that may be merged.
#[derive(PartialEq)]
struct Candidate {
    score: f32,
    left: u32,
    right: u32,
    /// The length of both parts: differs if one of them has changed since.
    length: u32,
}

impl Eq for Candidate {}

impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then_with(|| other.left.cmp(&self.left))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Splits a text of at most 1 GiB into parts, each with its piece, which may be the unknown one.
pub(super) fn cut<'t>(
    vocabulary: &Vocabulary,
    text: &'t str,
    budget: &Budget<'_>,
) -> Result<Vec<(&'t str, u32)>> {
    let mut merging = Merging {
        vocabulary,
        text,
        parts: initial_parts(vocabulary, text),
        candidates: BinaryHeap::new(),
        unused: HashMap::new(),
    };
    for right in 1..merging.parts.len() as u32 {
        budget.work(0)?;
        merging.consider(right - 1, right);
    }
    while let Some(candidate) = merging.candidates.pop() {
        budget.work(0)?;
        merging.join(&candidate);
    }
    let mut pieces = Vec::new();
    for part in merging.parts.iter().filter(|part| part.start < part.end) {
        merging.add_pieces(&text[part.start as usize..part.end as usize], &mut pieces);
    }
    Ok(pieces)
}

/// Characters and user-defined symbols.
fn initial_parts(vocabulary: &Vocabulary, text: &str) -> Vec<Part> {
    let mut parts = Vec::with_capacity(text.len());
    let mut start = 0;
    while start < text.len() {
        let rest = &text[start..];
        let found = symbol(rest, &vocabulary.user_defined);
        let end = start + found.unwrap_or_else(|| character(rest));
        let index = parts.len() as u32;
        let after = if end < text.len() { index + 1 } else { NONE };
        let before = index.checked_sub(1).unwrap_or(NONE);
        parts.push(Part { start: start as u32, end: end as u32, before, after, frozen: found.is_some() });
        start = end;
    }
    parts
}

struct Merging<'a> {
    vocabulary: &'a Vocabulary,
    text: &'a str,
    parts: Vec<Part>,
    candidates: BinaryHeap<Candidate>,
    /// Where each unused piece was last merged.
    unused: HashMap<u32, usize>,
}

impl Merging<'_> {
    fn consider(&mut self, left: u32, right: u32) {
        if left == NONE || right == NONE {
            return;
        }
        let (first, second) = (&self.parts[left as usize], &self.parts[right as usize]);
        let length = second.end - first.start;
        if first.frozen || second.frozen || length as usize > self.vocabulary.longest_piece {
            return;
        }
        let Some(id) = self.vocabulary.textual(&self.text[first.start as usize..second.end as usize]) else {
            return;
        };
        if self.vocabulary.kind(id) == PieceKind::Unused {
            self.unused.insert(id, (first.end - first.start) as usize);
        }
        self.candidates.push(Candidate { score: self.vocabulary.score(id), left, right, length });
    }

    fn join(&mut self, candidate: &Candidate) {
        let (left, right) = (candidate.left, candidate.right);
        let (first, second) = (&self.parts[left as usize], &self.parts[right as usize]);
        let gone = first.start == first.end || second.start == second.end;
        if gone || second.end - first.start != candidate.length {
            return;
        }
        let (end, before, after) = (second.end, first.before, second.after);
        (self.parts[left as usize].end, self.parts[left as usize].after) = (end, after);
        self.parts[right as usize].start = end;
        if let Some(next) = self.parts.get_mut(after as usize) {
            next.before = left;
        }
        self.consider(before, left);
        self.consider(left, after);
    }

    /// Adds the piece of a text; splits an unused one into the parts that it was merged from.
    fn add_pieces<'t>(&self, text: &'t str, pieces: &mut Vec<(&'t str, u32)>) {
        let mut open = vec![text];
        while let Some(text) = open.pop() {
            let unknown = self.vocabulary.unknown;
            let id = self.vocabulary.textual(text).unwrap_or(unknown);
            if id == unknown || self.vocabulary.kind(id) != PieceKind::Unused {
                pieces.push((text, id));
            } else if let Some(&at) = self.unused.get(&id) {
                let (left, right) = text.split_at(at);
                open.extend([right, left]);
            } else {
                pieces.push((text, unknown));
            }
        }
    }
}
