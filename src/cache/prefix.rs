//! The index of published blocks, by the tokens that they hold and those before them.
//!
//! Once its rows are computed, a block can be *published*. From then on every sequence that begins with the same tokens
//! finds it, whether or not somebody still holds it: a full block is shared, and of the last block of a text, which need not
//! be full, the common tokens are copied. A published block that nobody holds is *idle*: it counts as available, and the
//! least recently used one is taken when no other block is left.
//!
//! The published blocks form trees, one for each salt: a block is a child of the full block before it, by its tokens. The
//! index compares the tokens and salts themselves, not their hashes, and never gives an identity twice. So no collision can
//! confuse two texts or two salts.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use super::layout::BLOCK_TOKENS;
use crate::types::{BlockId, TokenId};

/// A block as it was published. It is current as long as the block stays published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PublishedBlock {
    pub(super) block: BlockId,
    /// Never given twice.
    id: u64,
}

/// What precedes a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Before {
    /// Nothing; only sequences of the same salt share.
    Salt(Option<Arc<str>>),
    Block(PublishedBlock),
}

/// Blocks by their tokens, in the order of the tokens: those that begin alike are neighbours.
type Children = BTreeMap<Box<[TokenId]>, BlockId>;

#[derive(Debug)]
struct Entry {
    id: u64,
    before: Before,
    /// At most as many as fit in a block; only a full block has children.
    tokens: Box<[TokenId]>,
    children: Children,
    /// When its last holder let go; a key of `idle`.
    idle_since: Option<u64>,
}

/// The published blocks of a pool.
#[derive(Debug, Default)]
pub(super) struct PrefixIndex {
    entries: HashMap<BlockId, Entry>,
    /// The first blocks of texts, by salt; never empty.
    roots: HashMap<Option<Arc<str>>, Children>,
    /// The published blocks that nobody holds, least recently used first.
    idle: BTreeMap<u64, BlockId>,
    /// Counts up; the source of identities and of times.
    clock: u64,
    /// Tokens that sequences looked up, and those of them that they found.
    pub(super) queries: u64,
    pub(super) hits: u64,
}

impl PrefixIndex {
    /// The publication of `block`.
    pub(super) fn published(&self, block: BlockId) -> Option<PublishedBlock> {
        self.entries.get(&block).map(|entry| PublishedBlock { block, id: entry.id })
    }

    /// How many tokens of a block are published: none unless it is current.
    pub(super) fn len_of(&self, published: PublishedBlock) -> usize {
        let entry = self.entries.get(&published.block).filter(|entry| entry.id == published.id);
        entry.map_or(0, |entry| entry.tokens.len())
    }

    /// The block of exactly these tokens.
    pub(super) fn find(&self, before: &Before, tokens: &[TokenId]) -> Option<PublishedBlock> {
        self.published(*self.children(before)?.get(tokens)?)
    }

    /// The block that begins with the most of `tokens`, and how many those are.
    pub(super) fn find_longest(
        &self,
        before: &Before,
        tokens: &[TokenId],
    ) -> Option<(PublishedBlock, usize)> {
        let children = self.children(before)?;
        let lower = children.range::<[TokenId], _>((Bound::Unbounded, Bound::Included(tokens))).next_back();
        let upper = children.range::<[TokenId], _>((Bound::Included(tokens), Bound::Unbounded)).next();
        let common = |other: &[TokenId]| tokens.iter().zip(other).take_while(|(a, b)| a == b).count();
        let neighbours = lower.into_iter().chain(upper).map(|(other, &block)| (common(other), block));
        let (len, block) = neighbours.max_by_key(|&(len, _)| len).filter(|&(len, _)| len > 0)?;
        Some((self.published(block)?, len))
    }

