//! The computation of one tile of rows for one key-value head.
//!
//! Queries are numbered row by row, `group` per row. Tokens visible to all rows are computed for all queries
//! together, in register tiles of up to 12; the others row by row. The chains of sums are the same either
//! way.

use std::ops::Range;

use super::fetch::KeyRange;
use super::plan::RowTile;
use super::span::SpanJob;
use super::{AttentionShape, BLOCK, HeadBias, KvBlocks, PAIRS, SPAN};
use crate::isa::Isa;
use crate::math::exp;
use crate::matmul::{InputPair, KvStep, PanelProducts, RowStep as _};
use crate::parallel::Disjoint;
use crate::simd::{LANES, Simd, SimdOp};

/// A tile of rows and a key-value head.
pub(super) struct TileHead<'a, B> {
    pub(super) shape: AttentionShape,
    pub(super) bias: HeadBias<'a>,
    pub(super) blocks: &'a B,
    pub(super) tile: &'a RowTile,
    pub(super) kv_head: usize,
}

impl<B> Clone for TileHead<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B> Copy for TileHead<'_, B> {}

impl<B> TileHead<'_, B> {
    /// Queries of a row.
    pub(super) fn group(&self) -> usize {
        self.shape.num_heads / self.shape.num_kv_heads
    }

    /// Queries of all rows.
    pub(super) fn num_queries(&self) -> usize {
        self.tile.rows.len() * self.group()
    }

    /// Of query `query` of a tile, the number of its head.
    pub(super) fn query_head(&self, query: usize) -> usize {
        self.kv_head * self.group() + query % self.group()
    }

    /// The elements of a head, rounded up to planes.
    pub(super) fn width(&self) -> usize {
        self.shape.head_dim.next_multiple_of(BLOCK)
    }

    /// The tokens of the span from position `start` on that a row attends to.
    pub(super) fn visible<T>(&self, place: usize, start: usize) -> Range<usize>
    where
        B: KvBlocks<T>,
    {
        let context = self.blocks.context_len(self.tile.rows.start + place);
        let end = context.saturating_sub(start).min(SPAN);
        self.shape.first_visible(context).saturating_sub(start).min(end)..end
    }
}

/// Queries, as the model has them: those of row `r` begin at element `r * stride`.
#[derive(Clone, Copy)]
pub(super) struct Queries<'a> {
    pub(super) values: &'a [f32],
    pub(super) stride: usize,
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
    pub(super) merged: &'a mut [f32],
    /// The maximum and the sum of the exponentials of the span, `[queries]`.
    pub(super) now: &'a mut [[f32; 2]],
    /// The same over the spans so far.
    pub(super) state: &'a mut [[f32; 2]],
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

/// Computes the rows of a tile and writes them to `out`, `[num_rows, num_heads, head_dim]`. `next` is what
/// the thread computes after it.
pub(super) fn compute<F: PanelProducts<Step: KvStep, Row: InputPair>, B: KvBlocks<F::Step>>(
    isa: Isa,
    head: TileHead<'_, B>,
    next: Option<TileHead<'_, B>>,
    queries: Queries<'_>,
    memory: &mut Memory<'_, F::Row>,
    out: &Disjoint<'_, f32>,
) {
    F::Row::run(isa, Gather { head, queries, out: &mut *memory.queries });
    let order = [KeyRange::of(head), next.map_or(KeyRange::default(), KeyRange::of)];
    for span in super::spans(head) {
        let start = span * SPAN;
        F::Row::run(
            isa,
            SpanJob::<F, B> {
                head,
                start,
                order,
                queries: memory.queries,
                scores: &mut *memory.scores,
                pairs: &mut *memory.pairs,
                values: &mut *memory.span,
                now: &mut *memory.now,
            },
        );
        merge_span(isa, head, start, memory.span, memory.now, memory.merged, memory.state);
    }
    finish(isa, head, memory.merged, memory.state, out);
}

/// Merges a span into those before it: weighted values, `[queries, head_dim rounded up to planes]`, and the
/// maximum and the sum of the exponentials of each query.
pub(super) fn merge_span<T, B: KvBlocks<T>>(
    isa: Isa,
    head: TileHead<'_, B>,
    start: usize,
    values: &[f32],
    now: &[[f32; 2]],
    merged: &mut [f32],
    state: &mut [[f32; 2]],
) {
    let (group, width) = (head.group(), head.width());
    for (place, row) in head.tile.rows.clone().enumerate() {
        if head.visible(place, start).is_empty() {
            continue;
        }
        let queries = place * group..(place + 1) * group;
        let (now, state) = (&now[queries.clone()], &mut state[queries.clone()]);
        let range = queries.start * width..queries.end * width;
        let (values, merged) = (&values[range.clone()], &mut merged[range]);
        let context = head.blocks.context_len(row);
        if head.shape.first_visible(context) / SPAN * SPAN == start {
            state.copy_from_slice(now);
            merged.copy_from_slice(values);
        } else {
            isa.run(Merge { width, values, now, merged, state });
        }
    }
}

