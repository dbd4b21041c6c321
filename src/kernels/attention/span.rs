//! The scores and the weighted values of one span of the context.

use std::cmp::Ordering;
use std::marker::PhantomData;
use std::ops::Range;

use super::plan::RowTile;
use super::{AttentionShape, BLOCK, KvBlocks, KvElement, SPAN};
use crate::kernels::simd::{LANES, Simd};

/// A span of the context of a job's rows.
pub(super) struct Span<'a, E, B> {
    pub(super) shape: AttentionShape,
    pub(super) blocks: &'a B,
    pub(super) tile: &'a RowTile,
    pub(super) kv_head: usize,
    /// Queries of a row.
    pub(super) group: usize,
    /// The position of its first token.
    pub(super) start: usize,
    pub(super) element: PhantomData<E>,
}

impl<E: KvElement, B: KvBlocks<E>> Span<'_, E, B> {
    /// The tokens of the span that the row at a place of the tile sees.
    #[inline(always)]
    pub(super) fn visible(&self, place: usize) -> Range<usize> {
        let context = self.blocks.context_len(self.tile.rows.start + place);
        let end = context.saturating_sub(self.start).min(SPAN);
        let first = self.shape.first_visible(context).saturating_sub(self.start);
        first.min(end)..end
    }

    /// Whether the row sees nothing before the span.
    #[inline(always)]
    pub(super) fn is_first(&self, place: usize) -> bool {
        let context = self.blocks.context_len(self.tile.rows.start + place);
        self.shape.first_visible(context) / SPAN * SPAN == self.start
    }

    /// The queries of the row at a place.
    #[inline(always)]
    pub(super) fn queries(&self, place: usize) -> Range<usize> {
        place * self.group..(place + 1) * self.group
    }

    /// The queries of all rows.
    #[inline(always)]
    fn all_queries(&self) -> Range<usize> {
        0..self.tile.rows.len() * self.group
    }

    /// The end of the tokens of the span whose blocks all rows have in common.
    #[inline(always)]
    fn common_end(&self) -> usize {
        self.tile.common_blocks.saturating_mul(BLOCK).saturating_sub(self.start)
    }

    /// Computes the scores of all tokens that a row sees, and of some others.
    #[inline(always)]
    pub(super) fn scores<S: Simd>(&self, s: S, queries: &[f32], scores: &mut [[f32; SPAN]]) {
        let places = 0..self.tile.rows.len();
        let begin = places.clone().map(|place| self.visible(place).start).min().unwrap_or(0) / BLOCK * BLOCK;
        let end = places.clone().map(|place| self.visible(place).end).max().unwrap_or(0);
        for at in (begin..end).step_by(BLOCK) {
            let is_common = at < self.common_end();
            for place in if is_common { 0..1 } else { places.clone() } {
                let visible = self.visible(place);
                if !is_common && (at + BLOCK <= visible.start || visible.end <= at) {
                    continue;
                }
                let row = self.tile.rows.start + place;
                let keys = self.blocks.keys(row, (self.start + at) / BLOCK, self.kv_head);
                let queries_of_block = if is_common { self.all_queries() } else { self.queries(place) };
                for_query_tiles!(
                    queries_of_block,
                    block_scores(s, queries, keys, self.shape.scale, at, &mut *scores)
                );
            }
        }
    }

    /// Adds the weighted values of one plane to `out`, `[queries, head_dim rounded up to planes]`.
    #[inline(always)]
    pub(super) fn weighted_values<S: Simd>(
        &self,
        s: S,
        weights: &[[f32; SPAN]],
        plane: usize,
        out: &mut [f32],
    ) {
        let num_rows = self.tile.rows.len();
        let visible = |place| self.visible(place);
        let start = (0..num_rows).map(|place| visible(place).start).max().unwrap_or(0);
        let end = (0..num_rows).map(|place| visible(place).end).min().unwrap_or(0).min(self.common_end());
        let common = start..end.max(start);
        // What a row sees before the others do, what all of them see, and what it sees after the others.
        for part in 0..=2 * num_rows {
            let (place, queries, tokens) = match part.cmp(&num_rows) {
                Ordering::Less => {
                    (part, self.queries(part), visible(part).start..common.start.min(visible(part).end))
                }
                Ordering::Equal => (0, self.all_queries(), common.clone()),
                Ordering::Greater => {
                    let place = part - num_rows - 1;
                    (place, self.queries(place), common.end.max(visible(place).start)..visible(place).end)
                }
            };
            if !tokens.is_empty() {
                let tokens = Tokens { row: self.tile.rows.start + place, range: tokens };
                for_query_tiles!(queries, add_values(s, self, &tokens, plane, weights, &mut *out));
            }
        }
    }
}

