//! The computation of one tile of rows for one key-value head.
//!
//! Queries are numbered row by row, `group` per row. Tokens visible to all rows are computed for all queries
//! together, in register tiles of up to 12; the others row by row. The chains of sums are the same either
//! way.

use std::ops::Range;

use super::plan::RowTile;
use super::{AttentionShape, BLOCK, HeadBias, KvBlocks, PAIRS, SPAN, covering};
use crate::isa::Isa;
use crate::math::exp;
use crate::matmul::{InputPair, KvStep};
use crate::parallel::Disjoint;
use crate::simd::{LANES, Simd, SimdOp};

/// A tile of rows and a key-value head.
#[derive(Clone, Copy)]
pub(super) struct TileHead<'a, T> {
    pub(super) shape: AttentionShape,
    pub(super) bias: HeadBias<'a>,
    pub(super) blocks: &'a dyn KvBlocks<T>,
    pub(super) tile: &'a RowTile,
    pub(super) kv_head: usize,
    /// Whether its keys and values are in a cache, because a tile before it has just read them.
    pub(super) is_near: bool,
}

impl<T: KvStep> TileHead<'_, T> {
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
    pub(super) fn visible(&self, place: usize, start: usize) -> Range<usize> {
        let context = self.blocks.context_len(self.tile.rows.start + place);
        let end = context.saturating_sub(start).min(SPAN);
        self.shape.first_visible(context).saturating_sub(start).min(end)..end
    }

    /// From the first token of the span that any row attends to, to the last.
    pub(super) fn all_visible(&self, start: usize) -> Range<usize> {
        covering((0..self.tile.rows.len()).map(|place| self.visible(place, start)))
    }
}

/// Queries, as the model has them.
#[derive(Debug, Clone, Copy)]
pub struct Queries<'a> {
    /// Those of row `r`, `[num_heads, head_dim]`, begin at element `r * stride`.
    pub values: &'a [f32],
    /// The numbers from one row to the next.
    pub stride: usize,
}

/// The result of a span, or of all spans so far.
pub(super) struct Part<'a> {
    /// Weighted values, `[queries, head_dim rounded up to planes]`.
    pub(super) values: &'a mut [f32],
    /// The maximum and the sum of the exponentials of each query.
    pub(super) now: &'a mut [[f32; 2]],
}

impl<'a> Part<'a> {
    /// The numbers of a span.
    pub(super) fn len<T: KvStep>(head: TileHead<'_, T>) -> usize {
        head.num_queries() * (head.width() + 2)
    }

    pub(super) fn divide(part: &'a mut [f32], num_queries: usize) -> Self {
        let (values, now) = part.split_at_mut(part.len() - 2 * num_queries);
        Self { values, now: now.as_chunks_mut().0 }
    }
}

/// The scratch memory of a job, for some tiles of so many queries.
pub(super) struct Memory<'a, P> {
    head_dim: usize,
    num_queries: usize,
    /// `[tiles, ceil(head_dim / 2), queries]`
    queries: &'a mut [P],
    /// Scores of a span, then their exponentials; `[queries]`.
    scores: &'a mut [[f32; SPAN]],
    /// The exponentials as pairs, `[queries]`.
    pairs: &'a mut [[P; PAIRS]],
    /// The same, `[PAIRS, queries]`.
    by_token: &'a mut [P],
    /// The result of a span.
    part: &'a mut [f32],
    /// The results of all spans so far, by tile.
    merged: &'a mut [f32],
}

/// The scratch memory of a tile in its queries.
pub(super) struct TileMemory<'a, P> {
    /// `[ceil(head_dim / 2), queries]`
    pub(super) queries: &'a mut [P],
    pub(super) working: Working<'a, P>,
    pub(super) part: Part<'a>,
    pub(super) merged: Part<'a>,
}

/// The scratch memory of a span.
pub(super) struct Working<'a, P> {
    /// `[queries]`: scores of a span, then their exponentials.
    pub(super) scores: &'a mut [[f32; SPAN]],
    /// The exponentials as pairs, `[queries]`.
    pub(super) pairs: &'a mut [[P; PAIRS]],
    /// The same, `[PAIRS, queries]`.
    pub(super) by_token: &'a mut [P],
}

