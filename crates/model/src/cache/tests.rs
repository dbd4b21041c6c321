//! Random scripts on pool, sequences and store together, held against a naive model.
//!
//! In the model a sequence is a vector of tokens, stored by value, and every number of the cache is a
//! function of the tokens up to its own, the salt and its place. So after each step all that the store holds
//! can be predicted without knowing of blocks, and a block that is shared by the wrong texts is seen.

use std::collections::HashSet;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::invariants::check;
use super::*;
use rsgen_core::types::{BlockId, TokenId};
use rsgen_kernels::KvStep;

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
        appends: Vec<(usize, Text)>,
        dropped: Option<usize>,
        newcomer: Option<(Text, Option<usize>, bool)>,
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
    Publish(usize),
    /// Preempts some sequences.
    Preempt(Vec<usize>),
    Restore(usize),
}

/// How many tokens to append, and the only token of a shared text; `None` for new tokens.
type Text = (usize, Option<u32>);

fn step() -> impl Strategy<Value = Step> {
    let any = 0..64_usize;
    let tokens = prop_oneof![3 => 1..4_usize, 2 => 0..40_usize, 1 => 30..130_usize];
    let text = (tokens.clone(), option::of(0..2_u32));
    let newcomer = option::of((text.clone(), option::of(any.clone()), proptest::bool::ANY));
    prop_oneof![
        6 => (vec((any.clone(), text), 0..5), option::weighted(0.2, any.clone()), newcomer)
            .prop_map(|(appends, dropped, newcomer)| Step::Pass { appends, dropped, newcomer }),
        3 => any.clone().prop_map(Step::Fork),
        3 => (any.clone(), 0..130_usize).prop_map(|(sequence, len)| Step::Truncate(sequence, len)),
        2 => any.clone().prop_map(Step::Drop),
        3 => (vec(any.clone(), 0..6), tokens).prop_map(|(parents, tokens)| Step::Reorder { parents, tokens }),
        1 => (0..8_usize).prop_map(Step::Reserve),
        1 => any.clone().prop_map(Step::Unreserve),
        1 => any.clone().prop_map(Step::Limit),
        4 => any.clone().prop_map(Step::Publish),
        1 => vec(any.clone(), 1..4).prop_map(Step::Preempt),
        2 => any.prop_map(Step::Restore),
    ]
}

/// A sequence, its reservation's place in the world's list when it began, and its tokens by the model.
struct Live {
    cache: SequenceCache,
    has_salt: bool,
    ids: Vec<TokenId>,
    /// For each token a hash of all up to it.
    tokens: Vec<u32>,
    /// The places of tokens that have not reached the store; none between passes.
    new: Vec<usize>,
    reservation: Option<usize>,
}

struct World {
    pool: SharedPool,
    store: KvStore,
    live: Vec<Live>,
    /// A dropped reservation leaves its place empty.
    reservations: Vec<Option<Reservation>>,
    preempted: Vec<(Preempted, Vec<Live>)>,
    /// The tokens of each full block that was ever published with all before it, and whether they had a salt.
    published: HashSet<(bool, Vec<TokenId>)>,
    /// All that was ever published.
    texts: Vec<(bool, Vec<TokenId>)>,
    next_token: u32,
}

/// The number of a token at a place, with more digits than bf16 holds.
fn number(token: u32, layer: usize, part: usize, element: usize) -> f32 {
    let place = (layer * 2 + part) * 1000 + element;
    let mixed = (token.wrapping_mul(0x9E37_79B9) ^ (place as u32).wrapping_mul(0x85EB_CA6B))
        .wrapping_mul(0xC2B2_AE35);
    f32::from_bits(0x3F80_0000 | (mixed ^ mixed >> 15) >> 9) - 1.5
}

/// Writes a token to the store.
fn write(store: &mut KvStore, layer: usize, slot: (BlockId, usize), token: u32) {
    let row = |part| {
        let elements = 0..store.layout().row_elements();
        elements.map(|element| number(token, layer, part, element)).collect::<Vec<_>>()
    };
    let (key, value) = (row(0), row(1));
    store.write(layer, slot, &key, &value);
}

