//! The index of published blocks, by the tokens that they hold and those before them.
//!
//! A full block can be *published* once its rows are computed. From then on every sequence that begins with the same tokens
//! finds it, whether or not somebody still holds it. A published block that nobody holds is *idle*: it counts as
//! available, and the least recently used one is taken when no other block is left.
//!
//! The key of a block is its 32 tokens and the identity of the published block before it, or the salt of the sequence for
//! the first block. The index compares keys themselves, not their hashes, and an identity is never given twice. So no
//! collision can confuse two texts or two salts. The predecessor of a published block is published, too.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::layout::BLOCK_TOKENS;
use crate::types::{BlockId, TokenId};

/// The identity of a published block; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct PrefixId(u64);

/// A block as it was published. It is current as long as the block stays published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct PublishedBlock {
    pub(super) block: BlockId,
    id: PrefixId,
}

/// What a published block is found by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct PrefixKey {
    before: Before,
    tokens: [TokenId; BLOCK_TOKENS],
}

/// What precedes a block.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Before {
    /// Nothing; only sequences of the same salt share.
    Salt(Option<Arc<str>>),
    Block(PublishedBlock),
}

#[derive(Debug)]
struct Entry {
    id: PrefixId,
    key: PrefixKey,
    /// The blocks whose predecessor it is.
    next: BTreeSet<BlockId>,
    /// When its last holder let go; a key of `idle`.
    idle_since: Option<u64>,
}

/// The published blocks of a pool.
#[derive(Debug, Default)]
pub(super) struct PrefixIndex {
    by_key: HashMap<PrefixKey, BlockId>,
    entries: HashMap<BlockId, Entry>,
    /// The published blocks that nobody holds, least recently used first.
    idle: BTreeMap<u64, BlockId>,
    /// Counts up; the source of identities and of times.
    clock: u64,
    /// Tokens that sequences looked up, and those of them that they found.
    pub(super) queries: u64,
    pub(super) hits: u64,
}

impl PrefixIndex {
    /// The block published under `key`.
    pub(super) fn find(&self, key: &PrefixKey) -> Option<PublishedBlock> {
        let block = *self.by_key.get(key)?;
        self.published(block)
    }

    /// The publication of `block`.
    pub(super) fn published(&self, block: BlockId) -> Option<PublishedBlock> {
        self.entries.get(&block).map(|entry| PublishedBlock { block, id: entry.id })
    }

    /// Publishes a block that somebody holds, after a current one. When the key is taken, its first block stays.
    pub(super) fn publish(&mut self, block: BlockId, key: PrefixKey) -> PublishedBlock {
        if let Some(first) = self.find(&key).or_else(|| self.published(block)) {
            return first;
        }
        if let Some(before) = self.before(&key) {
            before.next.insert(block);
        }
        let id = PrefixId(self.tick());
        self.by_key.insert(key.clone(), block);
        self.entries.insert(block, Entry { id, key, next: BTreeSet::new(), idle_since: None });
        PublishedBlock { block, id }
    }

    /// Forgets a block, and all that follow it, since they cannot be found any more. Those that were idle go to `free`.
    pub(super) fn unpublish(&mut self, block: BlockId, free: &mut Vec<BlockId>) {
        let (mut block, mut others) = (Some(block), Vec::new());
        while let Some(entry) = block.and_then(|block| self.entries.remove(&block)) {
            self.by_key.remove(&entry.key);
            if let Some(before) = self.before(&entry.key) {
                block.map(|block| before.next.remove(&block));
            }
            free.extend(entry.idle_since.and_then(|since| self.idle.remove(&since)));
            others.extend(entry.next);
            block = others.pop();
        }
    }

