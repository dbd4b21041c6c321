//! The computation of one tile of rows for one key-value head.
//!
//! Queries are numbered row by row, `group` per row. Tokens visible to all rows are computed for all queries together, in
//! register tiles of up to 12; the others row by row. The chains of sums are the same either way.

use std::ops::Range;

use super::plan::RowTile;
use super::span::{KeyRange, Span};
use super::{AttentionShape, BLOCK, KvBlocks, PAIRS, SPAN};
use crate::kernels::math::exp;
use crate::kernels::matmul::{InputPair, KvStep, PanelProducts, STRIP_VECTORS};
use crate::kernels::parallel::Disjoint;
use crate::kernels::reduce;
use crate::kernels::simd::{LANES, Simd, SimdOp};
use crate::kernels::softmax::exp_and_sum;

/// A tile of rows and a key-value head.
pub(super) struct Job<'a, F: PanelProducts, B> {
    pub(super) shape: AttentionShape,
    pub(super) queries: &'a [f32],
    pub(super) query_stride: usize,
    pub(super) blocks: &'a B,
    pub(super) tile: &'a RowTile,
    pub(super) kv_head: usize,
    /// What the thread computes next.
    pub(super) next: Option<(usize, &'a RowTile)>,
    /// At least [`Memory::len`] elements each.
    pub(super) values: &'a mut [f32],
    pub(super) pairs: &'a mut [F::Row],
    /// `[num_rows, num_heads, head_dim]`, of which the job owns the elements of its head in its rows.
    pub(super) out: &'a Disjoint<'a, f32>,
}

/// The scratch memory of a job.
pub(super) struct Memory<'a, P> {
    /// `[ceil(head_dim / 2), queries]`
    pub(super) queries: &'a mut [P],
    /// `[queries]`: scores of a span, then their exponentials.
    pub(super) scores: &'a mut [[f32; SPAN]],
    /// The exponentials as pairs, `[queries]`.
    pub(super) pairs: &'a mut [[P; PAIRS]],
    /// The weighted values of a span, `[queries, head_dim rounded up to planes]`.
    pub(super) span: &'a mut [f32],
    /// The same, merged over the spans so far.
    merged: &'a mut [f32],
    /// The maximum and the sum of the exponentials of the span, `[queries]`.
    pub(super) now: &'a mut [[f32; 2]],
    /// The same over the spans so far.
    state: &'a mut [[f32; 2]],
}

impl<'a, P> Memory<'a, P> {
    /// The numbers and pairs that `queries` queries need.
    pub(super) fn len(head_dim: usize, num_queries: usize) -> (usize, usize) {
        (
            num_queries * (SPAN + 2 * head_dim.next_multiple_of(BLOCK) + 4),
            num_queries * (head_dim.div_ceil(2) + PAIRS),
        )
    }

    pub(super) fn divide(
        values: &'a mut [f32],
        pairs: &'a mut [P],
        head_dim: usize,
        num_queries: usize,
    ) -> Self {
        let width = head_dim.next_multiple_of(BLOCK);
        let (scores, rest) = values.split_at_mut(num_queries * SPAN);
        let (span, rest) = rest.split_at_mut(num_queries * width);
        let (merged, rest) = rest.split_at_mut(num_queries * width);
        let (scores, _) = scores.as_chunks_mut();
        let (now, state) = rest[..num_queries * 4].as_chunks_mut().0.split_at_mut(num_queries);
        let (queries, pairs) = pairs.split_at_mut(num_queries * head_dim.div_ceil(2));
        Self {
            queries,
            scores,
            pairs: pairs[..num_queries * PAIRS].as_chunks_mut().0,
            span,
            merged,
            now,
            state,
        }
    }
}