/// Tokens of a span, as a row sees them.
struct Tokens {
    row: usize,
    range: Range<usize>,
}

/// The scores of `M` queries, from `query` on, with the 32 tokens of a block: one chain over the dimensions each.
///
/// `queries` is `[head_dim, queries]`; the scores stand from token `at` of the span on.
#[inline(always)]
fn block_scores<S: Simd, E: KvElement, const M: usize>(
    s: S,
    query: usize,
    queries: &[f32],
    keys: &[E],
    scale: f32,
    at: usize,
    scores: &mut [[f32; SPAN]],
) {
    let mut sums = [[s.splat(0.0); 2]; M];
    let (vectors, _) = keys.as_chunks::<LANES>();
    let (tokens, _) = vectors.as_chunks::<2>();
    for (keys, queries) in tokens.iter().zip(queries.chunks_exact(scores.len())) {
        let (low, high) = (E::load(s, &keys[0]), E::load(s, &keys[1]));
        let queries = &queries[query..query + M];
        for m in 0..M {
            let q = s.splat(queries[m]);
            sums[m][0] = s.fma(low, q, sums[m][0]);
            sums[m][1] = s.fma(high, q, sums[m][1]);
        }
    }
    let scale = s.splat(scale);
    for m in 0..M {
        let (out, _) = scores[query + m][at..at + BLOCK].as_chunks_mut::<LANES>();
        s.store(s.mul(sums[m][0], scale), &mut out[0]);
        s.store(s.mul(sums[m][1], scale), &mut out[1]);
    }
}

/// Adds the values of some tokens of a span, weighted for `M` queries from `query` on, in one plane: one chain over the
/// tokens each.
#[inline(always)]
fn add_values<S: Simd, E: KvElement, const M: usize>(
    s: S,
    query: usize,
    span: &Span<'_, E, impl KvBlocks<E>>,
    &Tokens { row, range: ref tokens }: &Tokens,
    plane: usize,
    weights: &[[f32; SPAN]],
    out: &mut [f32],
) {
    let weights: &[[f32; SPAN]; M] = weights[query..query + M].try_into().expect("as many as that");
    let width = span.shape.head_dim.next_multiple_of(BLOCK);
    let place = |m: usize| (query + m) * width + plane * BLOCK;
    let mut sums = [[s.splat(0.0); 2]; M];
    for m in 0..M {
        let (sum, _) = out[place(m)..][..BLOCK].as_chunks::<LANES>();
        sums[m] = [s.load(&sum[0]), s.load(&sum[1])];
    }
    for at in (tokens.start / BLOCK * BLOCK..tokens.end).step_by(BLOCK) {
        let values = span.blocks.values(row, (span.start + at) / BLOCK, span.kv_head);
        let (vectors, _) = values[plane * BLOCK * BLOCK..].as_chunks::<LANES>();
        let (vectors, _) = vectors.as_chunks::<2>();
        let range = tokens.start.max(at)..tokens.end.min(at + BLOCK);
        for (token, values) in range.clone().zip(&vectors[range.start - at..range.end - at]) {
            let (low, high) = (E::load(s, &values[0]), E::load(s, &values[1]));
            for m in 0..M {
                let weight = s.splat(weights[m][token]);
                sums[m][0] = s.fma(low, weight, sums[m][0]);
                sums[m][1] = s.fma(high, weight, sums[m][1]);
            }
        }
    }
    for m in 0..M {
        let (sum, _) = out[place(m)..][..BLOCK].as_chunks_mut::<LANES>();
        s.store(sums[m][0], &mut sum[0]);
        s.store(sums[m][1], &mut sum[1]);
    }
}
