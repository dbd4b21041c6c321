//! Random scripts on pool, sequences and store together, held against a naive model.
//!
//! In the model a sequence is a vector of tokens, stored by value, and every number of the cache is a function of its
//! token and its place. So after each step all that the store holds can be predicted without knowing of blocks.

use std::collections::HashSet;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::invariants::check;
use super::*;
use crate::kernels::KvStep;
use crate::types::BlockId;

/// A pool for tests of bookkeeping, which grows block by block.
pub(super) fn pool_of(max_blocks: usize) -> SharedPool {
    let layout = KvLayout::new(1, 1, 4, KvDtype::F32).unwrap();
    SharedPool::new(KvCapacity::from_blocks(layout, max_blocks).unwrap().with_segment_blocks(1))
}

/// Numbers that stand for an existing sequence or reservation are taken modulo how many there are.
#[derive(Debug, Clone)]
enum Step {
    /// Appends to several sequences, then drops one and starts another, and only then runs the pass.
    Pass {
        appends: Vec<(usize, usize)>,
        dropped: Option<usize>,
        newcomer: Option<(usize, Option<usize>)>,
    },
    Fork(usize),
    Truncate(usize, usize),
    Drop(usize),
    /// A step of beam search: reorder, then append to all.
    Reorder {
        parents: Vec<usize>,
        tokens: usize,
    },
    Reserve(usize),
    Unreserve(usize),
    /// Changes the most blocks.
    Limit(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let any = 0..64_usize;
    let tokens = prop_oneof![3 => 1..4_usize, 2 => 0..40_usize, 1 => 30..130_usize];
    let newcomer = option::of((tokens.clone(), option::of(any.clone())));
    prop_oneof![
        6 => (vec((any.clone(), tokens.clone()), 0..5), option::weighted(0.2, any.clone()), newcomer)
            .prop_map(|(appends, dropped, newcomer)| Step::Pass { appends, dropped, newcomer }),
        3 => any.clone().prop_map(Step::Fork),
        3 => (any.clone(), 0..130_usize).prop_map(|(sequence, len)| Step::Truncate(sequence, len)),
        2 => any.clone().prop_map(Step::Drop),
        3 => (vec(any.clone(), 0..6), tokens).prop_map(|(parents, tokens)| Step::Reorder { parents, tokens }),
        1 => (0..8_usize).prop_map(Step::Reserve),
        1 => any.clone().prop_map(Step::Unreserve),
        1 => any.prop_map(Step::Limit),
    ]
}

/// A sequence, its reservation's place in the world's list at the time it began, and what the model says it holds.
struct Live {
    cache: SequenceCache,
    tokens: Vec<u32>,
    /// Tokens that reached the store; between passes all of them.
    written: usize,
    reservation: Option<usize>,
}

struct World {
    pool: SharedPool,
    store: KvStore,
    live: Vec<Live>,
    /// A dropped reservation leaves its place empty.
    reservations: Vec<Option<Reservation>>,
    next_token: u32,
}

/// The number of a token at a place, with more digits than bf16 holds.
fn number(token: u32, layer: usize, part: usize, element: usize) -> f32 {
    let place = (layer * 2 + part) * 1000 + element;
    let mixed = (token.wrapping_mul(0x9E37_79B9) ^ (place as u32).wrapping_mul(0x85EB_CA6B))
        .wrapping_mul(0xC2B2_AE35);
    f32::from_bits(0x3F80_0000 | (mixed ^ mixed >> 15) >> 9) - 1.5
}

impl World {
    fn new(dtype: KvDtype, max_blocks: usize, segment_blocks: usize) -> Self {
        // Two planes of V, of which the second holds a single dimension.
        let layout = KvLayout::new(2, 2, 33, dtype).unwrap();
        let capacity =
            KvCapacity::from_blocks(layout, max_blocks).unwrap().with_segment_blocks(segment_blocks);
        Self {
            pool: SharedPool::new(capacity),
            store: KvStore::new(capacity),
            live: Vec::new(),
            reservations: Vec::new(),
            next_token: 0,
        }
    }