impl<'a, P> Memory<'a, P> {
    /// The numbers of a part with so many queries.
    fn of_part(head_dim: usize, num_queries: usize) -> usize {
        num_queries * (head_dim.next_multiple_of(BLOCK) + 2)
    }

    /// The numbers and pairs that tiles of so many queries need.
    pub(super) fn len(head_dim: usize, num_queries: usize, num_tiles: usize) -> (usize, usize) {
        (
            num_queries * SPAN + (1 + num_tiles) * Self::of_part(head_dim, num_queries),
            num_queries * (num_tiles * head_dim.div_ceil(2) + 2 * PAIRS),
        )
    }

    /// `values` and `pairs` are as long as [`Memory::len`] says.
    pub(super) fn divide(
        values: &'a mut [f32],
        pairs: &'a mut [P],
        head_dim: usize,
        num_queries: usize,
    ) -> Self {
        let (scores, values) = values.split_at_mut(num_queries * SPAN);
        let (part, merged) = values.split_at_mut(Self::of_part(head_dim, num_queries));
        let (by_query, pairs) = pairs.split_at_mut(num_queries * PAIRS);
        let (by_token, queries) = pairs.split_at_mut(num_queries * PAIRS);
        let (scores, pairs) = (scores.as_chunks_mut().0, by_query.as_chunks_mut().0);
        Self { head_dim, num_queries, queries, scores, pairs, by_token, part, merged }
    }

    /// That of tile `place`, which may have fewer queries than others.
    pub(super) fn tile(&mut self, place: usize, num_queries: usize) -> TileMemory<'_, P> {
        let steps = self.head_dim.div_ceil(2);
        let of_part = Self::of_part(self.head_dim, num_queries);
        let merged = place * Self::of_part(self.head_dim, self.num_queries);
        TileMemory {
            queries: &mut self.queries[place * steps * self.num_queries..][..steps * num_queries],
            working: Working {
                scores: &mut self.scores[..num_queries],
                pairs: &mut self.pairs[..num_queries],
                by_token: &mut self.by_token[..PAIRS * num_queries],
            },
            part: Part::divide(&mut self.part[..of_part], num_queries),
            merged: Part::divide(&mut self.merged[merged..][..of_part], num_queries),
        }
    }
}

/// Merges a span into those before it.
pub(super) fn merge_span<T: KvStep>(
    isa: Isa,
    head: TileHead<'_, T>,
    start: usize,
    span: &Part<'_>,
    merged: &mut Part<'_>,
) {
    let (group, width) = (head.group(), head.width());
    for (place, row) in head.tile.rows.clone().enumerate() {
        if head.visible(place, start).is_empty() {
            continue;
        }
        let queries = place * group..(place + 1) * group;
        let (now, state) = (&span.now[queries.clone()], &mut merged.now[queries.clone()]);
        let range = queries.start * width..queries.end * width;
        let (values, merged) = (&span.values[range.clone()], &mut merged.values[range]);
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
pub(super) fn finish<T: KvStep>(isa: Isa, head: TileHead<'_, T>, merged: &Part<'_>, out: &Disjoint<'_, f32>) {
    let (dim, group) = (head.shape.head_dim, head.group());
    for (place, row) in head.tile.rows.clone().enumerate() {
        let start = (row * head.shape.num_heads + head.kv_head * group) * dim;
        // SAFETY: the rows and heads of jobs do not overlap.
        let out = unsafe { out.part(start..start + group * dim) };
        let queries = place * group..(place + 1) * group;
        let sinks = head.bias.sinks.map(|sinks| &sinks[head.kv_head * group..][..group]);
        isa.run(Divide { dim, width: head.width(), merged, sinks, queries, out });
    }
}

/// Packs the queries of a tile, `[ceil(head_dim / 2), queries]`.
pub(super) struct Gather<'a, T, P> {
    pub(super) head: TileHead<'a, T>,
    pub(super) queries: Queries<'a>,
    pub(super) out: &'a mut [P],
}

impl<T: KvStep, P: InputPair> SimdOp for Gather<'_, T, P> {
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
    merged: &'a Part<'a>,
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
        let Part { values, now } = self.merged;
        for (index, (query, out)) in self.queries.zip(self.out.chunks_exact_mut(self.dim)).enumerate() {
            let ([max, mut sum], values) = (now[query], &values[query * self.width..][..self.dim]);
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
