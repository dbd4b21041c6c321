//! The scores and the weighted values of one span of the context.

use std::cmp::Ordering;
use std::marker::PhantomData;
use std::ops::Range;

use super::plan::{MOST_ROWS, RowTile};
use super::{AttentionShape, BLOCK, KvBlocks, PAIRS, SPAN};
use crate::kernels::matmul::{InputPair, KvStep, PanelProducts};
use crate::kernels::simd::{LANES, Simd};

/// One span of the context of a job.
pub(super) struct Span<'a, F, B> {
    shape: AttentionShape,
    blocks: &'a B,
    tile: &'a RowTile,
    kv_head: usize,
    /// Queries of a row.
    group: usize,
    /// The position of the first token.
    start: usize,
    /// The tokens that each row of the tile attends to.
    visible: [(usize, usize); MOST_ROWS],
    /// The end of the blocks that all rows share.
    common_end: usize,
    /// The shared tokens that all rows attend to, in whole pairs. A row handles half a pair by itself.
    common: Range<usize>,
    /// Whether to prefetch keys and values: in the middle of a prompt, earlier rows have just read them.
    is_cold: bool,
    format: PhantomData<F>,
}

impl<'a, F: PanelProducts<Step: KvStep, Row: InputPair>, B: KvBlocks<F::Step>> Span<'a, F, B> {
    /// The span from position `start` on.
    #[inline(always)]
    pub(super) fn new(
        shape: AttentionShape,
        blocks: &'a B,
        tile: &'a RowTile,
        kv_head: usize,
        start: usize,
    ) -> Self {
        let mut visible = [(0, 0); MOST_ROWS];
        let (mut last_start, mut first_end) = (0, SPAN);
        for (row, visible) in tile.rows.clone().zip(&mut visible) {
            let context = blocks.context_len(row);
            let end = context.saturating_sub(start).min(SPAN);
            *visible = (shape.first_visible(context).saturating_sub(start).min(end), end);
            (last_start, first_end) = (last_start.max(visible.0), first_end.min(end));
        }
        let common_end = tile.common_blocks.saturating_mul(BLOCK).saturating_sub(start);
        let common_start = last_start.next_multiple_of(2);
        let common = common_start..(first_end.min(common_end) / 2 * 2).max(common_start);
        let group = shape.num_heads / shape.num_kv_heads;
        let is_cold = tile.rows.len() == 1 || tile.common_blocks != usize::MAX;
        Self {
            shape,
            blocks,
            tile,
            kv_head,
            group,
            start,
            visible,
            common_end,
            common,
            is_cold,
            format: PhantomData,
        }
    }

    /// The rows of the tile.
    #[inline(always)]
    pub(super) fn num_rows(&self) -> usize {
        self.tile.rows.len()
    }

    /// The tokens of the span that a row of the tile attends to.
    #[inline(always)]
    pub(super) fn visible(&self, place: usize) -> Range<usize> {
        let (start, end) = self.visible[place];
        start..end
    }

    /// The end of the tokens that any row attends to.
    #[inline(always)]
    pub(super) fn end(&self) -> usize {
        self.visible[..self.tile.rows.len()].iter().map(|visible| visible.1).max().unwrap_or(0)
    }

    /// Whether this is the first span that the row attends to.
    #[inline(always)]
    pub(super) fn is_first(&self, place: usize) -> bool {
        let context = self.blocks.context_len(self.tile.rows.start + place);
        self.shape.first_visible(context) / SPAN * SPAN == self.start
    }

    /// The queries of a row of the tile.
    #[inline(always)]
    pub(super) fn queries(&self, place: usize) -> Range<usize> {
        place * self.group..(place + 1) * self.group
    }

    /// The queries of all rows.
    #[inline(always)]
    fn all_queries(&self) -> Range<usize> {
        0..self.tile.rows.len() * self.group
    }

