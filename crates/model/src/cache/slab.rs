//! The slab of one number type: segments of blocks, with reads, writes and copies.
//!
//! Generic over its steps: the type is matched once per pass, outside the loops. It addresses numbers by
//! block id and offset and knows neither tables nor reference counts.

use std::ops::Range;

use super::capacity::KvCapacity;
use super::layout::{BLOCK_TOKENS, BlockCopy, KvLayout};
use super::segment::Segment;
use rsgen_core::error::Result;
use rsgen_core::types::BlockId;
use rsgen_kernels::{KvStep, Prefaulter, Workers};

/// A block and a token in it.
type Slot = (BlockId, usize);

/// The least tokens to write on several threads.
const MANY: usize = 2 * BLOCK_TOKENS;

/// The keys and values of several tokens of a layer, and a function to prepare them before they are stored.
pub struct KvRows<'a, P> {
    /// All rows, `[num_rows, stride]`.
    pub numbers: &'a mut [f32],
    /// The elements of a row.
    pub stride: usize,
    /// The offset of K in a row; V follows.
    pub first: usize,
    /// Called with the index of each row and the row before it is stored.
    pub prepare: P,
}

/// All allocated blocks.
#[derive(Debug)]
pub(super) struct Slab<T> {
    layout: KvLayout,
    max_blocks: usize,
    places: Places,
    segments: Vec<Segment<T>>,
    num_blocks: usize,
}

impl<T: KvStep> Slab<T> {
    pub(super) fn new(capacity: KvCapacity) -> Self {
        Self {
            layout: *capacity.layout(),
            max_blocks: capacity.max_blocks(),
            places: Places {
                segment_shift: capacity.segment_blocks().trailing_zeros(),
                block_steps: capacity.layout().block_steps(),
            },
            segments: Vec::new(),
            num_blocks: 0,
        }
    }

    /// The allocated blocks.
    pub(super) fn num_blocks(&self) -> usize {
        self.num_blocks
    }

    /// Extends the last segment towards `num_blocks` blocks, or adds one.
    pub(super) fn grow(&mut self, num_blocks: usize, workers: &Workers) -> Result<()> {
        let block_steps = self.places.block_steps;
        let (blocks, segment) = self.segment_of(self.num_blocks)?;
        let end = num_blocks.min(blocks.end);
        segment.extend_to((end - blocks.start) * block_steps, workers);
        self.num_blocks = end;
        Ok(())
    }

    /// The segment of a block, added if it is the next one, and the blocks that it has room for.
    fn segment_of(&mut self, block: usize) -> Result<(Range<usize>, &mut Segment<T>)> {
        let Places { segment_shift, block_steps } = self.places;
        let index = block >> segment_shift;
        let start = index << segment_shift;
        let end = self.max_blocks.min(start + (1 << segment_shift));
        if index == self.segments.len() {
            self.segments.push(Segment::with_capacity((end - start) * block_steps)?);
        }
        Ok((start..end, &mut self.segments[index]))
    }

    /// Prefaults the memory of blocks that are not allocated yet, as far as the system gives any.
    pub(super) fn prefault(&mut self, blocks: Range<usize>, prefaulter: &Prefaulter) {
        let block_steps = self.places.block_steps;
        let mut begin = blocks.start;
        while begin < blocks.end {
            // Growth says so if there is still none when it is needed.
            let Ok((all, segment)) = self.segment_of(begin) else { return };
            let end = blocks.end.min(all.end);
            let steps = (begin - all.start) * block_steps..(end - all.start) * block_steps;
            prefaulter.add(segment.untouched(steps));
            begin = end;
        }
    }

    /// Drops the segments that hold none of the first `num_blocks` blocks.
    pub(super) fn shrink(&mut self, num_blocks: usize) {
        self.segments.truncate(num_blocks.div_ceil(1 << self.places.segment_shift));
        self.num_blocks = self.num_blocks.min(self.segments.len() << self.places.segment_shift);
    }

    /// The numbers of all layers of one block.
    fn block_mut(&mut self, block: BlockId) -> &mut [T] {
        let (segment, start) = self.places.locate(block);
        &mut self.segments[segment][start..][..self.places.block_steps]
    }

    /// Two different blocks, the first to be read, the second to be written.
    fn pair_mut(&mut self, source: BlockId, target: BlockId) -> (&[T], &mut [T]) {
        let (source_segment, source_start) = self.places.locate(source);
        let (target_segment, target_start) = self.places.locate(target);
        let steps = self.places.block_steps;
        if source_segment == target_segment {
            let ranges = [source_start, target_start].map(|start| start..start + steps);
            let [source, target] = self.segments[source_segment]
                .get_disjoint_mut(ranges)
                .expect("a block is copied to another one, within the slab");
            (source, target)
        } else {
            let [source, target] = self
                .segments
                .get_disjoint_mut([source_segment, target_segment])
                .expect("both blocks are within the slab");
            (&source[source_start..][..steps], &mut target[target_start..][..steps])
        }
    }

