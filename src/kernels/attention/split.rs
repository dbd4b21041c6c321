//! Attention of a tile with a long context, whose spans are divided among threads.
//!
//! The spans are those of [`Job`](super::tile::Job) and are merged in the same order, so the results have the same bits. The
//! loops stay separate: with the branches of a common loop, the compiler no longer keeps the sums in registers.

use std::marker::PhantomData;
use std::ops::Range;

use super::plan::RowTile;
use super::span::{KeyRange, Span};
use super::tile::{Memory, exponentials, gather_queries, merge};
use super::{AttentionShape, BLOCK, KvBlocks, SPAN};
use crate::kernels::matmul::{InputPair, KvStep, PanelProducts};
use crate::kernels::parallel::Disjoint;
use crate::kernels::simd::{Simd, SimdOp};

/// Some spans of a tile of rows and a key-value head.
pub(super) struct SpanJob<'a, F: PanelProducts, B> {
    pub(super) shape: AttentionShape,
    pub(super) queries: &'a [f32],
    pub(super) query_stride: usize,
    pub(super) blocks: &'a B,
    pub(super) tile: &'a RowTile,
    pub(super) kv_head: usize,
    pub(super) spans: Range<usize>,
    /// At least [`Memory::len`] elements each.
    pub(super) values: &'a mut [f32],
    pub(super) pairs: &'a mut [F::Row],
    /// [`Part::len`] elements for each span of the context, starting with `first_part`. The job owns those of its spans.
    pub(super) parts: &'a Disjoint<'a, f32>,
    pub(super) first_part: usize,
}

impl<F: PanelProducts<Step: KvStep, Row: InputPair>, B: KvBlocks<F::Step>> SimdOp for SpanJob<'_, F, B> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let Self { shape, blocks, tile, kv_head, .. } = self;
        let dim = shape.head_dim;
        let group = shape.num_heads / shape.num_kv_heads;
        let num_queries = tile.rows.len() * group;
        let memory = Memory::divide(self.values, self.pairs, dim, num_queries);
        let given = |query: usize| {
            let (row, head) = (tile.rows.start + query / group, kv_head * group + query % group);
            &self.queries[row * self.query_stride + head * dim..][..dim]
        };
        gather_queries(s, num_queries, &given, memory.queries);

        let order = [KeyRange::of(shape, blocks, kv_head, tile), KeyRange::default()];
        for index in self.spans {
            let span = Span::<F, B>::new(shape, blocks, tile, kv_head, index * SPAN, order);
            let len = Part::len(dim, num_queries);
            // SAFETY: each span of a tile and a head is computed once.
            let part = unsafe {
                self.parts.part(self.first_part + index * len..self.first_part + (index + 1) * len)
            };
            let part = Part::divide(part, num_queries);
            span.scores(s, memory.queries, memory.scores);
            for place in 0..span.num_rows() {
                let visible = span.visible(place);
                for query in span.queries(place) {
                    part.now[query] = exponentials(s, &mut memory.scores[query], &visible);
                    span.scale_weights(place, &mut memory.scores[query]);
                }
            }
            let weights = F::Row::pairs(memory.scores, span.end(), memory.pairs);
            part.values.fill(0.0);
            span.weighted_values(s, weights, part.values);
        }
    }
}

/// The result of a span.
pub(super) struct Part<'a> {
    /// Weighted values, `[queries, head_dim rounded up to planes]`.
    values: &'a mut [f32],
    /// The maximum and the sum of the exponentials of each query.
    now: &'a mut [[f32; 2]],
}

impl<'a> Part<'a> {
    /// The numbers of a span.
    pub(super) fn len(head_dim: usize, num_queries: usize) -> usize {
        num_queries * (head_dim.next_multiple_of(BLOCK) + 2)
    }

    fn divide(part: &'a mut [f32], num_queries: usize) -> Self {
        let (values, now) = part.split_at_mut(part.len() - 2 * num_queries);
        Self { values, now: now.as_chunks_mut().0 }
    }
}

/// Merges the spans of a tile and a key-value head.
pub(super) struct Merge<'a, F: PanelProducts, B> {
    pub(super) shape: AttentionShape,
    pub(super) blocks: &'a B,
    pub(super) tile: &'a RowTile,
    pub(super) kv_head: usize,
    /// All spans that a row attends to.
    pub(super) spans: Range<usize>,
    /// [`Part::len`] elements for each span of the context.
    pub(super) parts: &'a mut [f32],
    /// At least [`Part::len`] elements.
    pub(super) values: &'a mut [f32],
    /// `[num_rows, num_heads, head_dim]`, of which the job owns the elements of its head in its rows.
    pub(super) out: &'a Disjoint<'a, f32>,
    pub(super) format: PhantomData<F>,
}

impl<F: PanelProducts<Step: KvStep, Row: InputPair>, B: KvBlocks<F::Step>> SimdOp for Merge<'_, F, B> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let Self { shape, blocks, tile, kv_head, .. } = self;
        let (dim, group) = (shape.head_dim, shape.num_heads / shape.num_kv_heads);
        let (width, num_queries) = (dim.next_multiple_of(BLOCK), tile.rows.len() * group);
        let len = Part::len(dim, num_queries);
        let merged = Part::divide(&mut self.values[..len], num_queries);
        for index in self.spans {
            let span =
                Span::<F, B>::new(shape, blocks, tile, kv_head, index * SPAN, [KeyRange::default(); 2]);
            let part = Part::divide(&mut self.parts[index * len..(index + 1) * len], num_queries);
            for place in 0..span.num_rows() {
                if span.visible(place).is_empty() {
                    continue;
                }
                for query in span.queries(place) {
                    let range = query * width..(query + 1) * width;
                    let (values, merged_values) = (&part.values[range.clone()], &mut merged.values[range]);
                    if span.is_first(place) {
                        merged.now[query] = part.now[query];
                        merged_values.copy_from_slice(values);
                    } else {
                        merged.now[query] =
                            merge(s, merged.now[query], part.now[query], values, merged_values);
                    }
                }
            }
        }
        for (place, row) in tile.rows.clone().enumerate() {
            let start = (row * shape.num_heads + kv_head * group) * dim;
            // SAFETY: the rows and heads of jobs do not overlap.
            let out = unsafe { self.out.part(start..start + group * dim) };
            for (head, out) in out.chunks_exact_mut(dim).enumerate() {
                let query = place * group + head;
                let [_, sum] = merged.now[query];
                for (out, value) in out.iter_mut().zip(&merged.values[query * width..]) {
                    *out = value / sum;
                }
            }
        }
    }
}
