//! A cached sequence: append, fork and truncate. Dropping it returns its blocks.
//!
//! A `SequenceCache` owns its blocks, so searches and the engine count no references. It moves no floats;
//! when a shared block must be split, it returns the [`BlockCopy`] that the store must perform.

use std::mem;
use std::sync::Arc;

use super::chain::Chain;
use super::layout::{BLOCK_TOKENS, BlockCopy, blocks_for};
use super::pool::ReservationId;
use super::shared::{Reservation, SharedPool};
use super::table::BlockTable;
use rsgen_core::error::Result;
use rsgen_core::types::TokenId;

/// The blocks of one sequence, returned to their pool on drop.
#[derive(Debug)]
pub struct SequenceCache {
    pub(super) table: BlockTable,
    /// Never longer than the table.
    pub(super) chain: Chain,
    pub(super) pool: SharedPool,
    pub(super) reservation: Option<ReservationId>,
}

/// What a sequence has adopted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "the sequence has become longer"]
pub struct Adopted {
    /// The number of tokens.
    pub tokens: usize,
    /// A copy that must be made as for [`SequenceCache::append`].
    pub copy: Option<BlockCopy>,
}

impl SequenceCache {
    /// An empty sequence that takes blocks as they are available.
    pub fn new(pool: &SharedPool) -> Self {
        Self { table: BlockTable::default(), chain: Chain::default(), pool: pool.clone(), reservation: None }
    }

    /// An empty sequence that, like its forks, takes blocks of `reservation` first.
    pub fn within(reservation: &Reservation) -> Self {
        let mut sequence = Self::new(reservation.pool());
        sequence.reservation = Some(reservation.id());
        sequence
    }

    /// Shares published blocks only with sequences of the same `salt`. For an empty sequence; its forks
    /// inherit it.
    #[must_use]
    pub fn with_salt(mut self, salt: Option<Arc<str>>) -> Self {
        self.chain = Chain::new(salt);
        self
    }

    /// The block table.
    pub fn table(&self) -> &BlockTable {
        &self.table
    }

    /// Tokens in the sequence, also those appended and not yet written.
    pub fn len(&self) -> usize {
        self.table.len
    }

    /// Whether there is no token.
    pub fn is_empty(&self) -> bool {
        self.table.len == 0
    }

    /// Adds slots for `tokens` tokens at the end, to be written by the next pass. O(new blocks).
    ///
    /// When the last block is partly filled and shared, the sequence gets a block of its own instead, and the
    /// store must make the returned copy before anything is written; see [`BlockCopy`]. Full blocks stay
    /// shared, so there is never more than one copy.
    ///
    /// # Errors
    /// `Capacity` when the pool cannot give the blocks; the sequence is unchanged then.
    pub fn append(&mut self, tokens: usize) -> Result<Option<BlockCopy>> {
        if tokens == 0 {
            return Ok(None);
        }
        let BlockTable { blocks, len } = &mut self.table;
        // A number that overflows saturates; the pool refuses it as too large.
        let end = len.saturating_add(tokens);
        let filled = *len % BLOCK_TOKENS;
        let held = blocks.len();

        let mut pool = self.pool.lock();
        let split = filled > 0 && pool.count(blocks[held - 1]) > 1;
        pool.allocate(blocks_for(end) - held + usize::from(split), self.reservation, blocks)?;
        *len = end;
        if !split {
            if filled > 0 {
                // After a rollback the block will no longer hold what it was published for.
                pool.unpublish_beyond(blocks[held - 1], filled);
            }
            return Ok(None);
        }
        let target = blocks.pop().expect("one block was allocated for the copy");
        let source = mem::replace(&mut blocks[held - 1], target);
        pool.release(source);
        Ok(Some(BlockCopy { source, target, tokens: filled }))
    }

    /// A second sequence with the same tokens. O(blocks) on integers; no float is copied, now or while the
    /// two only differ in later blocks.
    #[must_use]
    pub fn fork(&self) -> Self {
        let mut pool = self.pool.lock();
        for &block in &self.table.blocks {
            pool.retain(block);
        }
        Self {
            table: BlockTable { blocks: self.table.blocks.clone(), len: self.table.len },
            chain: self.chain.clone(),
            pool: self.pool.clone(),
            reservation: self.reservation,
        }
    }

