//! The scores and the weighted values of one span of the context.

use std::cmp::Ordering;
use std::hint::black_box;
use std::ops::Range;

use super::fetch::{Fetch, KeyRange};
use super::plan::MOST_ROWS;
use super::tile::{Part, TileHead, Working};
use super::values::{Tokens, Weights, add_values};
use super::{BLOCK, SPAN, covering, half_query_tile};
use crate::activation::SoftCap;
use crate::matmul::{InputPair, KvStep, PanelProducts};
use crate::reduce;
use crate::simd::{LANES, Simd, SimdOp};
use crate::softmax::exp_and_sum;

/// The keys and the values of a head in a block.
#[derive(Clone, Copy)]
struct Steps<'a, T> {
    keys: &'a [T],
    values: &'a [T],
}

/// Computes a span of the context of a tile.
pub(super) struct SpanJob<'a, 'm, 'p, F: PanelProducts> {
    pub(super) head: TileHead<'a, F::Step>,
    /// The position of the first token.
    pub(super) start: usize,
    /// The key ranges in reading order: this context from its first span on, then that of another tile.
    pub(super) order: [KeyRange; 2],
    /// `[ceil(head_dim / 2), queries]`
    pub(super) queries: &'a [F::Row],
    pub(super) working: &'a mut Working<'m, F::Row>,
    /// The result.
    pub(super) part: &'a mut Part<'p>,
}

impl<F: PanelProducts<Step: KvStep, Row: InputPair>> SimdOp for SpanJob<'_, '_, '_, F> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let Working { scores, pairs, by_token } = self.working;
        let Part { values, now } = self.part;
        let span = Span::<F>::new(self.head, self.start, self.order);
        span.scores(s, self.queries, scores);
        for place in 0..self.head.tile.rows.len() {
            let visible = span.visible(place);
            for query in span.queries(place) {
                span.bias(s, place, self.head.query_head(query), &mut scores[query]);
                now[query] = exponentials(s, &mut scores[query], &visible);
                span.scale_weights(place, &mut scores[query]);
            }
        }
        let by_query = F::Row::pairs(s, scores, span.all_visible.end, pairs);
        let weights = Weights::new(s, by_query, by_token, &span.all_visible);
        values.fill(0.0);
        span.weighted_values(s, weights, values);
    }
}

/// One span of the context of a tile.
pub(super) struct Span<'a, F: PanelProducts> {
    pub(super) head: TileHead<'a, F::Step>,
    /// Queries of a row.
    group: usize,
    /// The position of the first token.
    start: usize,
    /// The tokens that each row of the tile attends to.
    visible: [(usize, usize); MOST_ROWS],
    /// From the first token that any row attends to, to the last.
    all_visible: Range<usize>,
    /// The end of the blocks that all rows share.
    common_end: usize,
    /// The shared tokens that all rows attend to, in whole pairs. A row handles half a pair by itself.
    common: Range<usize>,
    /// Whether to prefetch keys and values.
    pub(super) is_cold: bool,
    order: [KeyRange; 2],
    /// The blocks that all rows share.
    steps: [Steps<'a, F::Step>; SPAN / BLOCK],
}

impl<'a, F: PanelProducts<Step: KvStep, Row: InputPair>> Span<'a, F> {
    #[inline(always)]
    fn new(head: TileHead<'a, F::Step>, start: usize, order: [KeyRange; 2]) -> Self {
        let TileHead { blocks, tile, kv_head, .. } = head;
        let mut visible = [(0, 0); MOST_ROWS];
        let (mut last_start, mut first_end) = (0, SPAN);
        for (place, visible) in visible[..tile.rows.len()].iter_mut().enumerate() {
            let Range { start, end } = head.visible(place, start);
            *visible = (start, end);
            (last_start, first_end) = (last_start.max(start), first_end.min(end));
        }
        let all_visible = covering(visible[..tile.rows.len()].iter().map(|&(start, end)| start..end));
        let common_end = tile.common_blocks.saturating_mul(BLOCK).saturating_sub(start);
        let common_start = last_start.next_multiple_of(2);
        let common = common_start..(first_end.min(common_end) / 2 * 2).max(common_start);
        let group = head.group();
        let mut steps = [Steps { keys: &[][..], values: &[][..] }; SPAN / BLOCK];
        for place in all_visible.start / BLOCK..all_visible.end.min(common_end).div_ceil(BLOCK) {
            let block = start / BLOCK + place;
            steps[place] = Steps {
                keys: blocks.keys(tile.rows.start, block, kv_head),
                values: blocks.values(tile.rows.start, block, kv_head),
            };
        }
        Self {
            head,
            group,
            start,
            visible,
            all_visible,
            common_end,
            common,
            is_cold: !head.is_near,
            order,
            steps,
        }
    }

    /// The tokens of the span that a row of the tile attends to.
    #[inline(always)]
    fn visible(&self, place: usize) -> Range<usize> {
        let (start, end) = self.visible[place];
        start..end
    }

    /// The queries of a row of the tile.
    #[inline(always)]
    fn queries(&self, place: usize) -> Range<usize> {
        place * self.group..(place + 1) * self.group
    }

