//! Tiles that go through their context together, span by span: those of a prompt, or of sequences with the same beginning.
//!
//! A span is read from memory once for all of them, and stays in a cache. Numbers that are widened to `float32`
//! for each product of a tile are widened once instead, to memory of the thread. The chains of sums are the same.

use std::ops::Range;

use super::fetch::KeyRange;
use super::plan::RowTile;
use super::span::SpanJob;
use super::tile::{Gather, Memory, Queries, TileHead, TileMemory, finish, merge_span};
use super::{BLOCK, KvBlocks, Places, SPAN, covering, spans};
use crate::isa::Isa;
use crate::matmul::{
    Bf16Products, F32Step, FloatPair, InputPair, KvStep, PanelProducts, RowStep as _, TemporaryPanel, Widen,
    WidenedProducts, WidenedStep,
};
use crate::parallel::Disjoint;

/// Tiles and a key-value head.
#[derive(Clone, Copy)]
pub(super) struct Group<'a, T> {
    /// The first of them.
    pub(super) head: TileHead<'a, T>,
    /// All of them.
    pub(super) tiles: &'a [RowTile],
    /// The leading blocks that all rows share.
    pub(super) common_blocks: usize,
}

impl<'a, T: KvStep> Group<'a, T> {
    /// The tiles with the head.
    fn heads(self) -> impl Iterator<Item = TileHead<'a, T>> {
        self.tiles.iter().map(move |tile| TileHead { tile, ..self.head })
    }

    /// Whether all rows share the span from position `start` on.
    fn shares(self, start: usize) -> bool {
        start + SPAN <= self.common_blocks.saturating_mul(BLOCK)
    }

    /// The spans that any row attends to.
    pub(super) fn spans(self) -> Range<usize> {
        covering(self.heads().map(spans))
    }

    /// The tokens of the span from position `start` on that any row attends to.
    fn visible(self, start: usize) -> Range<usize> {
        covering(self.heads().map(|head| head.all_visible(start)))
    }
}

/// The arithmetic of keys and values.
pub(super) trait KvProducts: PanelProducts<Step: KvStep, Row: InputPair> {
    /// Computes the span from position `start` on for the tiles of a group, and merges it into those before.
    fn compute_span(
        isa: Isa,
        group: Group<'_, Self::Step>,
        start: usize,
        order: [KeyRange; 2],
        memory: &mut Memory<'_, Self::Row>,
    ) {
        compute_tiles::<Self>(isa, group, start, order, memory);
    }
}

impl KvProducts for Bf16Products {}

impl<T: WidenedStep + KvStep, R: FloatPair + InputPair> KvProducts for WidenedProducts<T, R> {
    fn compute_span(
        isa: Isa,
        group: Group<'_, T>,
        start: usize,
        order: [KeyRange; 2],
        memory: &mut Memory<'_, R>,
    ) {
        // A widened number has no scale.
        if T::IS_WIDE || T::SCALE_STEPS > 0 || group.tiles.len() == 1 || !group.shares(start) {
            return compute_tiles::<Self>(isa, group, start, order, memory);
        }
        let TileHead { shape, bias, blocks, kv_head, .. } = group.head;
        let tokens = group.visible(start);
        let places = tokens.start / BLOCK..tokens.end.div_ceil(BLOCK);
        let row = group.head.tile.rows.start;
        let of_block = |place: usize| {
            let block = start / BLOCK + place;
            (blocks.keys(row, block, kv_head), blocks.values(row, block, kv_head))
        };
        let Some((keys, values)) = places.clone().next().map(of_block) else { return };
        let (of_keys, of_values) = (keys.len(), values.len());
        let num_steps = places.len() * (of_keys + of_values);
        WidenedProducts::<F32Step, R>::with_steps(num_steps, |steps| {
            let wide = steps.chunks_exact_mut(of_keys + of_values);
            for (out, (keys, values)) in wide.zip(places.clone().map(of_block)) {
                let (wide_keys, wide_values) = out.split_at_mut(of_keys);
                isa.run(Widen { steps: keys, out: wide_keys });
                isa.run(Widen { steps: values, out: wide_values });
            }
            let first = start / BLOCK + places.start;
            let blocks = &WideSpan { blocks, first, of_keys, of_block: of_keys + of_values, steps };
            let head = TileHead { shape, bias, blocks, tile: group.head.tile, kv_head, is_near: true };
            let group = Group { head, tiles: group.tiles, common_blocks: group.common_blocks };
            compute_tiles::<WidenedProducts<F32Step, R>>(isa, group, start, order, memory);
        });
    }
}

/// Computes a span for one tile after the other.
fn compute_tiles<F: PanelProducts<Step: KvStep, Row: InputPair>>(
    isa: Isa,
    group: Group<'_, F::Step>,
    start: usize,
    order: [KeyRange; 2],
    memory: &mut Memory<'_, F::Row>,
) {
    let shares = group.shares(start);
    for (place, mut head) in group.heads().enumerate() {
        if head.all_visible(start).is_empty() {
            continue;
        }
        head.is_near |= shares && place > 0;
        let TileMemory { queries, mut working, mut part, mut merged } =
            memory.tile(place, head.num_queries());
        let job = SpanJob::<F> { head, start, order, queries, working: &mut working, part: &mut part };
        F::Row::run(isa, job);
        merge_span(isa, head, start, &part, &mut merged);
    }
}

/// Some blocks of a cache, widened.
struct WideSpan<'a, T> {
    blocks: &'a dyn KvBlocks<T>,
    /// The first block.
    first: usize,
    /// The steps of the keys of a block, and of all that a block has.
    of_keys: usize,
    of_block: usize,
    /// The keys of a block, then its values.
    steps: &'a [F32Step],
}

impl<T> WideSpan<'_, T> {
    fn block(&self, block: usize) -> &[F32Step] {
        &self.steps[(block - self.first) * self.of_block..][..self.of_block]
    }
}

impl<T: KvStep> KvBlocks<F32Step> for WideSpan<'_, T> {
    fn context_len(&self, row: usize) -> usize {
        self.blocks.context_len(row)
    }

    fn places(&self, row: usize) -> Places<'_> {
        self.blocks.places(row)
    }

    fn keys(&self, _row: usize, block: usize, _kv_head: usize) -> &[F32Step] {
        &self.block(block)[..self.of_keys]
    }

    fn values(&self, _row: usize, block: usize, _kv_head: usize) -> &[F32Step] {
        &self.block(block)[self.of_keys..]
    }

    fn shared_blocks(&self, row: usize, other: usize) -> usize {
        self.blocks.shared_blocks(row, other)
    }
}

/// Computes the rows of a group and writes them to `out`, `[num_rows, num_heads, head_dim]`. `next` is what the
/// thread computes after it.
pub(super) fn compute<F: KvProducts>(
    isa: Isa,
    group: Group<'_, F::Step>,
    next: Option<Group<'_, F::Step>>,
    queries: Queries<'_>,
    memory: &mut Memory<'_, F::Row>,
    out: &Disjoint<'_, f32>,
) {
    for (place, head) in group.heads().enumerate() {
        let TileMemory { queries: packed, .. } = memory.tile(place, head.num_queries());
        F::Row::run(isa, Gather { head, queries, out: packed });
    }
    let order = [KeyRange::of(group.head), next.map_or(KeyRange::default(), |next| KeyRange::of(next.head))];
    for span in group.spans() {
        F::compute_span(isa, group, span * SPAN, order, memory);
    }
    for (place, head) in group.heads().enumerate() {
        let TileMemory { merged, .. } = memory.tile(place, head.num_queries());
        finish(isa, head, &merged, out);
    }
}