    /// Scatters one token of one layer. `key` and `value` are `[num_kv_heads][head_dim]`.
    pub(super) fn write(&mut self, layer: usize, (block, offset): Slot, key: &[f32], value: &[f32]) {
        let layout = self.layout;
        assert!(layer < layout.num_layers(), "layer {layer} of {}", layout.num_layers());
        write_token(layout, self.block_mut(block), layer, offset, key, value);
    }

    /// Prepares and scatters many tokens of one layer, on all threads: a block is written by one of them.
    pub(super) fn write_all<P: Fn(usize, &mut [f32]) + Sync>(
        &mut self,
        workers: &Workers,
        layer: usize,
        slots: &[Slot],
        rows: KvRows<'_, P>,
    ) {
        let (layout, KvRows { numbers, stride, first, prepare }) = (self.layout, rows);
        assert!(layer < layout.num_layers(), "layer {layer} of {}", layout.num_layers());
        assert_eq!(numbers.len(), slots.len() * stride, "a row for each slot");
        let write = |block: &mut [T], row: usize, numbers: &mut [f32]| {
            prepare(row, numbers);
            let len = layout.row_elements();
            let (key, value) = numbers[first..][..2 * len].split_at(len);
            write_token(layout, block, layer, slots[row].1, key, value);
        };
        let runs = if slots.len() < MANY { Vec::new() } else { runs_of_blocks(slots) };
        if runs.is_empty() {
            for (row, numbers) in numbers.chunks_exact_mut(stride).enumerate() {
                write(self.block_mut(slots[row].0), row, numbers);
            }
            return;
        }
        let mut left = numbers;
        let mut runs: Vec<_> = runs
            .into_iter()
            .map(|(block, rows)| {
                let of_run = left.split_off_mut(..rows.len() * stride).expect("a row for each slot");
                (block, rows, of_run)
            })
            .collect();
        runs.sort_unstable_by_key(|&(block, ..)| block);
        let steps = self.places.block_steps;
        let mut blocks =
            self.segments.iter_mut().flat_map(|segment| segment.chunks_exact_mut(steps)).enumerate();
        let mut jobs = Vec::with_capacity(runs.len());
        for (block, rows, numbers) in runs {
            let found = blocks.find(|&(index, _)| index == block).expect("the block is within the slab");
            jobs.push((found.1, rows, numbers));
        }
        workers.for_each_chunk(&mut jobs, 1, |_, jobs| {
            for (block, rows, numbers) in jobs {
                for (row, numbers) in rows.clone().zip(numbers.chunks_exact_mut(stride)) {
                    write(block, row, numbers);
                }
            }
        });
    }

    /// Copies the first tokens of a block, all layers; later tokens of the target become unspecified.
    pub(super) fn copy(&mut self, &BlockCopy { source, target, tokens }: &BlockCopy) {
        assert!(tokens <= BLOCK_TOKENS, "{tokens} tokens of a block of {BLOCK_TOKENS}");
        let layout = self.layout;
        let keys = layout.value_offset(0);
        let (source, target) = self.pair_mut(source, target);
        let layers = source.chunks_exact(layout.layer_steps());
        for (source, target) in layers.zip(target.chunks_exact_mut(layout.layer_steps())) {
            let (source_keys, source_values) = source.split_at(keys);
            let (target_keys, target_values) = target.split_at_mut(keys);
            // Each step of K has numbers of all tokens, one of V those of two.
            target_keys.copy_from_slice(source_keys);
            let heads = source_values.chunks_exact(layout.value_steps());
            for (source, target) in heads.zip(target_values.chunks_exact_mut(layout.value_steps())) {
                let planes = source.chunks_exact(BLOCK_TOKENS / 2);
                let scales = planes.remainder();
                target[source.len() - scales.len()..].copy_from_slice(scales);
                for (source, target) in planes.zip(target.chunks_exact_mut(BLOCK_TOKENS / 2)) {
                    target[..tokens.div_ceil(2)].copy_from_slice(&source[..tokens.div_ceil(2)]);
                }
            }
        }
    }

    pub(super) fn view(&self, layer: usize) -> TypedKv<'_, T> {
        assert!(layer < self.layout.num_layers(), "layer {layer} of {}", self.layout.num_layers());
        TypedKv {
            segments: &self.segments,
            layout: self.layout,
            places: self.places,
            keys: Part { offset: self.layout.key_offset(layer), head_steps: self.layout.key_steps() },
            values: Part { offset: self.layout.value_offset(layer), head_steps: self.layout.value_steps() },
        }
    }
}