    fn run(&mut self, step: Step) {
        let count = self.live.len();
        match step {
            Step::Pass { appends, dropped, newcomer } => {
                let mut copies = Vec::new();
                for (index, tokens) in appends.into_iter().filter(|_| count > 0) {
                    copies.extend(self.append(index % count, tokens));
                }
                if let Some(index) = dropped.filter(|_| count > 0) {
                    self.live.swap_remove(index % count);
                }
                if let Some((tokens, reservation)) = newcomer {
                    let reservation = reservation.filter(|_| !self.reservations.is_empty());
                    self.begin(reservation.map(|index| index % self.reservations.len()));
                    copies.extend(self.append(self.live.len() - 1, tokens));
                }
                self.pass(&copies);
            }
            Step::Fork(index) if count > 0 => {
                let parent = &self.live[index % count];
                let child = Live { cache: parent.cache.fork(), tokens: parent.tokens.clone(), ..*parent };
                self.live.push(child);
            }
            Step::Truncate(index, len) if count > 0 => {
                let sequence = &mut self.live[index % count];
                sequence.cache.truncate(len);
                sequence.tokens.truncate(len);
                sequence.written = sequence.tokens.len();
            }
            Step::Drop(index) if count > 0 => drop(self.live.remove(index % count)),
            Step::Reorder { parents, tokens } => {
                let parents: Vec<_> =
                    parents.into_iter().filter(|_| count > 0).map(|index| index % count).collect();
                let plan = ReorderPlan::new(&parents, count).unwrap();
                // The model copies every child's tokens from the parent, whatever the plan does.
                let expected: Vec<_> = parents
                    .iter()
                    .map(|&parent| (self.live[parent].tokens.clone(), self.live[parent].reservation))
                    .collect();
                let caches = plan.apply(self.live.drain(..).map(|sequence| sequence.cache).collect());
                self.live.extend(caches.into_iter().zip(expected).map(|(cache, (tokens, reservation))| {
                    let written = tokens.len();
                    Live { cache, tokens, written, reservation }
                }));
                let copies: Vec<_> =
                    (0..self.live.len()).filter_map(|index| self.append(index, tokens)).collect();
                self.pass(&copies);
            }
            Step::Reserve(blocks) => {
                let fits = blocks <= self.pool.stats().available_blocks;
                let reserved = self.pool.reserve(blocks);
                assert_eq!(reserved.is_ok(), fits);
                self.reservations.extend(reserved.ok().map(Some));
            }
            Step::Unreserve(index) if !self.reservations.is_empty() => {
                let index = index % self.reservations.len();
                self.reservations[index] = None;
            }
            Step::Limit(limit) => {
                let (max_blocks, segment) = (self.max_blocks(), self.pool.capacity().segment_blocks());
                let PoolStats { used_blocks, reserved_blocks, .. } = self.pool.stats();
                let set = self.pool.set_limit(limit);
                assert!(
                    set == max_blocks || (set.is_multiple_of(segment) && set <= max_blocks),
                    "{set} blocks"
                );
                assert!(
                    set >= used_blocks + reserved_blocks && set >= limit.min(max_blocks) / segment * segment
                );
                assert!(self.pool.num_blocks() <= set);
                self.store.shrink(self.pool.num_blocks());
            }
            _ => {}
        }
    }

    /// The capacity.
    fn max_blocks(&self) -> usize {
        self.pool.capacity().max_blocks()
    }

    fn begin(&mut self, reservation: Option<usize>) {
        let cache = match reservation.and_then(|index| self.reservations[index].as_ref()) {
            Some(reservation) => SequenceCache::within(reservation),
            None => SequenceCache::new(&self.pool),
        };
        self.live.push(Live { cache, tokens: Vec::new(), written: 0, reservation });
    }

    /// Appends if the model says that there is room, and checks that the pool says the same.
    fn append(&mut self, index: usize, tokens: usize) -> Option<BlockCopy> {
        let (room, needed) = (self.room(index), self.needed(index, tokens));
        let sequence = &mut self.live[index];
        let result = sequence.cache.append(tokens);
        assert_eq!(
            result.is_ok(),
            needed <= room,
            "{needed} blocks are needed, {room} are there: {result:?}"
        );
        let copy = result.ok()?;
        sequence.tokens.extend(self.next_token..self.next_token + tokens as u32);
        self.next_token += tokens as u32;
        copy
    }

    /// Blocks that no table holds and no other reservation claims.
    fn room(&self, index: usize) -> usize {
        let own = self.live[index].reservation;
        let held: HashSet<BlockId> =
            self.live.iter().flat_map(|sequence| sequence.cache.table().blocks()).copied().collect();
        let others = self.reservations.iter().enumerate().filter(|&(index, _)| Some(index) != own);
        let claimed: usize = others.filter_map(|(_, other)| other.as_ref()).map(Reservation::remaining).sum();
        self.pool.stats().max_blocks - held.len() - claimed
    }

    /// New blocks for `tokens` more tokens, with one more when the last block is partly filled and held by others.
    fn needed(&self, index: usize, tokens: usize) -> usize {
        let table = self.live[index].cache.table();
        let last = table.blocks().last().filter(|_| tokens > 0 && !table.len().is_multiple_of(BLOCK_TOKENS));
        let holders =
            |block| self.live.iter().filter(|other| other.cache.table().blocks().contains(block)).count();
        let split = last.is_some_and(|block| holders(block) > 1);
        blocks_for(table.len() + tokens) - blocks_for(table.len()) + usize::from(split)
    }

    /// What an engine does in a pass: memory, copies, then writes layer by layer.
    fn pass(&mut self, copies: &[BlockCopy]) {
        self.store.ensure(self.pool.num_blocks()).unwrap();
        for copy in copies {
            self.store.copy(copy);
        }
        for layer in 0..self.store.layout().num_layers() {
            for sequence in &self.live {
                for position in sequence.written..sequence.tokens.len() {
                    let row = |part| {
                        let token = sequence.tokens[position];
                        let elements = 0..self.store.layout().row_elements();
                        elements.map(|element| number(token, layer, part, element)).collect::<Vec<_>>()
                    };
                    let (key, value) = (row(0), row(1));
                    self.store.write(layer, sequence.cache.table().slot(position), &key, &value);
                }
            }
        }
        for sequence in &mut self.live {
            sequence.written = sequence.tokens.len();
        }
    }