    /// Computes the scores of all visible tokens, and of some others.
    #[inline(always)]
    pub(super) fn scores<S: Simd>(&self, s: S, queries: &[F::Row], scores: &mut [[f32; SPAN]]) {
        let places = 0..self.tile.rows.len();
        let begin = places.clone().map(|place| self.visible(place).start).min().unwrap_or(0) / BLOCK * BLOCK;
        for at in (begin..self.end()).step_by(BLOCK) {
            let is_common = at < self.common_end;
            for place in if is_common { 0..1 } else { places.clone() } {
                let visible = self.visible(place);
                if !is_common && (at + BLOCK <= visible.start || visible.end <= at) {
                    continue;
                }
                let row = self.tile.rows.start + place;
                let block = (self.start + at) / BLOCK;
                let keys = self.blocks.keys(row, block, self.kv_head);
                if self.is_cold {
                    fetch(s, self.blocks.values(row, block, self.kv_head));
                    if at + BLOCK < visible.end {
                        fetch(s, self.blocks.keys(row, block + 1, self.kv_head));
                    }
                }
                let queries_of_block = if is_common { self.all_queries() } else { self.queries(place) };
                let mut scale = [s.splat(self.shape.scale); 2];
                if let Some(scales) = F::Step::scales(keys) {
                    let (scales, _) = scales.as_chunks();
                    scale = [s.mul(scale[0], s.load(&scales[0])), s.mul(scale[1], s.load(&scales[1]))];
                }
                for_query_tiles!(queries_of_block, block_scores(s, queries, keys, scale, at, &mut *scores));
            }
        }
    }

    /// Multiplies the weights of a query by the scales of its visible tokens.
    #[inline(always)]
    pub(super) fn scale_weights(&self, place: usize, weights: &mut [f32; SPAN]) {
        if F::Step::SCALE_STEPS == 0 {
            return;
        }
        let (row, visible) = (self.tile.rows.start + place, self.visible(place));
        for at in (visible.start / BLOCK * BLOCK..visible.end).step_by(BLOCK) {
            let values = self.blocks.values(row, (self.start + at) / BLOCK, self.kv_head);
            let Some(scales) = F::Step::scales(values) else { continue };
            let range = visible.start.max(at)..visible.end.min(at + BLOCK);
            for (weight, scale) in weights[range.clone()].iter_mut().zip(&scales[range.start - at..]) {
                *weight *= scale;
            }
        }
    }

    /// Adds the weighted values of one plane to `out`, `[queries, head_dim rounded up to planes]`. Invisible
    /// tokens have no weight.
    #[inline(always)]
    pub(super) fn weighted_values<S: Simd>(
        &self,
        s: S,
        weights: &[[F::Row; PAIRS]],
        plane: usize,
        out: &mut [f32],
    ) {
        let (num_rows, common) = (self.tile.rows.len(), &self.common);
        // The tokens before those visible to all rows, the latter, and those after them.
        for part in 0..=2 * num_rows {
            let (place, queries, tokens) = match part.cmp(&num_rows) {
                Ordering::Less => {
                    let Range { start, end } = self.visible(part);
                    (part, self.queries(part), start..common.start.min(end))
                }
                Ordering::Equal => (0, self.all_queries(), common.clone()),
                Ordering::Greater => {
                    let place = part - num_rows - 1;
                    let Range { start, end } = self.visible(place);
                    (place, self.queries(place), common.end.max(start)..end)
                }
            };
            if !tokens.is_empty() {
                let tokens = Tokens { row: self.tile.rows.start + place, range: tokens };
                for_query_tiles!(queries, add_values(s, self, &tokens, plane, weights, &mut *out));
            }
        }
    }
}

/// Prefetches steps.
#[inline(always)]
fn fetch<S: Simd, T>(s: S, steps: &[T]) {
    for step in steps {
        for line in (0..size_of::<T>()).step_by(64) {
            s.prefetch(step, line);
        }
    }
}

/// Tokens of a span, read through the blocks of one row.
struct Tokens {
    row: usize,
    range: Range<usize>,
}