    /// The queries of all rows.
    #[inline(always)]
    fn all_queries(&self) -> Range<usize> {
        0..self.head.tile.rows.len() * self.group
    }

    /// The keys of the block at `at`, as a row sees it.
    #[inline(always)]
    fn keys(&self, place: usize, at: usize) -> &'a [F::Step] {
        if at < self.common_end {
            return self.steps[at / BLOCK].keys;
        }
        self.head.blocks.keys(self.head.tile.rows.start + place, (self.start + at) / BLOCK, self.head.kv_head)
    }

    /// The values of the block at `at`, as a row sees it.
    #[inline(always)]
    pub(super) fn values(&self, place: usize, at: usize) -> &'a [F::Step] {
        if at < self.common_end {
            return self.steps[at / BLOCK].values;
        }
        self.head.blocks.values(
            self.head.tile.rows.start + place,
            (self.start + at) / BLOCK,
            self.head.kv_head,
        )
    }

    /// `N` planes of the values of the block at `at`, from `plane` on, as a row sees them.
    #[inline(always)]
    pub(super) fn planes<const N: usize>(
        &self,
        place: usize,
        at: usize,
        plane: usize,
    ) -> &'a [[F::Step; BLOCK / 2]; N] {
        let (planes, _) = self.values(place, at).as_chunks();
        planes[plane..].first_chunk().expect("so many planes")
    }

    /// The keys that the thread reads a span after those at `at`. They are on their way while values are
    /// read, as values are while keys are read, so that memory is never idle.
    #[inline(always)]
    pub(super) fn keys_ahead(&self, at: usize) -> &'a [F::Step] {
        let [now, next] = self.order;
        let token = self.start + at + SPAN;
        let (token, range) = if token < now.end {
            (token, now)
        } else {
            (token - now.end.next_multiple_of(BLOCK) + next.start, next)
        };
        if token < range.end { self.head.blocks.keys(range.row, token / BLOCK, range.kv_head) } else { &[] }
    }

    /// Computes the scores of all visible tokens, and of some others.
    #[inline(always)]
    fn scores<S: Simd>(&self, s: S, queries: &[F::Row], scores: &mut [[f32; SPAN]]) {
        let (num_rows, Range { start, end }) = (self.head.tile.rows.len(), self.all_visible.clone());
        let mut at = start / BLOCK * BLOCK;
        while at < end {
            let is_common = at < self.common_end;
            let (rows, mut step) = (if is_common { 0..1 } else { 0..num_rows }, BLOCK);
            for place in rows {
                let visible = if is_common { start..end } else { self.visible(place) };
                if at + BLOCK <= visible.start || visible.end <= at {
                    continue;
                }
                if is_few::<S>(self.all_queries().len()) && is_common && at + BLOCK < end.min(self.common_end)
                {
                    step = 2 * BLOCK;
                    let blocks =
                        [self.block(s, place, at, step, end), self.block(s, place, at + BLOCK, step, end)];
                    for_few_queries!(self.all_queries(), block_scores(s, queries, &blocks, &mut *scores));
                } else {
                    let queries_of_block = if is_common { self.all_queries() } else { self.queries(place) };
                    let block = [self.block(s, place, at, step, visible.end)];
                    for_query_tiles!(queries_of_block, block_scores(s, queries, &block, &mut *scores));
                }
            }
            at += step;
        }
    }

    /// The inputs for the scores of a block.
    #[inline(always)]
    fn block<S: Simd>(
        &self,
        s: S,
        place: usize,
        at: usize,
        distance: usize,
        end: usize,
    ) -> Block<'a, S, F::Step> {
        let keys = self.keys(place, at);
        let mut scale = [s.splat(self.head.shape.scale); 2];
        if let Some(scales) = F::Step::scales(keys) {
            let (scales, _) = scales.as_chunks();
            scale = [s.mul(scale[0], s.load(&scales[0])), s.mul(scale[1], s.load(&scales[1]))];
        }
        let mut fetch = Fetch { near: &[][..], far: &[] };
        if self.is_cold {
            let next = at + distance;
            // Other rows may go on after this one.
            fetch.near = if next < end.min(self.visible(place).end) { self.keys(place, next) } else { &[] };
            fetch.far = self.values(place, at);
        }
        Block { keys, scale, at, fetch }
    }

    /// Bends the scores of a query, and adds what the distances of the tokens are worth.
    #[inline(always)]
    fn bias<S: Simd>(&self, s: S, place: usize, head: usize, scores: &mut [f32; SPAN]) {
        let visible = self.visible(place);
        if let Some(cap) = self.head.shape.softcap {
            let (vectors, _) = scores.as_chunks_mut::<LANES>();
            for vector in &mut vectors[visible.start / LANES..visible.end.div_ceil(LANES)] {
                s.store(SoftCap(cap).apply(s, s.load(vector)), vector);
            }
        }
        if let Some(slopes) = self.head.bias.slopes {
            let last = self.head.blocks.context_len(self.head.tile.rows.start + place) - 1;
            for (at, score) in scores.iter_mut().enumerate().take(visible.end).skip(visible.start) {
                *score -= slopes.of(head, self.start + at, last);
            }
        }
        if let Some(distances) = self.head.bias.distances {
            let places = self.head.blocks.places(self.head.tile.rows.start + place);
            distances.add(head, places, self.start + visible.start, &mut scores[visible]);
        }
    }

    /// Multiplies the weights of a query by the scales of its visible tokens.
    #[inline(always)]
    fn scale_weights(&self, place: usize, weights: &mut [f32; SPAN]) {
        if F::Step::SCALE_STEPS == 0 {
            return;
        }
        let visible = self.visible(place);
        for at in (visible.start / BLOCK * BLOCK..visible.end).step_by(BLOCK) {
            let values = self.values(place, at);
            let Some(scales) = F::Step::scales(values) else { continue };
            let range = visible.start.max(at)..visible.end.min(at + BLOCK);
            for (weight, scale) in weights[range.clone()].iter_mut().zip(&scales[range.start - at..]) {
                *weight *= scale;
            }
        }
    }

    /// Adds the weighted values to `out`, `[queries, head_dim rounded up to planes]`. Invisible tokens have
    /// no weight.
    #[inline(always)]
    fn weighted_values<S: Simd>(&self, s: S, weights: Weights<'_, F::Row>, out: &mut [f32]) {
        let (num_rows, common) = (self.head.tile.rows.len(), &self.common);
        let planes = self.head.shape.head_dim.div_ceil(BLOCK);
        let mut plane = 0;
        while plane < planes {
            let is_double = is_few::<S>(self.all_queries().len()) && plane + 1 < planes;
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
                if tokens.is_empty() {
                    continue;
                }
                let tokens = Tokens { place, range: tokens, plane };
                if is_double {
                    for_few_queries!(queries, add_values(s, self, &tokens, weights, &mut *out));
                } else {
                    for_query_tiles!(queries, add_values(s, self, &tokens, weights, &mut *out));
                }
            }
            plane += 1 + usize::from(is_double);
        }
    }
}

