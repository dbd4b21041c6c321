//! The floats of the KV cache.
//!
//! K and V of all blocks, in f32, bf16 or scaled integers. It allocates memory as the pool grows, and does
//! not know which sequence uses a block: the caller must perform appends, [`BlockCopy`]s, writes and reads in
//! the right order.

use super::capacity::KvCapacity;
use super::layout::{BlockCopy, KvDtype, KvLayout};
use super::shift::{BlockShift, KeyRotation};
use super::slab::{KvRows, Slab, TypedKv};
use rsgen_core::error::{Error, Result};
use rsgen_core::message;
use rsgen_core::types::BlockId;
use rsgen_kernels::{Bf16Step, F32Step, I8Step, Isa, Prefaulter, Workers};

/// The most memory that is prefaulted, in bytes.
const PREFAULT_BYTES: usize = 256 << 20;
/// A smaller cache is not worth a thread.
const LEAST_BYTES: usize = 32 << 20;

/// K and V of all layers and blocks.
#[derive(Debug)]
pub struct KvStore {
    capacity: KvCapacity,
    slab: AnySlab,
    prefaulter: Prefaulter,
    /// The blocks that are allocated or prefaulted.
    prefaulted: usize,
}

#[derive(Debug)]
enum AnySlab {
    F32(Slab<F32Step>),
    Bf16(Slab<Bf16Step>),
    I8(Slab<I8Step>),
}