    /// Rolls back to the first `len` tokens and returns the blocks that this empties. O(blocks returned). A
    /// `len` past the end changes nothing. In a forked process, which has no pool to return them to, they are
    /// forgotten.
    pub fn truncate(&mut self, len: usize) {
        if len >= self.table.len {
            return;
        }
        self.table.len = len;
        self.chain.truncate(len);
        let Some(mut pool) = self.pool.lock_at_home() else { return };
        // From the end, so that the free list returns them in order.
        for block in self.table.blocks.drain(blocks_for(len)..).rev() {
            pool.release(block);
        }
    }

    /// Publishes `tokens`, the first tokens of the sequence, so that other sequences find them. Their rows
    /// must be computed in all layers, and depend on nothing but the tokens. O(blocks not published yet).
    ///
    /// When the same tokens are published already, the first block stays and this one remains private.
    pub fn publish(&mut self, tokens: &[TokenId]) {
        let tokens = &tokens[..tokens.len().min(self.len())];
        let Some(mut pool) = self.pool.lock_at_home() else { return };
        self.chain.follow(&pool.prefixes, tokens);
        loop {
            let next = self.chain.next_tokens(tokens);
            if next.is_empty() {
                return;
            }
            let published = pool.publish(self.table.blocks[self.chain.len], &self.chain.before(), next);
            if next.len() < BLOCK_TOKENS {
                return;
            }
            self.chain.extend(published);
        }
    }

    /// How many of its first blocks are known to be published.
    pub fn published_blocks(&self) -> usize {
        self.chain.len
    }

    /// Continues the sequence with published blocks; these tokens need not be computed. `tokens` are those of
    /// the sequence and those that may be adopted. A sequence that ends within a block adopts none.
    ///
    /// Other sequences publish while this one is computed, so it pays to ask at each block boundary of a long
    /// prompt.
    ///
    /// A full block that others hold costs nothing. An idle one counts as an allocation: it comes out of the
    /// reservation or of the available blocks, and without either the sequence ends before it. So does the
    /// block that gets a copy of the beginning of another.
    pub fn adopt(&mut self, tokens: &[TokenId]) -> Adopted {
        let none = Adopted { tokens: 0, copy: None };
        let Some(mut pool) = self.pool.lock_at_home() else { return none };
        let (before, held) = (self.table.len, self.table.blocks.len());
        self.chain.count_query(&mut pool.prefixes, before, tokens.len());
        if !before.is_multiple_of(BLOCK_TOKENS) || tokens.len() <= before {
            return none;
        }
        self.chain.follow(&pool.prefixes, &tokens[..before]);
        if self.chain.len < held {
            return none;
        }
        while let Some(found) = self.chain.next(&pool.prefixes, tokens) {
            if !pool.adopt(found, self.reservation) {
                break;
            }
            self.chain.extend(found);
            self.table.blocks.push(found.block);
            self.table.len += BLOCK_TOKENS;
        }
        let (next, blocks) = (self.chain.next_tokens(tokens), &mut self.table.blocks);
        let copy = pool.copy_longest(&self.chain.before(), next, self.reservation, blocks);
        self.table.len += copy.map_or(0, |copy| copy.tokens);
        let tokens = self.table.len - before;
        pool.prefixes.hits += tokens as u64;
        Adopted { tokens, copy }
    }

    /// [`SequenceCache::adopt`] of all `tokens`, in full blocks, or of none: the sequence stays empty then.
    /// Returns whether it has adopted them. Nothing is copied.
    pub fn adopt_whole(&mut self, tokens: &[TokenId]) -> bool {
        let Adopted { copy, .. } = self.adopt(tokens);
        let is_whole = copy.is_none() && self.table.len == tokens.len();
        if !is_whole {
            self.truncate(0);
        }
        is_whole
    }
}