impl<F: PanelProducts<Step: KvStep, Row: InputPair>, B: KvBlocks<F::Step>> SimdOp for Job<'_, F, B> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let Self { shape, blocks, tile, kv_head, out, .. } = self;
        let dim = shape.head_dim;
        let width = dim.next_multiple_of(BLOCK);
        let group = shape.num_heads / shape.num_kv_heads;
        let (rows, num_queries) = (tile.rows.clone(), tile.rows.len() * group);
        let memory = Memory::divide(self.values, self.pairs, dim, num_queries);
        let given = |query: usize| {
            let (row, head) = (rows.start + query / group, kv_head * group + query % group);
            &self.queries[row * self.query_stride + head * dim..][..dim]
        };
        gather_queries(s, num_queries, &given, memory.queries);

        let contexts = rows.clone().map(|row| blocks.context_len(row));
        let longest = contexts.clone().max().unwrap_or(0);
        let first = contexts.map(|context| shape.first_visible(context)).min().unwrap_or(0);
        let next = self
            .next
            .map_or(KeyRange::default(), |(kv_head, tile)| KeyRange::of(shape, blocks, kv_head, tile));
        let order = [KeyRange::of(shape, blocks, kv_head, tile), next];
        for start in (first / SPAN * SPAN..longest).step_by(SPAN) {
            let span = Span::<F, B>::new(shape, blocks, tile, kv_head, start, order);
            span.scores(s, memory.queries, memory.scores);
            for place in 0..rows.len() {
                let visible = span.visible(place);
                for query in span.queries(place) {
                    memory.now[query] = exponentials(s, &mut memory.scores[query], &visible);
                    span.scale_weights(place, &mut memory.scores[query]);
                }
            }
            let weights = F::Row::pairs(memory.scores, span.end(), memory.pairs);
            memory.span.fill(0.0);
            span.weighted_values(s, weights, memory.span);
            for place in 0..rows.len() {
                if span.visible(place).is_empty() {
                    continue;
                }
                let is_first = span.is_first(place);
                for query in span.queries(place) {
                    let range = query * width..(query + 1) * width;
                    let (values, merged) = (&memory.span[range.clone()], &mut memory.merged[range]);
                    if is_first {
                        memory.state[query] = memory.now[query];
                        merged.copy_from_slice(values);
                    } else {
                        memory.state[query] =
                            merge(s, memory.state[query], memory.now[query], values, merged);
                    }
                }
            }
        }
        for (place, row) in rows.enumerate() {
            let start = (row * shape.num_heads + kv_head * group) * dim;
            // SAFETY: the rows and heads of jobs do not overlap.
            let out = unsafe { out.part(start..start + group * dim) };
            for (head, out) in out.chunks_exact_mut(dim).enumerate() {
                let query = place * group + head;
                let [_, sum] = memory.state[query];
                for (out, value) in out.iter_mut().zip(&memory.merged[query * width..]) {
                    *out = value / sum;
                }
            }
        }
    }
}

/// Packs queries, `[ceil(head_dim / 2), num_queries]`.
#[inline(always)]
pub(super) fn gather_queries<'a, S: Simd, P: InputPair>(
    s: S,
    num_queries: usize,
    given: &impl Fn(usize) -> &'a [f32],
    out: &mut [P],
) {
    for query in 0..num_queries {
        for (values, out) in given(query).chunks(2 * LANES).zip(out.chunks_mut(LANES * num_queries)) {
            let mut padded = [0.0; 2 * LANES];
            let values = values.first_chunk().unwrap_or_else(|| {
                padded[..values.len()].copy_from_slice(values);
                &padded
            });
            let (vectors, _) = values.as_chunks();
            let mut row = [[s.splat(0.0); STRIP_VECTORS]];
            row[0][..2].copy_from_slice(&[s.load(&vectors[0]), s.load(&vectors[1])]);
            let mut pairs = [[P::default()]; LANES];
            P::arrange(s, &row, &mut pairs);
            for (out, [pair]) in out.chunks_exact_mut(num_queries).zip(pairs) {
                out[query] = pair;
            }
        }
    }
}

/// Replaces the scores of the visible tokens by their exponentials, and those of their neighbours in a vector by 0;
/// returns the largest score and the sum.
#[inline(always)]
pub(super) fn exponentials<S: Simd>(s: S, scores: &mut [f32; SPAN], visible: &Range<usize>) -> [f32; 2] {
    if visible.is_empty() {
        return [f32::NEG_INFINITY, 0.0];
    }
    let (vectors, _) = scores.as_chunks_mut::<LANES>();
    let vectors = &mut vectors[visible.start / LANES..visible.end.div_ceil(LANES)];
    let (before, after) = (visible.start % LANES, visible.end.next_multiple_of(LANES) - visible.end);
    if let (true, Some(first)) = (before > 0, vectors.first_mut()) {
        for (lane, score) in first.iter_mut().enumerate() {
            *score = if lane < before { f32::NEG_INFINITY } else { *score };
        }
    }
    if let (true, Some(last)) = (after > 0, vectors.last_mut()) {
        for (lane, score) in last.iter_mut().enumerate() {
            *score = if lane >= LANES - after { f32::NEG_INFINITY } else { *score };
        }
    }
    let scores = vectors.as_flattened_mut();
    let max = reduce::max(s, scores);
    [max, exp_and_sum(s, scores, max)]
}

/// Merges the values of a span into those before it; returns the new maximum and sum.
#[inline(always)]
pub(super) fn merge<S: Simd>(
    s: S,
    before: [f32; 2],
    span: [f32; 2],
    values: &[f32],
    merged: &mut [f32],
) -> [f32; 2] {
    let max = if span[0] > before[0] { span[0] } else { before[0] };
    let (old, new) = (exp(s, s.splat(before[0] - max)), exp(s, s.splat(span[0] - max)));
    let (merged, _) = merged.as_chunks_mut::<LANES>();
    let (values, _) = values.as_chunks::<LANES>();
    for (merged, values) in merged.iter_mut().zip(values) {
        s.store(s.fma(s.load(values), new, s.mul(s.load(merged), old)), merged);
    }
    let sum = s.fma(s.splat(span[1]), new, s.mul(s.splat(before[1]), old));
    let mut lanes = [0.0; LANES];
    s.store(sum, &mut lanes);
    [max, lanes[0]]
}