    /// Publishes the tokens of a block that somebody holds; `before` is current. The block is forgotten under its former
    /// tokens. Where another block of the same tokens is published, that one stays.
    pub(super) fn publish(
        &mut self,
        block: BlockId,
        before: &Before,
        tokens: &[TokenId],
        free: &mut Vec<BlockId>,
    ) -> PublishedBlock {
        if let Some(first) = self.find(before, tokens) {
            return first;
        }
        self.unpublish(block, free);
        let (id, tokens) = (self.tick(), Box::<[TokenId]>::from(tokens));
        if let Before::Salt(salt) = before {
            self.roots.entry(salt.clone()).or_default();
        }
        if let Some(siblings) = self.children_mut(before) {
            siblings.insert(tokens.clone(), block);
            let entry =
                Entry { id, before: before.clone(), tokens, children: Children::new(), idle_since: None };
            self.entries.insert(block, entry);
        }
        PublishedBlock { block, id }
    }

    /// Forgets a block, and all that follow it, since they cannot be found any more. Those that were idle go to `free`.
    pub(super) fn unpublish(&mut self, block: BlockId, free: &mut Vec<BlockId>) {
        let (mut next, mut others) = (Some(block), Vec::new());
        while let Some(entry) = next.and_then(|block| self.entries.remove(&block)) {
            if let Some(siblings) = self.children_mut(&entry.before) {
                siblings.remove(&entry.tokens);
                if let (true, Before::Salt(salt)) = (siblings.is_empty(), &entry.before) {
                    self.roots.remove(salt);
                }
            }
            free.extend(entry.idle_since.and_then(|since| self.idle.remove(&since)));
            others.extend(entry.children.into_values());
            next = others.pop();
        }
    }

    /// A block of which `len` tokens are left is about to be written: it is forgotten if more are published.
    pub(super) fn unpublish_beyond(&mut self, block: BlockId, len: usize, free: &mut Vec<BlockId>) {
        if self.entries.get(&block).is_some_and(|entry| entry.tokens.len() > len) {
            self.unpublish(block, free);
        }
    }

    fn children(&self, before: &Before) -> Option<&Children> {
        match before {
            Before::Salt(salt) => self.roots.get(salt),
            Before::Block(before) => {
                let entry = self.entries.get(&before.block).filter(|entry| entry.id == before.id);
                entry.map(|entry| &entry.children)
            }
        }
    }

    fn children_mut(&mut self, before: &Before) -> Option<&mut Children> {
        match before {
            Before::Salt(salt) => self.roots.get_mut(salt),
            Before::Block(before) => {
                let entry = self.entries.get_mut(&before.block).filter(|entry| entry.id == before.id);
                entry.map(|entry| &mut entry.children)
            }
        }
    }

    /// Nobody holds `block` any more. Returns whether it is published, and so idle from now on.
    pub(super) fn release(&mut self, block: BlockId) -> bool {
        let now = self.tick();
        let Some(entry) = self.entries.get_mut(&block) else { return false };
        entry.idle_since = Some(now);
        self.idle.insert(now, block);
        true
    }

    /// Somebody holds `block` again.
    pub(super) fn retain(&mut self, block: BlockId) {
        if let Some(since) = self.entries.get_mut(&block).and_then(|entry| entry.idle_since.take()) {
            self.idle.remove(&since);
        }
    }

    /// Forgets the idle block that was used least recently, which goes to `free`.
    pub(super) fn evict(&mut self, free: &mut Vec<BlockId>) {
        if let Some((_, &block)) = self.idle.first_key_value() {
            self.unpublish(block, free);
        }
    }

    /// Forgets the blocks from `num_blocks` on.
    pub(super) fn truncate(&mut self, num_blocks: usize, free: &mut Vec<BlockId>) {
        let gone: Vec<BlockId> =
            self.entries.keys().copied().filter(|block| block.index() >= num_blocks).collect();
        for block in gone {
            self.unpublish(block, free);
        }
    }

    /// Published blocks that nobody holds.
    pub(super) fn num_idle(&self) -> usize {
        self.idle.len()
    }

