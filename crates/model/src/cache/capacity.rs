//! The limits of a KV cache: its most blocks, and the size of its allocations.
//!
//! The pool and the store must agree on both, so both are created from one `KvCapacity`. The available memory
//! is not checked here.

use super::layout::{BLOCK_TOKENS, KvLayout};
use rsgen_core::error::{Error, Result};
use rsgen_core::message;

/// The largest default segment.
const SEGMENT_BYTES: usize = 64 << 20;
/// The memory that a pool grows by: a huge page, so that a text takes and zeroes little more than it needs.
const GROWTH_BYTES: usize = 2 << 20;

/// The limits of one KV cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvCapacity {
    layout: KvLayout,
    max_blocks: usize,
    segment_blocks: usize,
    are_texts_continued: bool,
}

impl KvCapacity {
    /// The capacity of `kv_cache_bytes` bytes.
    ///
    /// # Errors
    /// `Capacity` when they do not hold a single block.
    pub fn from_bytes(layout: KvLayout, kv_cache_bytes: usize) -> Result<Self> {
        let block = layout.bytes_per_block();
        if kv_cache_bytes < block {
            return Err(Error::capacity(format!(
                "must hold at least one block of {BLOCK_TOKENS} tokens, {block} bytes for this model, got \
                 {kv_cache_bytes}; raise it"
            ))
            .about("kv_cache_bytes"));
        }
        Self::from_blocks(layout, (kv_cache_bytes / block).min(u32::MAX as usize))
    }

    /// Exactly `max_blocks` blocks.
    ///
    /// # Errors
    /// `Capacity` when that is none, more than block ids can name, or more than can be addressed.
    pub fn from_blocks(layout: KvLayout, max_blocks: usize) -> Result<Self> {
        let block = layout.bytes_per_block();
        let addressable = max_blocks.checked_mul(block).is_some_and(|bytes| isize::try_from(bytes).is_ok());
        if max_blocks == 0 || u32::try_from(max_blocks).is_err() || !addressable {
            return Err(Error::capacity(message!(
                ("a KV cache must have between 1 and {} blocks of {block} bytes, got {max_blocks}; change ",
                 (isize::MAX as usize / block).min(u32::MAX as usize))
                {kv_cache_bytes}
            )));
        }
        let segment_blocks = (max_blocks / 16).min(SEGMENT_BYTES / block);
        let single = Self { layout, max_blocks, segment_blocks: 1, are_texts_continued: true };
        Ok(single.with_segment_blocks(segment_blocks))
    }

    /// Whether later requests may begin with what earlier ones computed, as those of a chat do and those of a translator do
    /// not; by default they may. If not, 32 MiB of ended texts stay, and no memory is prefaulted.
    #[must_use]
    pub const fn with_texts_continued(self, are_texts_continued: bool) -> Self {
        Self { are_texts_continued, ..self }
    }

    /// Whether later requests may begin with what earlier ones computed, as those of a chat do.
    pub const fn are_texts_continued(&self) -> bool {
        self.are_texts_continued
    }

    /// Allocates about `blocks` blocks at a time: the next lower power of two, at least 1. By default a
    /// segment is a sixteenth of the maximum, but no more than 64 MiB.
    #[must_use]
    pub fn with_segment_blocks(mut self, blocks: usize) -> Self {
        // A power of two, so that finding a block's segment is a shift.
        self.segment_blocks = 1 << blocks.clamp(1, self.max_blocks).ilog2();
        self
    }

    /// The shape of a block.
    pub const fn layout(&self) -> &KvLayout {
        &self.layout
    }

    /// The most blocks there can ever be.
    pub const fn max_blocks(&self) -> usize {
        self.max_blocks
    }

    /// The most tokens that fit, all sequences together, when none is shared.
    pub const fn max_tokens(&self) -> usize {
        self.max_blocks.saturating_mul(BLOCK_TOKENS)
    }

    /// The blocks of an allocation, a power of two; the last segment may be shorter.
    pub const fn segment_blocks(&self) -> usize {
        self.segment_blocks
    }

    /// The blocks that a pool grows by, a power of two that divides a segment.
    pub(super) fn growth_blocks(&self) -> usize {
        let blocks = GROWTH_BYTES / self.layout.bytes_per_block();
        (1 << blocks.max(1).ilog2()).min(self.segment_blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::KvDtype;
    use rsgen_core::error::ErrorKind;

    fn layout() -> KvLayout {
        KvLayout::new(1, 1, 32, KvDtype::F32).unwrap() // 8192 bytes a block
    }

    #[test]
    fn bytes_are_rounded_down_to_whole_blocks() {
        let capacity = KvCapacity::from_bytes(layout(), 8192 * 100 + 8191).unwrap();
        assert_eq!((capacity.max_blocks(), capacity.max_tokens()), (100, 3200));
        assert_eq!(capacity.segment_blocks(), 4);
    }

    #[test]
    fn less_than_a_block_is_refused_with_the_bytes_that_would_do() {
        let error = KvCapacity::from_bytes(layout(), 8191).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Capacity);
        let message = error.to_string();
        assert!(message.contains("kv_cache_bytes") && message.contains("8192") && message.contains("8191"));
    }

    #[test]
    fn any_number_of_bytes_gives_a_capacity_that_ids_can_name() {
        let capacity = KvCapacity::from_bytes(layout(), usize::MAX).unwrap();
        assert_eq!(capacity.max_blocks(), u32::MAX as usize);
        assert_eq!(capacity.segment_blocks(), SEGMENT_BYTES / 8192);
        assert!(KvCapacity::from_blocks(layout(), usize::MAX).is_err());
        assert!(KvCapacity::from_blocks(layout(), 0).is_err());
    }

    #[test]
    fn a_pool_grows_by_huge_pages_or_blocks() {
        let grown_bytes = |head_dim| {
            let layout = KvLayout::new(32, 8, head_dim, KvDtype::F32).unwrap();
            KvCapacity::from_bytes(layout, 4 << 30).unwrap().growth_blocks() * layout.bytes_per_block()
        };
        assert_eq!([32, 96, 128].map(grown_bytes), [2 << 20, 6 << 20, 8 << 20]);
        let capacity = KvCapacity::from_bytes(layout(), 1 << 30).unwrap();
        assert_eq!((capacity.segment_blocks(), capacity.growth_blocks()), (8192, 256));
        assert_eq!(capacity.with_segment_blocks(4).growth_blocks(), 4);
    }

    #[test]
    fn segments_are_powers_of_two_within_the_maximum() {
        let capacity = KvCapacity::from_blocks(layout(), 10).unwrap();
        let sizes = [0, 1, 3, 8, 100].map(|blocks| capacity.with_segment_blocks(blocks).segment_blocks());
        assert_eq!(sizes, [1, 1, 2, 8, 8]);
    }
}