/// The steps that are multiplied between prefetches, which take registers from the sums.
pub(super) const STRETCH: usize = 8;

/// The most queries that are computed in two blocks or planes at once.
const MOST_FEW: usize = 4;

/// Whether registers hold the sums of so many queries twice. Then two blocks of keys, or two planes of
/// values, are computed together: the chains of one alone are too few to keep the multipliers busy.
#[inline(always)]
fn is_few<S: Simd>(num_queries: usize) -> bool {
    num_queries <= MOST_FEW && 2 * num_queries <= S::QUERY_TILE
}

/// The keys of 32 tokens.
struct Block<'a, S: Simd, T> {
    keys: &'a [T],
    /// The scale of each token.
    scale: [S::F; 2],
    /// Where its tokens begin in the span.
    at: usize,
    fetch: Fetch<'a, T>,
}

/// The scores of `M` queries, from `query` on, with the 32 tokens of each of `N` blocks, or with half of them: one
/// chain over the dimensions each. `V` vectors of tokens, from `first` on.
///
/// `queries` is `[ceil(head_dim / 2), queries]`.
#[inline(always)]
fn block_scores<S: Simd, F: PanelProducts, const M: usize, const N: usize, const V: usize>(
    s: S,
    query: usize,
    first: usize,
    queries: &[F::Row],
    blocks: &[Block<'_, S, F::Step>; N],
    scores: &mut [[f32; SPAN]],
) {
    let mut sums = [[[s.splat(0.0); V]; M]; N];
    let (width, num_steps) = (scores.len(), queries.len() / scores.len());
    for start in (0..num_steps).step_by(STRETCH) {
        let end = num_steps.min(start + STRETCH);
        // Once, for the queries after them too. Blocks that later rows have for themselves are few and not fetched.
        if query == 0 && first == 0 {
            for n in 0..N {
                blocks[n].fetch.beside(s, start..end);
            }
        }
        let mut keys = blocks.each_ref().map(|block| block.keys[start..end].iter());
        'steps: for queries in queries[start * width..end * width].chunks_exact(width) {
            let queries = queries[query..].first_chunk().expect("as many as that");
            for n in 0..N {
                let Some(keys) = keys[n].next() else { break 'steps };
                F::multiply_add(s, keys, first, queries, &mut sums[n]);
            }
        }
    }
    for n in 0..N {
        let Block { scale, at, .. } = blocks[n];
        for m in 0..M {
            let (out, _) = scores[query + m][at..at + BLOCK].as_chunks_mut::<LANES>();
            for v in 0..V {
                s.store(s.mul(sums[n][m][v], scale[first + v]), &mut out[first + v]);
            }
        }
    }
}

/// Replaces the scores of the visible tokens by their exponentials, and those of their neighbours in a vector
/// by 0; returns the largest score and the sum.
#[inline(always)]
fn exponentials<S: Simd>(s: S, scores: &mut [f32; SPAN], visible: &Range<usize>) -> [f32; 2] {
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