/// The written blocks, each with its rows; `None` if the rows of a block are not adjacent.
fn runs_of_blocks(slots: &[Slot]) -> Vec<(usize, Range<usize>)> {
    let mut runs: Vec<(usize, Range<usize>)> = Vec::new();
    for (row, &(block, _)) in slots.iter().enumerate() {
        match runs.last_mut() {
            Some((last, rows)) if *last == block.index() => rows.end = row + 1,
            _ => runs.push((block.index(), row..row + 1)),
        }
    }
    let mut blocks: Vec<usize> = runs.iter().map(|&(block, _)| block).collect();
    blocks.sort_unstable();
    if blocks.windows(2).any(|pair| pair[0] == pair[1]) {
        runs.clear();
    }
    runs
}

/// Writes one token of one layer into its block.
fn write_token<T: KvStep>(
    layout: KvLayout,
    block: &mut [T],
    layer: usize,
    offset: usize,
    key: &[f32],
    value: &[f32],
) {
    let head_dim = layout.head_dim();
    assert!(offset < BLOCK_TOKENS, "offset {offset} in a block of {BLOCK_TOKENS} tokens");
    assert_eq!(key.len(), layout.row_elements(), "K of one token is [num_kv_heads][head_dim]");
    assert_eq!(value.len(), layout.row_elements(), "V of one token is [num_kv_heads][head_dim]");

    let (keys, values) = block[layout.key_offset(layer)..][..layout.layer_steps()]
        .split_at_mut(layout.value_offset(layer) - layout.key_offset(layer));
    for (steps, numbers) in keys.chunks_exact_mut(layout.key_steps()).zip(key.chunks_exact(head_dim)) {
        T::set_key(steps, offset, numbers);
    }
    for (steps, numbers) in values.chunks_exact_mut(layout.value_steps()).zip(value.chunks_exact(head_dim)) {
        T::set_value(steps, offset, numbers);
    }
}

/// K and V of one layer, for attention kernels: a few words, to be copied to each worker.
///
/// Numbers past the end of a sequence are unspecified: zeros, those of an earlier owner of the block, even
/// NaN or infinity of a failed request. A kernel must not use them, not even times zero. Only the padding of
/// `head_dim` is always zero.
#[derive(Debug, Clone, Copy)]
pub struct TypedKv<'a, T> {
    segments: &'a [Segment<T>],
    layout: KvLayout,
    places: Places,
    keys: Part,
    values: Part,
}

/// K or V of one layer within a block.
#[derive(Debug, Clone, Copy)]
struct Part {
    /// The offset of head 0.
    offset: usize,
    head_steps: usize,
}

impl<'a, T> TypedKv<'a, T> {
    /// K of one head in one block: `[ceil(head_dim / 2)]` steps, whose outputs are the tokens.
    ///
    /// # Panics
    /// When the store has no such block or head.
    #[inline]
    pub fn keys(&self, block: BlockId, kv_head: usize) -> &'a [T] {
        self.head(block, self.keys, kv_head)
    }

    /// V of one head in one block: `[planes][16]` steps, whose outputs are the dimensions of the plane.
    ///
    /// # Panics
    /// When the store has no such block or head.
    #[inline]
    pub fn values(&self, block: BlockId, kv_head: usize) -> &'a [T] {
        self.head(block, self.values, kv_head)
    }

    /// The shape of the cache.
    pub fn layout(&self) -> &KvLayout {
        &self.layout
    }

    #[inline]
    fn head(&self, block: BlockId, Part { offset, head_steps }: Part, kv_head: usize) -> &'a [T] {
        assert!(kv_head < self.layout.num_kv_heads(), "kv head {kv_head} of {}", self.layout.num_kv_heads());
        let (segment, start) = self.places.locate(block);
        &self.segments[segment][start + offset + kv_head * head_steps..][..head_steps]
    }
}

/// Locates blocks. It caches products of the layout, because kernels use it once per block and head.
#[derive(Debug, Clone, Copy)]
struct Places {
    /// A segment has two to the power of this many blocks, except for the last one.
    segment_shift: u32,
    block_steps: usize,
}

impl Places {
    /// The segment of a block, and the offset of the block in it.
    #[inline]
    fn locate(self, block: BlockId) -> (usize, usize) {
        let index = block.index();
        let within = index & ((1 << self.segment_shift) - 1);
        (index >> self.segment_shift, within * self.block_steps)
    }
}