/// The scores of `M` queries, from `query` on, with the 32 tokens of a block: one chain over the dimensions each.
///
/// `queries` is `[ceil(head_dim / 2), queries]`; the scores stand from token `at` of the span on. `scale` is
/// that of each token.
#[inline(always)]
fn block_scores<S: Simd, F: PanelProducts, const M: usize>(
    s: S,
    query: usize,
    queries: &[F::Row],
    keys: &[F::Step],
    scale: [S::F; 2],
    at: usize,
    scores: &mut [[f32; SPAN]],
) {
    let mut sums = [[s.splat(0.0); 2]; M];
    for (step, queries) in keys.iter().zip(queries.chunks_exact(scores.len())) {
        let queries = queries[query..query + M].first_chunk().expect("as many as that");
        F::multiply_add(s, step, 0, queries, &mut sums);
    }
    for m in 0..M {
        let (out, _) = scores[query + m][at..at + BLOCK].as_chunks_mut::<LANES>();
        s.store(s.mul(sums[m][0], scale[0]), &mut out[0]);
        s.store(s.mul(sums[m][1], scale[1]), &mut out[1]);
    }
}

/// Adds the values of some tokens of a span, weighted for `M` queries from `query` on, in one plane: one chain over the
/// tokens each.
#[inline(always)]
fn add_values<S: Simd, F: PanelProducts<Step: KvStep, Row: InputPair>, const M: usize>(
    s: S,
    query: usize,
    span: &Span<'_, F, impl KvBlocks<F::Step>>,
    &Tokens { row, range: ref tokens }: &Tokens,
    plane: usize,
    weights: &[[F::Row; PAIRS]],
    out: &mut [f32],
) {
    let weights: &[[F::Row; PAIRS]; M] = weights[query..].first_chunk().expect("as many as that");
    let width = span.shape.head_dim.next_multiple_of(BLOCK);
    let place = |m: usize| (query + m) * width + plane * BLOCK;
    let mut sums = [[s.splat(0.0); 2]; M];
    for m in 0..M {
        let (sum, _) = out[place(m)..][..BLOCK].as_chunks::<LANES>();
        sums[m] = [s.load(&sum[0]), s.load(&sum[1])];
    }
    for at in (tokens.start / BLOCK * BLOCK..tokens.end).step_by(BLOCK) {
        let values = span.blocks.values(row, (span.start + at) / BLOCK, span.kv_head);
        let values: &[F::Step; BLOCK / 2] = values[plane * BLOCK / 2..].first_chunk().expect("a plane");
        let range = tokens.start.max(at)..tokens.end.min(at + BLOCK);
        // Of a pair that is seen in half, the other half may be anything, even no number.
        if range.start % 2 == 1 {
            let step = values[(range.start - at) / 2].only(1);
            add_pair::<S, F, M>(s, &step, weights, range.start / 2, &mut sums);
        }
        for pair in range.start.div_ceil(2)..range.end / 2 {
            add_pair::<S, F, M>(s, &values[pair - at / 2], weights, pair, &mut sums);
        }
        if range.end % 2 == 1 {
            let step = values[(range.end - at) / 2].only(0);
            add_pair::<S, F, M>(s, &step, weights, range.end / 2, &mut sums);
        }
    }
    for m in 0..M {
        let (sum, _) = out[place(m)..][..BLOCK].as_chunks_mut::<LANES>();
        s.store(sums[m][0], &mut sum[0]);
        s.store(sums[m][1], &mut sum[1]);
    }
}

/// Adds the values of a pair of tokens.
#[inline(always)]
fn add_pair<S: Simd, F: PanelProducts, const M: usize>(
    s: S,
    step: &F::Step,
    weights: &[[F::Row; PAIRS]; M],
    pair: usize,
    sums: &mut [[S::F; 2]; M],
) {
    let mut rows = [F::Row::default(); M];
    for m in 0..M {
        rows[m] = weights[m][pair];
    }
    F::multiply_add(s, step, 0, &rows, sums);
}