/// Divides the merged values by their sums, and writes them to `out`.
pub(super) fn finish<B>(
    isa: Isa,
    head: TileHead<'_, B>,
    merged: &[f32],
    state: &[[f32; 2]],
    out: &Disjoint<'_, f32>,
) {
    let (dim, group) = (head.shape.head_dim, head.group());
    for (place, row) in head.tile.rows.clone().enumerate() {
        let start = (row * head.shape.num_heads + head.kv_head * group) * dim;
        // SAFETY: the rows and heads of jobs do not overlap.
        let out = unsafe { out.part(start..start + group * dim) };
        let queries = place * group..(place + 1) * group;
        let sinks = head.bias.sinks.map(|sinks| &sinks[head.kv_head * group..][..group]);
        isa.run(Divide { dim, width: head.width(), values: merged, state, sinks, queries, out });
    }
}

/// Packs the queries of a tile, `[ceil(head_dim / 2), queries]`.
pub(super) struct Gather<'a, B, P> {
    pub(super) head: TileHead<'a, B>,
    pub(super) queries: Queries<'a>,
    pub(super) out: &'a mut [P],
}

impl<B, P: InputPair> SimdOp for Gather<'_, B, P> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let Self { head, queries, out } = self;
        let (dim, group, num_queries) = (head.shape.head_dim, head.group(), head.num_queries());
        for query in 0..num_queries {
            let row = head.tile.rows.start + query / group;
            let start = row * queries.stride + (head.kv_head * group + query % group) * dim;
            let values = queries.values[start..][..dim].chunks(2 * LANES);
            for (values, out) in values.zip(out.chunks_mut(LANES * num_queries)) {
                let mut padded = [0.0; 2 * LANES];
                let values = values.first_chunk().unwrap_or_else(|| {
                    padded[..values.len()].copy_from_slice(values);
                    &padded
                });
                let (vectors, _) = values.as_chunks();
                let mut pairs = [P::default(); LANES];
                P::arrange(s, &[[s.load(&vectors[0]), s.load(&vectors[1])]], &mut pairs);
                for (out, pair) in out.chunks_exact_mut(num_queries).zip(pairs) {
                    out[query] = pair;
                }
            }
        }
    }
}

/// Merges the values, maxima and sums of some queries into those before them.
struct Merge<'a> {
    width: usize,
    values: &'a [f32],
    now: &'a [[f32; 2]],
    merged: &'a mut [f32],
    state: &'a mut [[f32; 2]],
}

impl SimdOp for Merge<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let values = self.values.chunks_exact(self.width);
        let merged = self.merged.chunks_exact_mut(self.width);
        for (((values, merged), span), state) in values.zip(merged).zip(self.now).zip(self.state) {
            let max = if span[0] > state[0] { span[0] } else { state[0] };
            let (old, new) = (exp(s, s.splat(state[0] - max)), exp(s, s.splat(span[0] - max)));
            let (merged, _) = merged.as_chunks_mut::<LANES>();
            let (values, _) = values.as_chunks::<LANES>();
            for (merged, values) in merged.iter_mut().zip(values) {
                s.store(s.fma(s.load(values), new, s.mul(s.load(merged), old)), merged);
            }
            let sum = s.fma(s.splat(span[1]), new, s.mul(s.splat(state[1]), old));
            let mut lanes = [0.0; LANES];
            s.store(sum, &mut lanes);
            *state = [max, lanes[0]];
        }
    }
}

/// Divides the values of some queries by their sums, to which sinks are added.
struct Divide<'a> {
    dim: usize,
    width: usize,
    values: &'a [f32],
    state: &'a [[f32; 2]],
    /// One for each query.
    sinks: Option<&'a [f32]>,
    queries: Range<usize>,
    /// `[queries, dim]`
    out: &'a mut [f32],
}

impl SimdOp for Divide<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        for (index, (query, out)) in self.queries.zip(self.out.chunks_exact_mut(self.dim)).enumerate() {
            let ([max, mut sum], values) =
                (self.state[query], &self.values[query * self.width..][..self.dim]);
            let mut factor = 1.0;
            if let Some(sink) = self.sinks.map(|sinks| sinks[index]) {
                let larger = if sink > max { sink } else { max };
                let mut lanes = [0.0; LANES];
                (lanes[0], lanes[1]) = (max - larger, sink - larger);
                s.store(exp(s, s.load(&lanes)), &mut lanes);
                factor = lanes[0];
                sum = sum * factor + lanes[1];
            }
            // Without a sink, `x * 1` is `x`.
            let (vectors, rest) = out.as_chunks_mut::<LANES>();
            let (values, last) = values.as_chunks::<LANES>();
            for (out, values) in vectors.iter_mut().zip(values) {
                s.store(s.div(s.mul(s.load(values), s.splat(factor)), s.splat(sum)), out);
            }
            for (out, value) in rest.iter_mut().zip(last) {
                *out = value * factor / sum;
            }
        }
    }
}
