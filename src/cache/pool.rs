//! The bookkeeping of the KV cache: reference counts, the free list, growth, and blocks set aside for requests.
//!
//! Integers only: it runs between passes, under a lock. Each operation takes constant time per block; only growth writes a
//! whole segment of integers. When blocks do not suffice it returns an error and never waits.

use std::collections::HashMap;
use std::num::NonZeroU64;

use super::capacity::KvCapacity;
use super::layout::BLOCK_TOKENS;
use crate::error::{Error, Result};
use crate::types::BlockId;

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
    /// Last in, first out: a block that was just released is most likely in the CPU cache.
    pub(super) free: Vec<BlockId>,
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
            accounts: HashMap::new(),
            reserved: 0,
            next_reservation: NonZeroU64::MIN,
        }
    }

    pub(super) fn stats(&self) -> PoolStats {
        PoolStats {
            max_blocks: self.limit,
            num_blocks: self.blocks.len(),
            used_blocks: self.blocks.len() - self.free.len(),
            reserved_blocks: self.reserved,
            available_blocks: self.available(),
        }
    }

    /// Pushes `count` blocks with a count of one onto `into`, or none at all. What remains of `reservation` is drawn
    /// down first; beyond that only blocks that nobody reserved are taken.
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
            if self.free.is_empty() {
                self.grow();
            }
            let block = self.free.pop().expect("the maximum exceeds the used blocks, as checked above");
            let owner = if taken < drawn { reservation } else { None };
            self.blocks[block.index()] = BlockState { count: 1, owner };
            into.push(block);
        }
        Ok(())
    }

    /// How many tables hold `block`.
    pub(super) fn count(&self, block: BlockId) -> u32 {
        self.blocks[block.index()].count
    }

    /// One more table holds `block`.
    pub(super) fn retain(&mut self, block: BlockId) {
        let state = &mut self.blocks[block.index()];
        debug_assert!(state.count > 0, "block {block} is free and cannot be shared");
        state.count += 1;
    }

    /// One table less holds `block`. With the last one it becomes free, and goes back to the reservation it came from.
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
        self.free.push(block);
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

    /// Blocks neither used nor reserved, grown or not.
    fn available(&self) -> usize {
        self.limit - (self.blocks.len() - self.free.len()) - self.reserved
    }

    /// Changes the most blocks to `limit`, less what is no whole segment. A lower limit drops free blocks at the end of the
    /// pool; it stays above the blocks that are used or reserved.
    pub(super) fn set_limit(&mut self, limit: usize) {
        let (segment, max_blocks) = (self.capacity.segment_blocks(), self.capacity.max_blocks());
        let limit = if limit >= max_blocks { max_blocks } else { limit / segment * segment };
        if limit >= self.limit {
            self.limit = limit;
            return;
        }
        let end = self.blocks.iter().rposition(|state| state.count > 0).map_or(0, |last| last + 1);
        let needed = end.max(self.blocks.len() - self.free.len() + self.reserved);
        self.limit = limit.max(needed.next_multiple_of(segment)).min(self.limit);
        if self.limit < self.blocks.len() {
            self.blocks.truncate(self.limit);
            self.free.retain(|block| block.index() < self.limit);
        }
    }

    /// Adds a segment to the free list, or what is left up to the maximum.
    fn grow(&mut self) {
        let start = self.blocks.len();
        let end = (start + self.capacity.segment_blocks()).min(self.limit);
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
        Error::capacity(format!(
            "the KV cache does not suffice: {} needed, {} free, {} in total; raise kv_cache_bytes to {enough}, {remedy}",
            amount(needed),
            amount(free),
            amount(total),
        ))
    }
}