impl Live {
    fn extend(&mut self, new: &[TokenId]) {
        for &id in new {
            let before = self.tokens.last().map_or(u32::from(self.has_salt), |last| last + 1);
            self.new.push(self.tokens.len());
            self.tokens.push((before ^ id.0 << 16).wrapping_mul(0x9E37_79B1).rotate_left(15));
            self.ids.push(id);
        }
    }
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
            preempted: Vec::new(),
            published: HashSet::new(),
            texts: Vec::new(),
            next_token: 2,
        }
    }

    fn run(&mut self, step: Step) {
        let count = self.live.len();
        match step {
            Step::Pass { appends, dropped, newcomer } => {
                let mut copies = Vec::new();
                for (index, text) in appends.into_iter().filter(|_| count > 0) {
                    copies.extend(self.append(index % count, text));
                }
                if let Some(index) = dropped.filter(|_| count > 0) {
                    self.live.swap_remove(index % count);
                }
                if let Some((text, reservation, has_salt)) = newcomer {
                    let reservation = reservation.filter(|_| !self.reservations.is_empty());
                    self.begin(reservation.map(|index| index % self.reservations.len()), has_salt);
                    copies.extend(self.append(self.live.len() - 1, text));
                }
                self.pass(&copies);
            }
            Step::Fork(index) if count > 0 => {
                let parent = &self.live[index % count];
                let (ids, tokens) = (parent.ids.clone(), parent.tokens.clone());
                self.live.push(Live { cache: parent.cache.fork(), ids, tokens, new: vec![], ..*parent });
            }
            Step::Truncate(index, len) if count > 0 => {
                let sequence = &mut self.live[index % count];
                sequence.cache.truncate(len);
                sequence.ids.truncate(len);
                sequence.tokens.truncate(len);
            }
            Step::Drop(index) if count > 0 => drop(self.live.remove(index % count)),
            Step::Reorder { parents, tokens } => {
                let parents: Vec<_> =
                    parents.into_iter().filter(|_| count > 0).map(|index| index % count).collect();
                let plan = ReorderPlan::new(&parents, count).unwrap();
                // The model copies every child's tokens from the parent, whatever the plan does.
                let expected: Vec<_> = parents
                    .iter()
                    .map(|&parent| {
                        let Live { has_salt, ids, tokens, reservation, .. } = &self.live[parent];
                        (*has_salt, ids.clone(), tokens.clone(), *reservation)
                    })
                    .collect();
                let caches = plan.apply(self.live.drain(..).map(|sequence| sequence.cache).collect());
                let next = caches.into_iter().zip(expected);
                self.live.extend(next.map(|(cache, (has_salt, ids, tokens, reservation))| {
                    let new = vec![];
                    Live { cache, has_salt, ids, tokens, new, reservation }
                }));
                let copies: Vec<_> =
                    (0..self.live.len()).filter_map(|index| self.append(index, (tokens, None))).collect();
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
                let capacity = self.pool.capacity();
                let (max_blocks, segment) = (capacity.max_blocks(), capacity.segment_blocks());
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
            Step::Publish(index) if count > 0 => {
                let Live { cache, has_salt, ids, .. } = &mut self.live[index % count];
                cache.publish(ids);
                let ends = (0..=ids.len()).step_by(BLOCK_TOKENS).skip(1);
                self.texts.push((*has_salt, ids.clone()));
                self.published.extend(ends.map(|end| (*has_salt, ids[..end].to_vec())));
            }
            Step::Preempt(indices) if count > 0 => {
                let chosen: HashSet<usize> = indices.into_iter().map(|index| index % count).collect();
                let all = std::mem::take(&mut self.live).into_iter().enumerate();
                let (chosen, others): (Vec<_>, Vec<_>) = all.partition(|(index, _)| chosen.contains(index));
                self.live = others.into_iter().map(|(_, sequence)| sequence).collect();
                let mut chosen: Vec<_> = chosen.into_iter().map(|(_, sequence)| sequence).collect();
                let preempted = self.pool.preempt(chosen.iter_mut().map(|sequence| &mut sequence.cache));
                self.preempted.push((preempted, chosen));
            }
            Step::Restore(index) if !self.preempted.is_empty() => {
                let index = index % self.preempted.len();
                let (preempted, mut chosen) = self.preempted.swap_remove(index);
                let fits = preempted.num_blocks() <= self.pool.stats().available_blocks;
                match preempted.restore(chosen.iter_mut().map(|sequence| &mut sequence.cache)) {
                    Ok(lost) => {
                        self.recompute(&chosen, &lost);
                        self.live.extend(chosen);
                    }
                    Err(error) => {
                        assert!(!fits, "{error}");
                        self.preempted.push((preempted, chosen));
                    }
                }
            }
            _ => {}
        }
    }

    fn begin(&mut self, reservation: Option<usize>, has_salt: bool) {
        let cache = match reservation.and_then(|index| self.reservations[index].as_ref()) {
            Some(reservation) => SequenceCache::within(reservation),
            None => SequenceCache::new(&self.pool),
        };
        let cache = cache.with_salt(has_salt.then(|| "tenant".into()));
        self.live.push(Live { cache, has_salt, ids: vec![], tokens: vec![], new: vec![], reservation });
    }

    /// Appends if the model says that there is room, and checks that the pool says the same.
    fn append(&mut self, index: usize, (tokens, id): Text) -> Option<BlockCopy> {
        let new = (self.next_token..).take(tokens).map(|new| TokenId(id.unwrap_or(new))).collect::<Vec<_>>();
        self.next_token += tokens as u32;
        let Adopted { tokens: adopted, copy: adopted_copy } = self.adopt(index, &new);
        let (new, tokens) = (&new[adopted..], tokens - adopted);
        let (room, needed) = (self.room(index), self.needed(index, tokens));
        let sequence = &mut self.live[index];
        let result = sequence.cache.append(tokens);
        assert_eq!(
            result.is_ok(),
            needed <= room,
            "{needed} blocks are needed, {room} are there: {result:?}"
        );
        if result.is_ok() {
            sequence.extend(new);
        }
        let copy = result.ok().flatten();
        assert!(adopted_copy.is_none() || copy.is_none());
        adopted_copy.or(copy)
    }

    /// Adopts as many of `new` as are published. The model knows what was ever published, and as long as no
    /// full block of it is lost, which full blocks must be found.
    fn adopt(&mut self, index: usize, new: &[TokenId]) -> Adopted {
        let room = self.room(index);
        let is_complete = self.pool.lock().prefixes.num_full() == self.published.len();
        let sequence = &mut self.live[index];
        let (before, waiting, all) = (sequence.ids.len(), sequence.new.len(), [&sequence.ids, new].concat());
        let adopted = sequence.cache.adopt(&all);
        assert_eq!(sequence.cache.len(), before + adopted.tokens);
        assert!(adopted.tokens == 0 || before.is_multiple_of(BLOCK_TOKENS));
        let texts = self.texts.iter().filter(|(has_salt, _)| *has_salt == sequence.has_salt);
        let common = texts.map(|(_, ids)| ids.iter().zip(&all).take_while(|(a, b)| a == b).count());
        let most = common.max().unwrap_or(0).saturating_sub(before);
        assert!(adopted.tokens <= most, "{} tokens were found, {most} published", adopted.tokens);
        let is_known = |end: usize| self.published.contains(&(sequence.has_salt, all[..end].to_vec()));
        let ends = (before..=all.len()).step_by(BLOCK_TOKENS);
        let known = ends.take_while(|&end| end.is_multiple_of(BLOCK_TOKENS) && (end == 0 || is_known(end)));
        let least = known.last().map_or(0, |end| end - before);
        let is_found = adopted.tokens >= least || !is_complete || room < blocks_for(least);
        assert!(is_found, "{} tokens of {least} were found", adopted.tokens);
        sequence.extend(&new[..adopted.tokens]);
        sequence.new.truncate(waiting);
        adopted
    }

    /// Writes the tokens that a restored sequence lost, and checks that all are there in a possible order.
    fn recompute(&mut self, restored: &[Live], lost: &[RecomputedTokens]) {
        let pool = self.pool.lock();
        let mut computed: HashSet<(BlockId, usize)> = HashSet::new();
        let is_there = |computed: &HashSet<_>, block, offset| {
            let published = pool.prefixes.published(block);
            published.is_some_and(|published| pool.prefixes.len_of(published) > offset)
                || computed.contains(&(block, offset))
        };
        self.store.ensure(pool.blocks.len(), &super::segment::tests::workers()).unwrap();
        for RecomputedTokens { sequence, positions } in lost {
            let Live { cache, tokens, .. } = &restored[*sequence];
            let before = (0..positions.start).map(|position| cache.table().slot(position));
            assert!(before.into_iter().all(|(block, offset)| is_there(&computed, block, offset)));
            for position in positions.clone() {
                let (block, offset) = cache.table().slot(position);
                assert!(computed.insert((block, offset)), "computed twice");
                for layer in 0..self.store.layout().num_layers() {
                    write(&mut self.store, layer, (block, offset), tokens[position]);
                }
            }
        }
        let slots = restored.iter().flat_map(|sequence| {
            (0..sequence.tokens.len()).map(|position| sequence.cache.table().slot(position))
        });
        assert!(slots.into_iter().all(|(block, offset)| is_there(&computed, block, offset)));
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

    /// New blocks for `tokens` more tokens, with one more when the last block is shared and partly filled.
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
        self.store.ensure(self.pool.num_blocks(), &super::segment::tests::workers()).unwrap();
        for copy in copies {
            self.store.copy(copy);
        }
        for layer in 0..self.store.layout().num_layers() {
            for sequence in &self.live {
                for &position in &sequence.new {
                    let slot = sequence.cache.table().slot(position);
                    write(&mut self.store, layer, slot, sequence.tokens[position]);
                }
            }
        }
        for sequence in &mut self.live {
            sequence.new.clear();
        }
    }

    fn check(&self) {
        let preempted = self.preempted.iter().flat_map(|(_, sequences)| sequences);
        check(&self.pool, self.live.iter().chain(preempted).map(|sequence| sequence.cache.table())).unwrap();
        assert!(self.pool.stats().prefix_cache_hits <= self.pool.stats().prefix_cache_queries);
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
    world.preempted.clear();
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
    world.begin(None, false);
    assert_eq!(world.append(0, (5, None)), None);
    world.pass(&[]);
    world.run(Step::Fork(0));

    // Both sides of the fork go their ways before any float moves: the first splits off, the second is
    // dropped, and its block is handed to a newcomer whose write must come after the copy.
    let copy = world.append(0, (1, None)).unwrap();
    drop(world.live.remove(1));
    world.begin(None, false);
    assert_eq!(world.append(1, (3, None)), None);
    assert_eq!(world.live[1].cache.table().blocks(), [copy.source]);
    world.pass(&[copy]);
    world.check();
}

#[test]
fn eight_beams_store_their_prompt_once() {
    let mut world = World::new(KvDtype::Bf16, 64, 8);
    world.begin(None, false);
    world.append(0, (500, None));
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
