//! The bookkeeping of the KV cache: reference counts, the free list, growth, and blocks set aside for
//! requests.
//!
//! No floats: it runs between passes, under a lock. Each operation takes about constant time per block; only
//! growth writes an entry for each new block. When blocks do not suffice it returns an error and never waits.

use std::collections::HashMap;
use std::num::NonZeroU64;

use super::capacity::KvCapacity;
use super::layout::{BLOCK_TOKENS, BlockCopy};
use super::prefix::{Before, PrefixIndex, PublishedBlock};
use rsgen_core::error::{Error, Result};
use rsgen_core::message;
use rsgen_core::types::{BlockId, TokenId};

/// The memory that idle blocks may take in every pool whose texts are continued, in bytes.
const IDLE_BYTES: usize = 256 << 20;
/// The memory that they take at most where texts are not continued.
const SINGLE_TEXT_IDLE_BYTES: usize = 32 << 20;

/// The state of a pool, in blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolStats {
    /// The most blocks that the pool may have now: its part of the memory that the pools of an engine share.
    pub max_blocks: usize,
    /// Blocks the pool has grown to so far.
    pub num_blocks: usize,
    /// Blocks that some sequence holds; a shared block counts once.
    pub used_blocks: usize,
    /// Blocks set aside for requests and not yet taken by them.
    pub reserved_blocks: usize,
    /// Blocks that anyone may take or reserve: neither used nor reserved, grown or not.
    pub available_blocks: usize,
    /// Idle published blocks: reusable, and shareable until they are reused.
    pub idle_blocks: usize,
    /// Published blocks that a [`KeptBlocks`](super::KeptBlocks) keeps; those of them that are idle are taken
    /// last.
    pub kept_blocks: usize,
    /// Tokens that sequences have looked up in the published blocks so far.
    pub prefix_cache_queries: u64,
    /// Those of them that were found.
    pub prefix_cache_hits: u64,
}

/// The id of a reservation; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ReservationId(NonZeroU64);

/// The size of a reservation, and how much of it is in use.
#[derive(Debug, Clone, Copy)]
pub(super) struct Account {
    pub(super) size: usize,
    pub(super) used: usize,
}