    fn check(&self) {
        check(&self.pool, self.live.iter().map(|sequence| sequence.cache.table())).unwrap();
        for layer in 0..self.store.layout().num_layers() {
            match self.store.blocks(layer) {
                KvView::F32(view) => self.check_layer(layer, &view),
                KvView::Bf16(view) => self.check_layer(layer, &view),
                KvView::I8(view) => self.check_layer(layer, &view),
            }
        }
    }

    fn check_layer<T: KvStep>(&self, layer: usize, view: &TypedKv<'_, T>) {
        let (heads, head_dim) = (view.layout().num_kv_heads(), view.layout().head_dim());
        for sequence in &self.live {
            assert_eq!(sequence.cache.len(), sequence.tokens.len());
            for (position, &token) in sequence.tokens.iter().enumerate() {
                let (block, offset) = sequence.cache.table().slot(position);
                for head in 0..heads {
                    let (keys, values) = (view.keys(block, head), view.values(block, head));
                    let numbers = |kind| {
                        let elements = head * head_dim..(head + 1) * head_dim;
                        elements.map(|element| number(token, layer, kind, element)).collect::<Vec<_>>()
                    };
                    let (mut stored_keys, mut stored_values) = (keys.to_vec(), values.to_vec());
                    T::set_key(&mut stored_keys, offset, &numbers(0));
                    T::set_value(&mut stored_values, offset, &numbers(1));
                    for dim in 0..head_dim {
                        let (key, value) = (T::key(keys, offset, dim), T::value(values, offset, dim));
                        assert!(key == T::key(&stored_keys, offset, dim));
                        assert!(value == T::value(&stored_values, offset, dim));
                    }
                    let last = &values[16 + offset / 2];
                    assert!((1..32).all(|lane| last.get(lane, offset % 2) == 0.0));
                }
            }
        }
    }
}

fn run_script(dtype: KvDtype, max_blocks: usize, segment_blocks: usize, steps: Vec<Step>) {
    let mut world = World::new(dtype, max_blocks, segment_blocks);
    for step in steps {
        world.run(step);
        world.check();
    }
    world.live.clear();
    check(&world.pool, []).unwrap();
    world.reservations.clear();
    assert_eq!((world.pool.set_limit(0), world.pool.num_blocks()), (0, 0));
    world.store.shrink(world.pool.num_blocks());
    world.pool.set_limit(usize::MAX);
    let stats = world.pool.stats();
    assert_eq!((stats.used_blocks, stats.reserved_blocks, stats.available_blocks), (0, 0, max_blocks));
    assert_eq!(world.store.num_blocks(), world.pool.num_blocks());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn any_script_gives_what_plain_vectors_give_in_f32(
        max_blocks in 1..28_usize, segment_blocks in 1..9_usize, steps in vec(step(), 1..50),
    ) {
        run_script(KvDtype::F32, max_blocks, segment_blocks, steps);
    }

    #[test]
    fn any_script_gives_what_plain_vectors_give_in_bf16(
        max_blocks in 1..28_usize, segment_blocks in 1..9_usize, steps in vec(step(), 1..50),
    ) {
        run_script(KvDtype::Bf16, max_blocks, segment_blocks, steps);
    }

    #[test]
    fn any_script_gives_what_plain_vectors_give_in_i8(
        max_blocks in 1..28_usize, segment_blocks in 1..9_usize, steps in vec(step(), 1..50),
    ) {
        run_script(KvDtype::I8, max_blocks, segment_blocks, steps);
    }
}

#[test]
fn a_copy_may_follow_the_release_and_the_reuse_of_its_source() {
    let mut world = World::new(KvDtype::F32, 4, 4);
    world.begin(None);
    assert_eq!(world.append(0, 5), None);
    world.pass(&[]);
    world.run(Step::Fork(0));

    // Both sides of the fork go their ways before any float moves: the first splits off, the second is dropped, and
    // its block is handed to a newcomer whose write must come after the copy.
    let copy = world.append(0, 1).unwrap();
    drop(world.live.remove(1));
    world.begin(None);
    assert_eq!(world.append(1, 3), None);
    assert_eq!(world.live[1].cache.table().blocks(), [copy.source]);
    world.pass(&[copy]);
    world.check();
}

#[test]
fn eight_beams_store_their_prompt_once() {
    let mut world = World::new(KvDtype::Bf16, 64, 8);
    world.begin(None);
    world.append(0, 500);
    world.pass(&[]);
    world.run(Step::Reorder { parents: vec![0; 8], tokens: 1 });
    // Fifteen full blocks are shared; the sixteenth, begun by the prompt, is each beam's own.
    assert_eq!(world.pool.stats().used_blocks, 15 + 8);
    for _ in 0..20 {
        world.run(Step::Reorder { parents: vec![3, 3, 0, 1, 7, 7, 7, 2], tokens: 1 });
    }
    world.check();
    assert!(world.pool.stats().used_blocks <= 15 + 2 * 8);
}