/// K and V of one layer in the type in which they are stored.
#[derive(Debug, Clone, Copy)]
pub enum KvView<'a> {
    /// Stored as float32.
    F32(TypedKv<'a, F32Step>),
    /// Stored as bfloat16.
    Bf16(TypedKv<'a, Bf16Step>),
    /// Stored as scaled 8-bit integers.
    I8(TypedKv<'a, I8Step>),
}

/// Evaluates an expression on the slab of whichever type.
macro_rules! on_slab {
    ($slab:expr, $name:ident => $body:expr) => {
        match $slab {
            AnySlab::F32($name) => $body,
            AnySlab::Bf16($name) => $body,
            AnySlab::I8($name) => $body,
        }
    };
}

impl KvStore {
    /// A store without memory, for the capacity of its pool.
    pub fn new(capacity: KvCapacity) -> Self {
        let slab = match capacity.layout().dtype() {
            KvDtype::F32 => AnySlab::F32(Slab::new(capacity)),
            KvDtype::Bf16 => AnySlab::Bf16(Slab::new(capacity)),
            KvDtype::I8 => AnySlab::I8(Slab::new(capacity)),
        };
        Self { capacity, slab, prefaulter: Prefaulter::default(), prefaulted: 0 }
    }

    /// The shape of the cache.
    pub fn layout(&self) -> &KvLayout {
        self.capacity.layout()
    }

    /// The allocated blocks.
    pub fn num_blocks(&self) -> usize {
        on_slab!(&self.slab, slab => slab.num_blocks())
    }

    /// The allocated bytes.
    pub fn num_bytes(&self) -> usize {
        self.num_blocks() * self.layout().bytes_per_block()
    }

    /// Allocates memory, zeroed on all threads, until there are at least `num_blocks` blocks. Call it with
    /// the pool's [`num_blocks`](super::SharedPool::num_blocks) after the appends and before the copies and
    /// writes of a pass. Without growth it costs nothing; blocks never move.
    ///
    /// # Errors
    /// `Capacity` when the system does not give the memory; what was there before stays usable, and a later
    /// call tries again. `Internal` when `num_blocks` exceeds the capacity.
    pub fn ensure(&mut self, num_blocks: usize, workers: &Workers) -> Result<()> {
        let (max_blocks, block) = (self.capacity.max_blocks(), self.layout().bytes_per_block());
        if num_blocks > max_blocks {
            return Err(Error::internal(format!(
                "{num_blocks} blocks were wanted of a KV store of {max_blocks}; it was not made from its pool's capacity"
            )));
        }
        while self.num_blocks() < num_blocks {
            on_slab!(&mut self.slab, slab => slab.grow(num_blocks, workers)).map_err(|error| {
                Error::capacity(message!(
                    ("the system gave no memory for {} more bytes of KV cache after {} bytes; free memory, or lower ",
                     (num_blocks - self.num_blocks()) * block, self.num_bytes())
                    {kv_cache_bytes} " and ask for shorter or fewer sequences"
                ))
                .with_source(error)
            })?;
        }
        Ok(())
    }

    /// Prefaults memory that later passes will take: as many blocks as there are, up to 256 MiB and within
    /// the `limit` of the pool, in blocks; none where texts are not continued. It returns at once; the memory
    /// counts as the process's from then on.
    pub fn prefault(&mut self, limit: usize) {
        if !self.capacity.are_texts_continued() {
            return;
        }
        let end = prefault_end(self.num_blocks(), self.layout().bytes_per_block()).min(limit);
        let start = self.prefaulted.max(self.num_blocks());
        if start < end {
            on_slab!(&mut self.slab, slab => slab.prefault(start..end, &self.prefaulter));
            self.prefaulted = end;
        }
    }

    /// Frees the memory of blocks from `num_blocks` on, in whole segments: those that
    /// [`set_limit`](super::SharedPool::set_limit) has dropped.
    pub fn shrink(&mut self, num_blocks: usize) {
        on_slab!(&mut self.slab, slab => slab.shrink(num_blocks));
        // It forgets memory that is freed now.
        self.prefaulter = Prefaulter::default();
        self.prefaulted = self.prefaulted.min(num_blocks);
    }

    /// Performs a copy that [`append`](super::SequenceCache::append) returned.
    ///
    /// # Panics
    /// When there is no memory for one of the blocks, or they are the same one.
    pub fn copy(&mut self, copy: &BlockCopy) {
        on_slab!(&mut self.slab, slab => slab.copy(copy));
    }

    /// Performs a shift that [`drop_after`](super::SequenceCache::drop_after) returned: the keys of the
    /// tokens that move are rotated by the rotation of their layer.
    ///
    /// # Panics
    /// When there is no memory for one of the blocks.
    pub fn shift(&mut self, isa: Isa, shift: &BlockShift, rotations: &[KeyRotation]) {
        let layout = *self.layout();
        on_slab!(&mut self.slab, slab => slab.shift(isa, layout, shift, rotations));
    }

    /// Writes one token of one layer to its slot, as [`BlockTable::slot`](super::BlockTable::slot) gives it.
    /// `key` and `value` are `[num_kv_heads][head_dim]`; bf16 rounds them to nearest even.
    ///
    /// # Panics
    /// When there is no such layer or slot, or a slice has another length.
    pub fn write(&mut self, layer: usize, slot: (BlockId, usize), key: &[f32], value: &[f32]) {
        on_slab!(&mut self.slab, slab => slab.write(layer, slot, key, value));
    }

    /// [`KvStore::write`] for several tokens of one layer, each with its slot, on all threads.
    ///
    /// # Panics
    /// As for [`KvStore::write`].
    pub fn write_all<P: Fn(usize, &mut [f32]) + Sync>(
        &mut self,
        workers: &Workers,
        layer: usize,
        slots: &[(BlockId, usize)],
        rows: KvRows<'_, P>,
    ) {
        on_slab!(&mut self.slab, slab => slab.write_all(workers, layer, slots, rows));
    }

    /// K and V of one layer for reading, by many threads at once.
    ///
    /// # Panics
    /// When there is no such layer.
    pub fn blocks(&self, layer: usize) -> KvView<'_> {
        match &self.slab {
            AnySlab::F32(slab) => KvView::F32(slab.view(layer)),
            AnySlab::Bf16(slab) => KvView::Bf16(slab.view(layer)),
            AnySlab::I8(slab) => KvView::I8(slab.view(layer)),
        }
    }
}

/// The blocks that a store of `num_blocks` blocks of `bytes` bytes allocates or prefaults.
fn prefault_end(num_blocks: usize, bytes: usize) -> usize {
    if num_blocks * bytes < LEAST_BYTES {
        num_blocks
    } else {
        num_blocks + num_blocks.min(PREFAULT_BYTES / bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::segment::tests::workers;
    use rsgen_core::error::ErrorKind;
    use rsgen_kernels::KvStep;

    /// Two layers, two heads of 33 dimensions, hence two planes, in segments of two blocks.
    fn store(dtype: KvDtype, max_blocks: usize) -> KvStore {
        let layout = KvLayout::new(2, 2, 33, dtype).unwrap();
        KvStore::new(KvCapacity::from_blocks(layout, max_blocks).unwrap().with_segment_blocks(2))
    }

    fn row(start: f32) -> Vec<f32> {
        (0..66).map(|index| start + index as f32).collect()
    }

    fn f32_view(store: &KvStore, layer: usize) -> TypedKv<'_, F32Step> {
        match store.blocks(layer) {
            KvView::F32(view) => view,
            _ => panic!("the store holds f32"),
        }
    }

    /// K and V of a head's dimension and a token of a block.
    fn numbers<T: KvStep>(view: &TypedKv<'_, T>, slot: (u32, usize), head: usize, d: usize) -> [f32; 2] {
        let (block, offset) = slot;
        let (keys, values) = (view.keys(BlockId(block), head), view.values(BlockId(block), head));
        [T::key(keys, offset, d), T::value(values, offset, d)]
    }

    #[test]
    fn a_token_is_an_output_of_k_and_an_input_of_each_plane_of_v() {
        let mut store = store(KvDtype::F32, 3);
        store.ensure(3, &workers()).unwrap();
        store.write(1, (BlockId(2), 5), &row(100.0), &row(500.0));
        let count = |layer, block| {
            let view = f32_view(&store, layer);
            let steps = (0..2).flat_map(|head| {
                view.keys(BlockId(block), head).iter().chain(view.values(BlockId(block), head))
            });
            steps
                .flat_map(|step| (0..64).map(|i| step.get(i / 2, i % 2)))
                .filter(|&number| number != 0.0)
                .count()
        };
        let view = f32_view(&store, 1);
        assert_eq!((view.keys(BlockId(2), 1).len(), view.values(BlockId(2), 1).len()), (17, 2 * 16));
        // Head 1 starts at element 33 of the row.
        for d in 0..33 {
            assert_eq!(numbers(&view, (2, 5), 1, d), [133.0 + d as f32, 533.0 + d as f32]);
        }
        // Nothing was written elsewhere.
        assert_eq!(
            [(1, 2), (0, 2), (1, 0), (1, 1)].map(|(layer, block)| count(layer, block)),
            [132, 0, 0, 0]
        );
    }

    #[test]
    fn many_tokens_are_written_as_one_by_one() {
        let workers = Workers::new(2, Isa::select().unwrap()).unwrap();
        // Tokens of three blocks, not in the order of the blocks, in rows that hold something else first.
        let slots: Vec<(BlockId, usize)> = [3, 0, 2]
            .into_iter()
            .flat_map(|block| (1..31).map(move |offset| (BlockId(block), offset)))
            .collect();
        let (stride, first) = (7 + 2 * 66, 7);
        let numbers: Vec<f32> = (0..slots.len() * stride).map(|i| i as f32).collect();
        for count in [1, 40, slots.len()] {
            let (mut one_by_one, mut together) = (store(KvDtype::F32, 5), store(KvDtype::F32, 5));
            one_by_one.ensure(5, &workers).unwrap();
            together.ensure(5, &workers).unwrap();
            for (row, &slot) in slots[..count].iter().enumerate() {
                let mut row = numbers[row * stride..][..stride].to_vec();
                row[first] += slot.1 as f32;
                one_by_one.write(1, slot, &row[first..first + 66], &row[first + 66..]);
            }
            let mut numbers = numbers[..count * stride].to_vec();
            let prepare = |row: usize, numbers: &mut [f32]| numbers[first] += slots[row].1 as f32;
            let rows = KvRows { numbers: &mut numbers, stride, first, prepare };
            together.write_all(&workers, 1, &slots[..count], rows);
            for (layer, block, head) in (0..20).map(|i| (i % 2, BlockId(i as u32 / 4), i / 2 % 2)) {
                let (left, right) = (f32_view(&one_by_one, layer), f32_view(&together, layer));
                assert_eq!(left.keys(block, head), right.keys(block, head));
                assert_eq!(left.values(block, head), right.values(block, head));
            }
        }
    }

    #[test]
    fn bf16_rounds_to_nearest_even() {
        let mut store = store(KvDtype::Bf16, 1);
        store.ensure(1, &workers()).unwrap();
        let mut key = row(0.0);
        // Eight bits of precision: 257 lies halfway between 256 and 258, 259 between 258 and 260.
        key[..3].copy_from_slice(&[257.0, 259.0, 257.01]);
        store.write(0, (BlockId(0), 0), &key, &key);
        let KvView::Bf16(view) = store.blocks(0) else { panic!("the store holds bf16") };
        let rounded = [0, 1, 2].map(|d| numbers(&view, (0, 0), 0, d));
        assert_eq!(rounded, [[256.0; 2], [260.0; 2], [258.0; 2]]);
    }

    #[test]
    fn integers_have_a_scale_for_each_token_and_head() {
        let mut store = store(KvDtype::I8, 3);
        store.ensure(3, &workers()).unwrap();
        store.write(1, (BlockId(2), 5), &row(100.0), &row(-500.0));
        store.write(1, (BlockId(2), 6), &row(0.001), &row(1e6));
        store.copy(&BlockCopy { source: BlockId(2), target: BlockId(0), tokens: 6 });
        let KvView::I8(view) = store.blocks(1) else { panic!("the store holds integers") };
        for (head, d) in (0..66).map(|i| (i / 33, i % 33)) {
            let number = (33 * head + d) as f32;
            // Half a unit of the largest in the head.
            let near = |stored: [f32; 2], exact: [f32; 2], largest: [f32; 2]| {
                (0..2).all(|i| (stored[i] - exact[i]).abs() <= largest[i].abs() / 127.0 * 0.501)
            };
            let first = (33 * head) as f32;
            let (key, value) = (100.0 + number, number - 500.0);
            let largest = [100.0 + first + 32.0, first - 500.0];
            for block in [2, 0] {
                assert!(near(numbers(&view, (block, 5), head, d), [key, value], largest));
            }
            let largest = [first + 32.1, 1e6 + first + 32.0];
            assert!(near(numbers(&view, (2, 6), head, d), [0.001 + number, 1e6 + number], largest));
        }
    }

    #[test]
    fn a_copy_takes_the_first_tokens_within_and_across_segments() {
        for (source, target) in [(0, 1), (1, 0), (0, 3), (4, 1)].map(|(s, t)| (BlockId(s), BlockId(t))) {
            let mut store = store(KvDtype::F32, 5);
            store.ensure(5, &workers()).unwrap();
            for offset in 0..3 {
                store.write(1, (source, offset), &row(offset as f32), &row(9.0));
                store.write(1, (target, offset), &row(-1000.0), &row(-2000.0));
            }
            store.copy(&BlockCopy { source, target, tokens: 2 });
            let view = f32_view(&store, 1);
            for offset in 0..3 {
                let kept = [33.0 + offset as f32, 42.0];
                assert_eq!(numbers(&view, (source.0, offset), 1, 0), kept);
                if offset < 2 {
                    assert_eq!(numbers(&view, (target.0, offset), 1, 0), kept);
                }
            }
        }
    }

    #[test]
    fn memory_is_taken_as_it_is_needed_and_never_beyond_the_capacity() {
        let mut store = store(KvDtype::Bf16, 5);
        let steps = [0, 1, 2, 3, 5, 4].map(|blocks| {
            store.ensure(blocks, &workers()).unwrap();
            store.num_blocks()
        });
        assert_eq!(steps, [0, 1, 2, 3, 5, 5]);
        assert_eq!(store.num_bytes(), 5 * store.layout().bytes_per_block());
        assert_eq!(store.ensure(6, &workers()).unwrap_err().kind(), ErrorKind::Internal);
    }

    #[test]
    fn what_was_written_survives_growth() {
        let mut store = store(KvDtype::F32, 8);
        store.ensure(1, &workers()).unwrap();
        store.write(0, (BlockId(0), 31), &row(1.0), &row(2.0));
        store.ensure(8, &workers()).unwrap();
        assert_eq!(numbers(&f32_view(&store, 0), (0, 31), 0, 0), [1.0, 2.0]);
    }

    #[test]
    fn memory_that_the_system_does_not_have_is_refused() {
        // 2⁴⁹ bytes a block exceed any machine's address space.
        let layout = KvLayout::new(1 << 20, 1 << 10, 1 << 11, KvDtype::F32).unwrap();
        let mut store = KvStore::new(KvCapacity::from_blocks(layout, 1).unwrap());
        let error = store.ensure(1, &workers()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Capacity);
        assert!(error.to_string().contains("kv_cache_bytes"), "{error}");
        assert_eq!(store.num_blocks(), 0);
    }

    #[test]
    fn as_much_again_is_prefaulted_between_a_least_and_a_most() {
        let megabyte = 1 << 20;
        let ends = [0, 31, 32, 100, 256, 4000].map(|blocks| prefault_end(blocks, megabyte));
        assert_eq!(ends, [0, 31, 64, 200, 512, 4256]);
    }

    #[test]
    #[cfg(not(miri))]
    fn prefaulting_stays_within_the_limit_and_changes_no_block() {
        let layout = KvLayout::new(1, 1, 1 << 12, KvDtype::F32).unwrap();
        let blocks = LEAST_BYTES / layout.bytes_per_block();
        let capacity = KvCapacity::from_blocks(layout, 4 * blocks).unwrap();
        let mut store = KvStore::new(capacity);
        store.ensure(blocks - 1, &workers()).unwrap();
        store.prefault(4 * blocks);
        assert_eq!(store.prefaulted, 0);
        store.ensure(blocks, &workers()).unwrap();
        store.prefault(blocks + 3);
        assert_eq!((store.num_blocks(), store.prefaulted), (blocks, blocks + 3));
        store.shrink(blocks);
        assert_eq!((store.num_blocks(), store.prefaulted), (blocks, blocks));
        store.prefault(4 * blocks);
        store.ensure(3 * blocks, &workers()).unwrap();
        assert_eq!(store.prefaulted, 2 * blocks);

        let mut single = KvStore::new(capacity.with_texts_continued(false));
        single.ensure(blocks, &workers()).unwrap();
        single.prefault(4 * blocks);
        assert_eq!(single.prefaulted, 0);
        let KvView::F32(view) = store.blocks(0) else { unreachable!("it is stored as float32") };
        assert!(view.keys(BlockId(2 * blocks as u32), 0).iter().all(|step| step.get(31, 1) == 0.0));
    }

    #[test]
    fn a_view_is_read_by_many_threads() {
        fn shared<T: Send + Sync>(_: T) {}
        let store = store(KvDtype::F32, 1);
        shared(store.blocks(0));
        shared(&store);
    }
}
