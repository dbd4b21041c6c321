//! The block table of a sequence.
//!
//! The model reads tables; only [`SequenceCache`](super::SequenceCache) changes them. A table owns no blocks:
//! a copy serves one pass, whose rows have slots in it.

use super::layout::BLOCK_TOKENS;
use rsgen_core::types::BlockId;

/// The blocks of one sequence in order; all but the last are full.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct BlockTable {
    pub(super) blocks: Vec<BlockId>,
    pub(super) len: usize,
}

impl BlockTable {
    /// Becomes a copy of another table, for one pass. Keeps its memory.
    pub fn clone_from_sequence(&mut self, table: &Self) {
        self.blocks.clone_from(&table.blocks);
        self.len = table.len;
    }

    /// A table of `len` tokens in adjacent blocks, for a store of its own.
    pub(crate) fn adjacent(first_block: u32, len: usize) -> Self {
        let end = first_block + len.div_ceil(BLOCK_TOKENS) as u32;
        Self { blocks: (first_block..end).map(BlockId).collect(), len }
    }

    /// Drops the tokens from `len` on, of a copy for one pass.
    pub fn cut(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// The blocks, the first tokens first.
    pub fn blocks(&self) -> &[BlockId] {
        &self.blocks
    }

    /// Tokens in the sequence.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no token.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The block of the token at `position`, and its slot in the block, 0 to 31.
    ///
    /// # Panics
    /// When the sequence has no such token.
    #[inline]
    pub fn slot(&self, position: usize) -> (BlockId, usize) {
        assert!(position < self.len, "position {position} of a sequence of {} tokens", self.len);
        (self.blocks[position / BLOCK_TOKENS], position % BLOCK_TOKENS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> BlockTable {
        BlockTable { blocks: vec![BlockId(9), BlockId(4)], len: 33 }
    }

    #[test]
    fn positions_run_through_the_blocks_in_order() {
        assert_eq!(table().slot(0), (BlockId(9), 0));
        assert_eq!(table().slot(31), (BlockId(9), 31));
        assert_eq!(table().slot(32), (BlockId(4), 0));
    }

    #[test]
    #[should_panic(expected = "position 33 of a sequence of 33 tokens")]
    fn a_slot_that_was_not_appended_does_not_exist() {
        table().slot(33);
    }
}