    /// Published blocks that are full.
    #[cfg(test)]
    pub(super) fn num_full(&self) -> usize {
        self.entries.values().filter(|entry| entry.tokens.len() == BLOCK_TOKENS).count()
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Checks the index against itself, `num_blocks` blocks and whether each is held.
    ///
    /// # Errors
    /// The first rule that is broken, in words.
    pub(super) fn check(&self, num_blocks: usize, is_held: impl Fn(BlockId) -> bool) -> Result<(), String> {
        for (&block, entry) in &self.entries {
            if block.index() >= num_blocks {
                return Err(format!("block {block} is published but does not exist"));
            }
            if self.find(&entry.before, &entry.tokens).map(|found| found.block) != Some(block) {
                return Err(format!("block {block} is published but not found"));
            }
            if entry.tokens.len() < BLOCK_TOKENS && !entry.children.is_empty() {
                return Err(format!("block {block} is not full, but others follow it"));
            }
            let is_idle = entry.idle_since.and_then(|since| self.idle.get(&since)) == Some(&block);
            if is_idle == is_held(block) {
                return Err(format!("block {block} is published, held: {}, idle: {is_idle}", is_held(block)));
            }
        }
        let children = self.entries.values().map(|entry| &entry.children).chain(self.roots.values());
        let (found, idle) = (children.map(BTreeMap::len).sum::<usize>(), self.idle.len());
        let listed = self.entries.values().filter(|entry| entry.idle_since.is_some()).count();
        if found != self.entries.len() || idle != listed || self.roots.values().any(BTreeMap::is_empty) {
            return Err(format!(
                "{} blocks are published and {listed} of them idle, but {found} found and {idle} listed",
                self.entries.len()
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::invariants;
    use crate::cache::tests::pool_of;
    use crate::cache::{Adopted, BlockCopy, SequenceCache, SharedPool};

    /// `blocks` full blocks, each of one token; `rest` more tokens.
    fn text(blocks: &[u32], rest: usize) -> Vec<TokenId> {
        let tokens = blocks.iter().flat_map(|&token| [TokenId(token); BLOCK_TOKENS]);
        tokens.chain(std::iter::repeat_n(TokenId(99), rest)).collect()
    }

    /// A sequence that holds these tokens and has published them, none of which were found.
    fn computed(pool: &SharedPool, tokens: &[TokenId]) -> SequenceCache {
        let mut sequence = SequenceCache::new(pool);
        assert_eq!(sequence.append(tokens.len()).unwrap(), None);
        sequence.publish(tokens);
        sequence
    }

    /// How many tokens a new sequence would find.
    fn found(pool: &SharedPool, tokens: &[TokenId]) -> usize {
        SequenceCache::new(pool).adopt(tokens).tokens
    }

    #[test]
    fn a_text_with_the_same_beginning_shares_its_full_blocks() {
        let pool = pool_of(8);
        let first = computed(&pool, &text(&[1, 2], 6));
        let mut second = SequenceCache::new(&pool);
        assert_eq!(second.adopt(&text(&[1, 2, 3], 0)), Adopted { tokens: 64, copy: None });
        assert_eq!(second.append(40).unwrap(), None);
        assert_eq!(second.table().blocks()[..2], first.table().blocks()[..2]);
        assert_eq!(found(&pool, &text(&[1, 3], 0)), 32);
        assert_eq!(found(&pool, &text(&[2], 0)), 0, "the second block of a text is not the first of another");
        assert_eq!(found(&pool, &text(&[], 31)), 0);
        let stats = pool.stats();
        assert_eq!((stats.prefix_cache_queries, stats.prefix_cache_hits), (96 + 64 + 32 + 31, 64 + 32));
        assert_eq!((stats.used_blocks, stats.idle_blocks), (5, 0));
        invariants::check(&pool, [first.table(), second.table()]).unwrap();
    }

    #[test]
    fn sequences_of_different_salts_share_nothing() {
        let pool = pool_of(8);
        let salted = |salt: &str| SequenceCache::new(&pool).with_salt(Some(salt.into()));
        let mut first = salted("a");
        first.append(64).unwrap();
        first.publish(&text(&[1, 2], 0));
        assert_eq!(salted("b").adopt(&text(&[1, 2], 0)).tokens, 0);
        assert_eq!(found(&pool, &text(&[1, 2], 0)), 0);
        assert_eq!(salted("a").adopt(&text(&[1, 2], 0)).tokens, 64);
        let mut emptied = first.fork();
        emptied.truncate(0);
        assert_eq!(emptied.adopt(&text(&[1], 0)).tokens, 32, "it keeps its salt");
    }

    #[test]
    fn the_beginning_of_a_block_is_copied() {
        let pool = pool_of(16);
        let first = computed(&pool, &text(&[1, 2], 6));
        let others = [text(&[1, 3], 0), text(&[1], 9)].map(|text| computed(&pool, &text));
        let second_block = first.table().blocks()[1];
        let mut cut = SequenceCache::new(&pool);
        let Adopted { tokens, copy } = cut.adopt(&[&text(&[1, 2], 0)[..50], &text(&[4], 0)].concat());
        let target = cut.table().blocks()[1];
        assert_eq!((tokens, copy), (50, Some(BlockCopy { source: second_block, target, tokens: 18 })));
        assert_eq!(cut.append(20).unwrap(), None, "the copy is its own");
        let tail = SequenceCache::new(&pool).adopt(&text(&[1, 2], 20));
        assert_eq!((tail.tokens, tail.copy.map(|copy| copy.tokens)), (70, Some(6)));
        invariants::check(
            &pool,
            [first.table(), cut.table()].into_iter().chain(others.iter().map(SequenceCache::table)),
        )
        .unwrap();
    }

    #[test]
    fn the_end_of_a_text_is_published_again_as_it_grows() {
        let pool = pool_of(4);
        let mut sequence = computed(&pool, &text(&[], 6));
        sequence.append(20).unwrap();
        assert_eq!(found(&pool, &text(&[], 31)), 6, "the rest may not be computed yet");
        sequence.publish(&text(&[], 26));
        assert_eq!(found(&pool, &text(&[], 31)), 26);
        sequence.truncate(10);
        sequence.append(1).unwrap();
        assert_eq!(found(&pool, &text(&[], 31)), 0, "it is written again");
        sequence.publish(&text(&[], 11));
        assert_eq!(found(&pool, &text(&[], 31)), 11);
        drop(sequence);
        assert_eq!(found(&pool, &text(&[], 31)), 11);
    }

    #[test]
    fn the_only_free_block_is_not_copied_onto_itself() {
        let pool = pool_of(1);
        drop(computed(&pool, &text(&[], 6)));
        let mut sequence = SequenceCache::new(&pool);
        assert_eq!(sequence.adopt(&text(&[], 8)), Adopted { tokens: 0, copy: None });
        sequence.append(8).unwrap();
        invariants::check(&pool, [sequence.table()]).unwrap();
    }

    #[test]
    fn idle_blocks_are_available_and_reused_last_and_oldest_first() {
        let pool = pool_of(5);
        drop(computed(&pool, &text(&[1, 2], 0)));
        drop(computed(&pool, &text(&[3], 0)));
        let stats = pool.stats();
        assert_eq!((stats.used_blocks, stats.idle_blocks, stats.available_blocks), (0, 3, 5));
        let find = |blocks: &[u32]| found(&pool, &text(blocks, 0));

        let mut others = SequenceCache::new(&pool);
        others.append(64).unwrap();
        assert_eq!((find(&[3]), find(&[1, 2])), (32, 64), "there were two other blocks");
        others.append(32).unwrap();
        assert_eq!((find(&[1, 2]), find(&[3])), (64, 0), "the oldest is gone");
        others.append(32).unwrap();
        assert_eq!(find(&[1, 2]), 32, "the end of a text goes before its beginning");
        others.append(32).unwrap();
        assert_eq!((find(&[1, 2]), pool.stats().available_blocks), (0, 0));
        invariants::check(&pool, [others.table()]).unwrap();
    }

    #[test]
    fn a_block_whose_predecessor_is_gone_is_not_found() {
        let pool = pool_of(3);
        let first = computed(&pool, &text(&[1], 0));
        let mut second = computed(&pool, &text(&[1, 2], 0));
        drop(first);
        let mut other = computed(&pool, &text(&[7], 0));
        assert_eq!(found(&pool, &text(&[1, 2], 0)), 0, "the first block was that of the dropped sequence");

        // Whoever still holds the text publishes it anew.
        drop(other);
        second.append(32).unwrap();
        second.publish(&text(&[1, 2, 3], 0));
        assert_eq!(found(&pool, &text(&[1, 2, 3], 0)), 96);
        other = SequenceCache::new(&pool);
        other.append(1).unwrap_err();
        invariants::check(&pool, [second.table(), other.table()]).unwrap();
    }

    #[test]
    fn the_first_of_equal_blocks_stays_and_the_second_is_private() {
        let pool = pool_of(4);
        let first = computed(&pool, &text(&[1, 2], 0));
        let second = computed(&pool, &text(&[1, 2], 0));
        let mut third = SequenceCache::new(&pool);
        assert_eq!(third.adopt(&text(&[1, 2], 0)).tokens, 64);
        assert_eq!(third.table(), first.table());
        drop((third, second));
        assert_eq!(pool.stats().idle_blocks, 0);
        drop(first);
        assert_eq!(pool.stats().idle_blocks, 2);
    }

    #[test]
    fn a_block_that_is_written_again_after_a_rollback_is_not_found() {
        let pool = pool_of(4);
        let mut sequence = computed(&pool, &text(&[1, 2], 0));
        sequence.truncate(40);
        assert_eq!(found(&pool, &text(&[1, 2], 0)), 64, "nothing was written yet");
        let mut other = SequenceCache::new(&pool);
        assert_eq!(other.adopt(&text(&[1, 2], 0)).tokens, 64);
        assert!(sequence.append(1).unwrap().is_some(), "the other one keeps the block");
        assert_eq!(found(&pool, &text(&[1, 2], 0)), 64);

        other.truncate(40);
        assert_eq!(other.append(1).unwrap(), None);
        assert_eq!(found(&pool, &text(&[1, 2], 0)), 32);
        invariants::check(&pool, [sequence.table(), other.table()]).unwrap();
    }

    #[test]
    fn a_sequence_asks_again_at_each_block_boundary() {
        let pool = pool_of(8);
        let tokens = text(&[1, 2, 3, 4], 0);
        let mut late = SequenceCache::new(&pool);
        late.append(32).unwrap();
        assert_eq!(late.adopt(&tokens).tokens, 0, "nothing is published");
        let early = computed(&pool, &tokens[..96]);
        assert_eq!(late.adopt(&tokens).tokens, 64);
        assert_eq!(late.table().blocks()[1..], early.table().blocks()[1..]);
        late.append(1).unwrap();
        assert_eq!(late.adopt(&tokens).tokens, 0, "it ends within a block");
        let stats = pool.stats();
        assert_eq!((stats.prefix_cache_queries, stats.prefix_cache_hits), (96, 64), "each token counts once");
    }

    #[test]
    fn blocks_in_use_cost_nothing_and_idle_ones_are_drawn_from_the_reservation() {
        let pool = pool_of(4);
        let first = computed(&pool, &text(&[1], 0));
        drop(computed(&pool, &text(&[2, 3], 0)));
        let reservation = pool.reserve(1).unwrap();
        let mut shared = SequenceCache::within(&reservation);
        assert_eq!((shared.adopt(&text(&[1], 0)).tokens, reservation.remaining()), (32, 1));
        let mut idle = SequenceCache::within(&reservation);
        let _others = pool.reserve(2).unwrap();
        assert_eq!(
            idle.adopt(&text(&[2, 3], 0)).tokens,
            32,
            "the second block belongs to the other reservation"
        );
        assert_eq!((reservation.remaining(), pool.stats().available_blocks), (0, 0));
        drop(first);
        invariants::check(&pool, [shared.table(), idle.table()]).unwrap();
        drop(idle);
        assert_eq!(reservation.remaining(), 1);
        invariants::check(&pool, [shared.table()]).unwrap();
    }

    #[test]
    fn a_lower_limit_drops_idle_blocks() {
        let pool = pool_of(4);
        drop(computed(&pool, &text(&[1, 2, 3, 4], 0)));
        assert_eq!((pool.set_limit(2), pool.num_blocks()), (2, 2));
        assert_eq!(found(&pool, &text(&[1, 2, 3, 4], 0)), 64);
        assert_eq!((pool.set_limit(0), pool.stats().idle_blocks), (0, 0));
        invariants::check(&pool, []).unwrap();
    }
}
