//! The index of published blocks, by the tokens that they hold and those before them.
//!
//! Once its rows are computed, a block can be *published*. From then on every sequence that begins with the
//! same tokens finds it, whether or not a sequence holds it: a full block is shared, and of the last block of
//! a text, which need not be full, the common tokens are copied. A published block without holders is *idle*:
//! it counts as available, and the least recently used one is taken when no other block is left. A block can
//! be *kept* without being held; kept blocks are evicted last.
//!
//! The published blocks form trees, one for each salt: a block is a child of the full block before it, by its
//! tokens. The index compares the tokens and salts themselves, not their hashes, and never gives an identity
//! twice. So no collision can confuse two texts or two salts.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use super::layout::BLOCK_TOKENS;
use rsgen_core::types::{BlockId, TokenId};

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
    /// When its last holder released it; a key of `idle`.
    idle_since: Option<u64>,
    /// The number of its keepers. A keeper of a block keeps all blocks before it.
    keepers: u32,
}

impl Entry {
    /// Its key in `idle`, if it is there.
    fn idle_key(&self) -> Option<IdleKey> {
        self.idle_since.map(|since| (self.keepers > 0, since))
    }
}

/// Whether the block is kept, and since when it is idle.
type IdleKey = (bool, u64);

/// The published blocks of a pool.
#[derive(Debug, Default)]
pub(super) struct PrefixIndex {
    entries: HashMap<BlockId, Entry>,
    /// The first blocks of texts, by salt; never empty.
    roots: HashMap<Option<Arc<str>>, Children>,
    /// The idle blocks: those without keepers, then the kept ones, each least recently used first.
    idle: BTreeMap<IdleKey, BlockId>,
    /// How many blocks are kept, and how many of those are idle.
    kept: usize,
    kept_idle: usize,
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

    /// Publishes the tokens of a held block; `before` is current. The block is forgotten under its former
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
            let (before, children) = (before.clone(), Children::new());
            let entry = Entry { id, before, tokens, children, idle_since: None, keepers: 0 };
            self.entries.insert(block, entry);
        }
        PublishedBlock { block, id }
    }

    /// Forgets a block, and all that follow it, since they cannot be found any more. Those that were idle go
    /// to `free`.
    pub(super) fn unpublish(&mut self, block: BlockId, free: &mut Vec<BlockId>) {
        let (mut next, mut others) = (Some(block), Vec::new());
        while let Some(entry) = next.and_then(|block| self.entries.remove(&block)) {
            if let Some(siblings) = self.children_mut(&entry.before) {
                siblings.remove(&entry.tokens);
                if let (true, Before::Salt(salt)) = (siblings.is_empty(), &entry.before) {
                    self.roots.remove(salt);
                }
            }
            free.extend(entry.idle_key().and_then(|key| self.idle.remove(&key)));
            let is_kept = entry.keepers > 0;
            self.kept -= usize::from(is_kept);
            self.kept_idle -= usize::from(is_kept && entry.idle_since.is_some());
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

    /// The last holder released `block`. Returns whether it is published, and so idle from now on.
    pub(super) fn release(&mut self, block: BlockId) -> bool {
        let now = self.tick();
        let Some(entry) = self.entries.get_mut(&block) else { return false };
        entry.idle_since = Some(now);
        self.kept_idle += usize::from(entry.keepers > 0);
        self.idle.extend(entry.idle_key().map(|key| (key, block)));
        true
    }

    /// `block` has a holder again.
    pub(super) fn retain(&mut self, block: BlockId) {
        let Some(entry) = self.entries.get_mut(&block) else { return };
        if let Some(key) = entry.idle_key() {
            self.idle.remove(&key);
            self.kept_idle -= usize::from(entry.keepers > 0);
            entry.idle_since = None;
        }
    }

    /// Adds a keeper to the block; the caller also keeps all blocks before it. Does nothing when the block is
    /// not current.
    pub(super) fn keep(&mut self, published: PublishedBlock) {
        self.change_keepers(published, |keepers| keepers.saturating_add(1));
    }

    /// Removes a keeper from the block. Does nothing when the block is not current.
    pub(super) fn unkeep(&mut self, published: PublishedBlock) {
        self.change_keepers(published, |keepers| keepers.saturating_sub(1));
    }

    fn change_keepers(&mut self, published: PublishedBlock, change: impl FnOnce(u32) -> u32) {
        let entry = self.entries.get_mut(&published.block).filter(|entry| entry.id == published.id);
        let Some(entry) = entry else { return };
        let (before, was_kept) = (entry.idle_key(), entry.keepers > 0);
        entry.keepers = change(entry.keepers);
        let (after, is_kept) = (entry.idle_key(), entry.keepers > 0);
        if was_kept == is_kept {
            return;
        }
        self.kept = self.kept + usize::from(is_kept) - usize::from(was_kept);
        if let (Some(before), Some(after)) = (before, after) {
            self.idle.remove(&before);
            self.idle.insert(after, published.block);
            self.kept_idle = self.kept_idle + usize::from(is_kept) - usize::from(was_kept);
        }
    }

    /// Forgets the idle block that was used least recently, which goes to `free`: one that is kept only if
    /// all are.
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

    /// The number of idle blocks.
    pub(super) fn num_idle(&self) -> usize {
        self.idle.len()
    }

    /// The number of idle blocks without keepers.
    pub(super) fn num_unkept_idle(&self) -> usize {
        self.idle.len() - self.kept_idle
    }

    /// The number of kept blocks.
    pub(super) fn num_kept(&self) -> usize {
        self.kept
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
            let is_idle = entry.idle_key().and_then(|key| self.idle.get(&key)) == Some(&block);
            if is_idle == is_held(block) {
                return Err(format!("block {block} is published, held: {}, idle: {is_idle}", is_held(block)));
            }
            if let Before::Block(before) = &entry.before
                && self.entries.get(&before.block).is_none_or(|before| before.keepers < entry.keepers)
            {
                return Err(format!("block {block} is kept more often than the block before it"));
            }
        }
        let kept = self.entries.values().filter(|entry| entry.keepers > 0);
        let kept_idle = kept.clone().filter(|entry| entry.idle_since.is_some()).count();
        if (kept.clone().count(), kept_idle) != (self.kept, self.kept_idle) {
            return Err(format!("{} blocks count as kept, {} of them as idle", self.kept, self.kept_idle));
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
mod tests;