impl Drop for SequenceCache {
    fn drop(&mut self) {
        self.truncate(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::invariants::check;
    use crate::cache::tests::pool_of;
    use rsgen_core::types::BlockId;

    fn sequence(pool: &SharedPool, tokens: usize) -> SequenceCache {
        let mut sequence = SequenceCache::new(pool);
        assert_eq!(sequence.append(tokens).unwrap(), None);
        sequence
    }

    #[test]
    fn appending_takes_a_block_for_each_32_tokens() {
        let pool = pool_of(4);
        let mut sequence = sequence(&pool, 31);
        assert_eq!(sequence.table().blocks(), [BlockId(0)]);
        assert_eq!(sequence.append(1).unwrap(), None);
        assert_eq!(sequence.table().blocks(), [BlockId(0)]);
        assert_eq!(sequence.append(33).unwrap(), None);
        assert_eq!(sequence.table().blocks(), [BlockId(0), BlockId(1), BlockId(2)]);
        assert_eq!(sequence.len(), 65);
    }

    #[test]
    fn a_fork_shares_all_blocks_until_one_side_appends() {
        let pool = pool_of(8);
        let mut parent = sequence(&pool, 40);
        let mut child = parent.fork();
        assert_eq!(pool.stats().used_blocks, 2);

        let copy = child.append(1).unwrap().unwrap();
        assert_eq!(copy, BlockCopy { source: BlockId(1), target: BlockId(2), tokens: 8 });
        assert_eq!(child.table().blocks(), [BlockId(0), BlockId(2)]);
        assert_eq!(parent.append(1).unwrap(), None, "the parent is alone in its last block now");
        check(&pool, [parent.table(), child.table()]).unwrap();
    }

    #[test]
    fn a_fork_of_a_fork_copies_for_all_but_the_last_writer() {
        let pool = pool_of(8);
        let parent = sequence(&pool, 5);
        let child = parent.fork();
        let grandchild = child.fork();
        let mut sequences = [parent, child, grandchild];
        let copies = sequences.each_mut().map(|sequence| sequence.append(27).unwrap().is_some());
        assert_eq!(copies, [true, true, false]);
        assert_eq!(pool.stats().used_blocks, 3);
        check(&pool, sequences.iter().map(SequenceCache::table)).unwrap();
    }

    #[test]
    fn full_blocks_are_never_copied() {
        let pool = pool_of(8);
        let mut parent = sequence(&pool, 64);
        let mut child = parent.fork();
        assert_eq!((parent.append(1).unwrap(), child.append(1).unwrap()), (None, None));
        assert_eq!(pool.stats().used_blocks, 4);
        assert_eq!(parent.table().blocks()[..2], child.table().blocks()[..2]);
    }

    #[test]
    fn truncating_into_a_shared_block_leaves_the_other_side_its_tokens() {
        let pool = pool_of(8);
        let parent = sequence(&pool, 64);
        let mut child = parent.fork();
        child.truncate(10);
        assert_eq!(child.table().blocks(), [BlockId(0)]);
        let copy = child.append(1).unwrap().unwrap();
        assert_eq!((copy.source, copy.tokens), (BlockId(0), 10));
        check(&pool, [parent.table(), child.table()]).unwrap();
    }

    #[test]
    fn truncating_to_a_block_boundary_keeps_no_empty_block() {
        let pool = pool_of(8);
        let mut sequence = sequence(&pool, 70);
        sequence.truncate(1000);
        assert_eq!(sequence.len(), 70);
        sequence.truncate(64);
        assert_eq!((sequence.table().blocks().len(), pool.stats().used_blocks), (2, 2));
        sequence.truncate(0);
        assert_eq!(pool.stats().used_blocks, 0);
        assert_eq!(sequence.append(1).unwrap(), None);
    }

    #[test]
    fn a_refused_append_changes_nothing() {
        let pool = pool_of(3);
        let parent = sequence(&pool, 40);
        let mut child = parent.fork();
        for tokens in [25, 1000, usize::MAX] {
            child.append(tokens).unwrap_err();
            assert_eq!(child.table(), parent.table());
            check(&pool, [parent.table(), child.table()]).unwrap();
        }
        assert!(child.append(24).unwrap().is_some(), "the third block takes the copy");
    }

    #[test]
    fn a_text_is_adopted_whole_or_not_at_all() {
        let pool = pool_of(8);
        let tokens: Vec<TokenId> = (0..128).map(TokenId).collect();
        let mut first = sequence(&pool, 96);
        first.publish(&tokens[..96]);
        let mut second = SequenceCache::new(&pool);
        assert!(second.adopt_whole(&tokens[..96]));
        assert_eq!(second.table(), first.table());
        for len in [70, 97, 128] {
            let mut other = SequenceCache::new(&pool);
            assert!(!other.adopt_whole(&tokens[..len]) && other.is_empty());
        }
        check(&pool, [first.table(), second.table()]).unwrap();
    }

    #[test]
    fn the_last_to_let_go_returns_the_blocks() {
        let pool = pool_of(3);
        let parent = sequence(&pool, 96);
        let child = parent.fork();
        drop(parent);
        assert_eq!(pool.stats().available_blocks, 0);
        drop(child);
        assert_eq!(pool.stats().available_blocks, 3);
    }
}