    /// The entry of the block before that of `key`.
    fn before(&mut self, key: &PrefixKey) -> Option<&mut Entry> {
        match &key.before {
            Before::Salt(_) => None,
            Before::Block(before) => self.entries.get_mut(&before.block),
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

    /// Published blocks.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }
}

/// The salt of a sequence, and how many of its first blocks are known to be published.
#[derive(Debug, Clone, Default)]
pub(super) struct Chain {
    salt: Option<Arc<str>>,
    /// The number of blocks.
    pub(super) len: usize,
    /// The publication of the tokens of the last of them. The block may be one of another sequence.
    end: Option<PublishedBlock>,
    /// The tokens that were looked up so far.
    queried: usize,
}

impl Chain {
    pub(super) fn new(salt: Option<Arc<str>>) -> Self {
        Self { salt, ..Self::default() }
    }

    /// The key of the next block, which `tokens`, those of the whole sequence, must fill.
    pub(super) fn key(&self, tokens: &[TokenId]) -> Option<PrefixKey> {
        let tokens = *tokens.get(self.len * BLOCK_TOKENS..)?.first_chunk()?;
        let before = match self.end {
            None => Before::Salt(self.salt.clone()),
            Some(end) => Before::Block(end),
        };
        Some(PrefixKey { before, tokens })
    }

    /// Adds the next block.
    pub(super) fn extend(&mut self, next: PublishedBlock) {
        self.len += 1;
        self.end = Some(next);
    }

    /// Follows the published blocks of `tokens`, those of the whole sequence. Starts again when its end has been forgotten.
    pub(super) fn follow(&mut self, index: &PrefixIndex, tokens: &[TokenId]) {
        if self.end.is_some_and(|end| index.published(end.block) != Some(end)) {
            (self.len, self.end) = (0, None);
        }
        while let Some(next) = self.key(tokens).and_then(|key| index.find(&key)) {
            self.extend(next);
        }
    }

    /// The sequence has only `tokens` tokens left.
    pub(super) fn truncate(&mut self, tokens: usize) {
        if tokens / BLOCK_TOKENS < self.len {
            (self.len, self.end) = (0, None);
        }
        self.queried = self.queried.min(tokens);
    }

    /// Counts the tokens from `from` to `to` as looked up, each once.
    pub(super) fn count_query(&mut self, index: &mut PrefixIndex, from: usize, to: usize) {
        index.queries += to.saturating_sub(from.max(self.queried)) as u64;
        self.queried = self.queried.max(to);
    }
}

/// Checks the index against itself, `num_blocks` blocks and whether each is held.
///
/// # Errors
/// The first rule that is broken, in words.
pub(super) fn check(
    index: &PrefixIndex,
    num_blocks: usize,
    is_held: impl Fn(BlockId) -> bool,
) -> Result<(), String> {
    if index.by_key.len() != index.entries.len() {
        return Err(format!("{} keys lead to {} published blocks", index.by_key.len(), index.entries.len()));
    }
    for (&block, entry) in &index.entries {
        if block.index() >= num_blocks {
            return Err(format!("block {block} is published but does not exist"));
        }
        if index.by_key.get(&entry.key) != Some(&block) {
            return Err(format!("block {block} is not found by its key"));
        }
        if let Before::Block(before) = entry.key.before {
            let knows = index.entries.get(&before.block).is_some_and(|entry| entry.next.contains(&block));
            if !knows || index.published(before.block) != Some(before) {
                return Err(format!("block {block} is published, but not block {} before it", before.block));
            }
        }
        let is_idle = entry.idle_since.and_then(|since| index.idle.get(&since)) == Some(&block);
        if is_idle == is_held(block) || is_idle != entry.idle_since.is_some() {
            return Err(format!("block {block} is published, held: {}, idle: {is_idle}", is_held(block)));
        }
    }
    let is_first = |entry: &&Entry| matches!(entry.key.before, Before::Salt(_));
    let followers: usize = index.entries.values().map(|entry| entry.next.len()).sum();
    if followers + index.entries.values().filter(is_first).count() != index.entries.len() {
        return Err("a block follows another and is not published".to_owned());
    }
    let idle = index.entries.values().filter(|entry| entry.idle_since.is_some()).count();
    if idle != index.idle.len() {
        return Err(format!("{idle} published blocks are idle, but {} are listed", index.idle.len()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::invariants;
    use crate::cache::tests::pool_of;
    use crate::cache::{SequenceCache, SharedPool};

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
        SequenceCache::new(pool).adopt(tokens)
    }

    #[test]
    fn a_text_with_the_same_beginning_shares_its_full_blocks() {
        let pool = pool_of(8);
        let first = computed(&pool, &text(&[1, 2], 6));
        let mut second = SequenceCache::new(&pool);
        assert_eq!(second.adopt(&text(&[1, 2, 3], 0)), 64);
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
        assert_eq!(salted("b").adopt(&text(&[1, 2], 0)), 0);
        assert_eq!(found(&pool, &text(&[1, 2], 0)), 0);
        assert_eq!(salted("a").adopt(&text(&[1, 2], 0)), 64);
        let mut emptied = first.fork();
        emptied.truncate(0);
        assert_eq!(emptied.adopt(&text(&[1], 0)), 32, "it keeps its salt");
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
        third.adopt(&text(&[1, 2], 0));
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
        other.adopt(&text(&[1, 2], 0));
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
        assert_eq!(late.adopt(&tokens), 0, "nothing is published");
        let early = computed(&pool, &tokens[..96]);
        assert_eq!(late.adopt(&tokens), 64);
        assert_eq!(late.table().blocks()[1..], early.table().blocks()[1..]);
        late.append(1).unwrap();
        assert_eq!(late.adopt(&tokens), 0, "it ends within a block");
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
        assert_eq!((shared.adopt(&text(&[1], 0)), reservation.remaining()), (32, 1));
        let mut idle = SequenceCache::within(&reservation);
        let _others = pool.reserve(2).unwrap();
        assert_eq!(idle.adopt(&text(&[2, 3], 0)), 32, "the second block belongs to the other reservation");
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