impl Account {
    pub(super) fn remaining(&self) -> usize {
        self.size - self.used
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct BlockState {
    /// How many tables hold the block. A table entry takes four bytes, so 32 bits cannot overflow.
    pub(super) count: u32,
    /// The reservation that gets the block back when its count falls to zero, if that still exists.
    pub(super) owner: Option<ReservationId>,
}

/// The reference counts and the free list.
#[derive(Debug)]
pub(super) struct BlockPool {
    pub(super) capacity: KvCapacity,
    /// The most blocks for now: the maximum of the capacity, or whole segments.
    pub(super) limit: usize,
    /// One entry per block grown so far.
    pub(super) blocks: Vec<BlockState>,
    /// Unpublished blocks. Last in, first out: a block that was just released is most likely in the CPU
    /// cache.
    pub(super) free: Vec<BlockId>,
    /// The published blocks, which are free, too, when they are idle.
    pub(super) prefixes: PrefixIndex,
    pub(super) accounts: HashMap<ReservationId, Account>,
    /// The blocks that remain in all accounts.
    pub(super) reserved: usize,
    next_reservation: NonZeroU64,
}

impl BlockPool {
    /// A pool without blocks that may grow up to `capacity`.
    pub(super) fn new(capacity: KvCapacity) -> Self {
        Self {
            capacity,
            limit: capacity.max_blocks(),
            blocks: Vec::new(),
            free: Vec::new(),
            prefixes: PrefixIndex::default(),
            accounts: HashMap::new(),
            reserved: 0,
            next_reservation: NonZeroU64::MIN,
        }
    }

    pub(super) fn stats(&self) -> PoolStats {
        PoolStats {
            max_blocks: self.limit,
            num_blocks: self.blocks.len(),
            used_blocks: self.used(),
            reserved_blocks: self.reserved,
            available_blocks: self.available(),
            idle_blocks: self.prefixes.num_idle(),
            kept_blocks: self.prefixes.num_kept(),
            prefix_cache_queries: self.prefixes.queries,
            prefix_cache_hits: self.prefixes.hits,
        }
    }

    /// Pushes `count` blocks with a count of one onto `into`, or none at all. What remains of `reservation`
    /// is drawn down first; beyond that only unreserved blocks are taken.
    ///
    /// # Errors
    /// `Capacity` when they do not suffice.
    pub(super) fn allocate(
        &mut self,
        count: usize,
        reservation: Option<ReservationId>,
        into: &mut Vec<BlockId>,
    ) -> Result<()> {
        let account = reservation.and_then(|id| self.accounts.get(&id));
        let drawn = account.map_or(0, |account| account.remaining().min(count));
        let available = self.available();
        if count - drawn > available {
            return Err(self.refusal(count, available + drawn));
        }
        if let Some(account) = reservation.and_then(|id| self.accounts.get_mut(&id)) {
            account.used += drawn;
        }
        self.reserved -= drawn;

        into.reserve(count);
        for taken in 0..count {
            let block = self.take_free().expect("the maximum exceeds the used blocks, as checked above");
            let owner = if taken < drawn { reservation } else { None };
            self.blocks[block.index()] = BlockState { count: 1, owner };
            into.push(block);
        }
        Ok(())
    }

    /// A free block: an unpublished one, else a new one, else the idle one that was used least recently.
    /// While many are idle, no new ones, so that a program which only runs for long does not take more and
    /// more memory. One that is kept comes last.
    fn take_free(&mut self) -> Option<BlockId> {
        let unkept = self.prefixes.num_unkept_idle();
        if self.free.is_empty() && unkept < self.most_idle() {
            self.grow();
        }
        if self.free.is_empty() && unkept > 0 {
            self.prefixes.evict(&mut self.free);
        }
        if self.free.is_empty() {
            self.grow();
        }
        if self.free.is_empty() {
            self.prefixes.evict(&mut self.free);
        }
        self.free.pop()
    }

    /// The number of idle blocks without keepers from which on the pool evicts instead of growing: the
    /// largest of the blocks in use, an eighth of all, and [`IDLE_BYTES`]; or [`SINGLE_TEXT_IDLE_BYTES`].
    fn most_idle(&self) -> usize {
        let block = self.capacity.layout().bytes_per_block();
        if self.capacity.are_texts_continued() {
            self.used().max(self.limit / 8).max(IDLE_BYTES / block)
        } else {
            SINGLE_TEXT_IDLE_BYTES / block
        }
    }

    /// Adds a holder to a published block. An idle block counts as an allocation: it draws down what remains
    /// of `reservation`, else it takes an available block. Returns false when neither is left, or the block
    /// was reused.
    pub(super) fn adopt(&mut self, published: PublishedBlock, reservation: Option<ReservationId>) -> bool {
        let block = published.block;
        if self.prefixes.published(block) != Some(published) {
            return false;
        }
        if self.count(block) == 0 {
            let account = reservation.and_then(|id| self.accounts.get_mut(&id));
            let drawn = account.filter(|account| account.remaining() > 0);
            let owner = if let Some(account) = drawn {
                account.used += 1;
                self.reserved -= 1;
                reservation
            } else if self.available() > 0 {
                None
            } else {
                return false;
            };
            self.prefixes.retain(block);
            self.blocks[block.index()].owner = owner;
        }
        self.blocks[block.index()].count += 1;
        true
    }

    /// A held block, of which `len` tokens are left, is about to be written.
    pub(super) fn unpublish_beyond(&mut self, block: BlockId, len: usize) {
        self.prefixes.unpublish_beyond(block, len, &mut self.free);
    }

    /// See [`PrefixIndex::publish`].
    pub(super) fn publish(&mut self, block: BlockId, before: &Before, tokens: &[TokenId]) -> PublishedBlock {
        self.prefixes.publish(block, before, tokens, &mut self.free)
    }

    /// Pushes a block of its own for the first of `tokens`, those that follow `before`, which another block
    /// has already. Returns the copy that brings them there; `None` when none is published or the blocks do
    /// not suffice.
    pub(super) fn copy_longest(
        &mut self,
        before: &Before,
        tokens: &[TokenId],
        reservation: Option<ReservationId>,
        into: &mut Vec<BlockId>,
    ) -> Option<BlockCopy> {
        let (source, tokens) = self.prefixes.find_longest(before, tokens)?;
        // Held, so that it is not the block that is allocated.
        if tokens == BLOCK_TOKENS || !self.adopt(source, reservation) {
            return None;
        }
        let is_allocated = self.allocate(1, reservation, into).is_ok();
        self.release(source.block);
        let target = *into.last().filter(|_| is_allocated)?;
        Some(BlockCopy { source: source.block, target, tokens })
    }

    /// How many tables hold `block`.
    pub(super) fn count(&self, block: BlockId) -> u32 {
        self.blocks[block.index()].count
    }

    /// Adds a holder to `block`.
    pub(super) fn retain(&mut self, block: BlockId) {
        let state = &mut self.blocks[block.index()];
        debug_assert!(state.count > 0, "block {block} is free and cannot be shared");
        state.count += 1;
    }

    /// Removes a holder from `block`. With the last one it becomes free, and goes back to the reservation it
    /// came from.
    pub(super) fn release(&mut self, block: BlockId) {
        let state = &mut self.blocks[block.index()];
        debug_assert!(state.count > 0, "block {block} was released once too often");
        state.count -= 1;
        if state.count > 0 {
            return;
        }
        if let Some(account) = state.owner.take().and_then(|owner| self.accounts.get_mut(&owner)) {
            account.used -= 1;
            self.reserved += 1;
        }
        if !self.prefixes.release(block) {
            self.free.push(block);
        }
    }

    /// Sets `count` blocks aside.
    ///
    /// # Errors
    /// `Capacity` when fewer are available.
    pub(super) fn reserve(&mut self, count: usize) -> Result<ReservationId> {
        let available = self.available();
        if count > available {
            return Err(self.refusal(count, available));
        }
        let id = ReservationId(self.next_reservation);
        self.next_reservation = self.next_reservation.saturating_add(1);
        self.accounts.insert(id, Account { size: count, used: 0 });
        self.reserved += count;
        Ok(id)
    }

    /// Whether there can ever be so many blocks.
    ///
    /// # Errors
    /// `Capacity` when the limit is lower.
    pub(super) fn check_limit(&self, blocks: usize) -> Result<()> {
        if blocks > self.limit { Err(self.refusal(blocks, self.available())) } else { Ok(()) }
    }

    /// Gives back what remains of a reservation. Blocks taken from it stay with their sequences.
    pub(super) fn unreserve(&mut self, id: ReservationId) {
        if let Some(account) = self.accounts.remove(&id) {
            self.reserved -= account.remaining();
        }
    }

    /// Blocks that some table holds.
    pub(super) fn used(&self) -> usize {
        self.blocks.len() - self.free.len() - self.prefixes.num_idle()
    }

    /// Blocks neither used nor reserved, grown or not.
    fn available(&self) -> usize {
        self.limit - self.used() - self.reserved
    }

    /// Changes the most blocks to `limit`, less what is no whole segment. A lower limit drops free blocks at
    /// the end of the pool; it stays above the blocks that are used or reserved.
    pub(super) fn set_limit(&mut self, limit: usize) {
        let (segment, max_blocks) = (self.capacity.segment_blocks(), self.capacity.max_blocks());
        let limit = if limit >= max_blocks { max_blocks } else { limit / segment * segment };
        if limit >= self.limit {
            self.limit = limit;
            return;
        }
        let end = self.blocks.iter().rposition(|state| state.count > 0).map_or(0, |last| last + 1);
        let needed = end.max(self.used() + self.reserved);
        self.limit = limit.max(needed.next_multiple_of(segment)).min(self.limit);
        if self.limit < self.blocks.len() {
            self.blocks.truncate(self.limit);
            self.prefixes.truncate(self.limit, &mut self.free);
            self.free.retain(|block| block.index() < self.limit);
        }
    }

    /// Adds new blocks to the free list, or what is left up to the maximum.
    fn grow(&mut self) {
        let start = self.blocks.len();
        let end = (start + self.capacity.growth_blocks()).min(self.limit);
        self.blocks.resize(end, BlockState { count: 0, owner: None });
        // Reversed, so that adjacent blocks of a sequence are adjacent in memory.
        self.free.extend((start..end).rev().map(|index| BlockId(index as u32)));
    }

    #[cold]
    fn refusal(&self, needed: usize, free: usize) -> Error {
        let total = self.limit;
        let block = self.capacity.layout().bytes_per_block();
        let amount = |blocks: usize| {
            let plural = if blocks == 1 { "" } else { "s" };
            let (tokens, bytes) = (blocks.saturating_mul(BLOCK_TOKENS), blocks.saturating_mul(block));
            format!("{blocks} block{plural} ({tokens} tokens, {bytes} bytes)")
        };
        let enough = (total - free).saturating_add(needed).saturating_mul(block);
        let remedy = if needed > total {
            "or ask for shorter or fewer sequences"
        } else {
            "wait for running requests to end, or ask for shorter or fewer sequences"
        };
        Error::capacity(message!(
            ("the KV cache does not suffice: {} needed, {} free, {} in total; raise ",
             amount(needed), amount(free), amount(total))
            {kv_cache_bytes} " to {enough}, {remedy}"
        ))
    }
}
