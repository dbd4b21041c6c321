//! The published blocks of a kept text.
//!
//! Keeping a block does not hold it: without holders, kept blocks count as available and are evicted last, so
//! a kept text never blocks a request. A text whose blocks were evicted is computed again from its tokens.

use std::fmt;
use std::sync::Arc;

use super::chain::Chain;
use super::layout::BLOCK_TOKENS;
use super::prefix::PublishedBlock;
use super::shared::SharedPool;
use rsgen_core::types::TokenId;

/// Keeps the published blocks of a text until it is dropped.
#[must_use = "dropping it keeps the blocks no longer"]
pub struct KeptBlocks {
    pool: SharedPool,
    /// Each with the number of its tokens that are of the text, the first tokens first.
    blocks: Vec<(PublishedBlock, usize)>,
}

impl SharedPool {
    /// Keeps the blocks with the first of `tokens`, as far as they are published under `salt`. Publish what
    /// is computed first. In a forked process it keeps nothing. O(blocks).
    pub fn keep(&self, salt: Option<Arc<str>>, tokens: &[TokenId]) -> KeptBlocks {
        let mut blocks = Vec::new();
        if let Some(mut pool) = self.lock_at_home() {
            let mut chain = Chain::new(salt);
            while let Some(found) = chain.next(&pool.prefixes, tokens) {
                chain.extend(found);
                blocks.push((found, BLOCK_TOKENS));
            }
            blocks.extend(pool.prefixes.find_longest(&chain.before(), chain.next_tokens(tokens)));
            for &(block, _) in &blocks {
                pool.prefixes.keep(block);
            }
        }
        KeptBlocks { pool: self.clone(), blocks }
    }
}

impl KeptBlocks {
    /// How many of the first tokens are still there; 0 in a forked process.
    pub fn num_tokens(&self) -> usize {
        let Some(pool) = self.pool.lock_at_home() else { return 0 };
        let current = self.blocks.iter().take_while(|(block, len)| pool.prefixes.len_of(*block) >= *len);
        current.map(|(_, len)| len).sum()
    }
}

impl Drop for KeptBlocks {
    fn drop(&mut self) {
        if let Some(mut pool) = self.pool.lock_at_home() {
            self.blocks.iter().for_each(|&(block, _)| pool.prefixes.unkeep(block));
        }
    }
}

impl fmt::Debug for KeptBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptBlocks").field("blocks", &self.blocks.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::tests::pool_of;
    use crate::cache::{SequenceCache, invariants};

    /// `blocks` full blocks, each of one token, and `rest` more tokens.
    fn text(blocks: &[u32], rest: usize) -> Vec<TokenId> {
        let tokens = blocks.iter().flat_map(|&token| [TokenId(token); BLOCK_TOKENS]);
        tokens.chain(std::iter::repeat_n(TokenId(99), rest)).collect()
    }

    fn computed(pool: &SharedPool, tokens: &[TokenId]) -> SequenceCache {
        let mut sequence = SequenceCache::new(pool);
        sequence.append(tokens.len()).unwrap();
        sequence.publish(tokens);
        sequence
    }

    fn found(pool: &SharedPool, tokens: &[TokenId]) -> usize {
        SequenceCache::new(pool).adopt(tokens).tokens
    }

    #[test]
    fn kept_blocks_are_taken_after_all_others() {
        let pool = pool_of(6);
        drop(computed(&pool, &text(&[1, 2], 5)));
        let kept = pool.keep(None, &text(&[1, 2], 5));
        assert_eq!((kept.num_tokens(), pool.stats().kept_blocks), (69, 3));
        // Used later than the kept ones, and yet taken first.
        drop(computed(&pool, &text(&[7, 8, 9], 0)));
        let mut other = SequenceCache::new(&pool);
        other.append(3 * BLOCK_TOKENS).unwrap();
        assert_eq!((kept.num_tokens(), pool.stats().available_blocks), (69, 3));
        invariants::check(&pool, [other.table()]).unwrap();
        other.append(1).unwrap();
        assert!(kept.num_tokens() < 69, "none of the others is left");
        invariants::check(&pool, [other.table()]).unwrap();
        other.append(2 * BLOCK_TOKENS).unwrap();
        assert_eq!((kept.num_tokens(), pool.stats().kept_blocks), (0, 0), "nobody has to wait for them");
        drop(kept);
        invariants::check(&pool, [other.table()]).unwrap();
    }

    #[test]
    fn blocks_are_kept_until_the_last_keeper_is_gone() {
        let pool = pool_of(4);
        let tokens = text(&[1, 2], 3);
        let sequence = computed(&pool, &tokens);
        let (first, second) = (pool.keep(None, &tokens), pool.keep(None, &tokens[..40]));
        assert_eq!((first.num_tokens(), second.num_tokens()), (67, 40));
        invariants::check(&pool, [sequence.table()]).unwrap();
        drop(first);
        assert_eq!(pool.stats().kept_blocks, 2);
        drop(sequence);
        invariants::check(&pool, []).unwrap();
        drop(computed(&pool, &text(&[5, 6], 0)));
        drop(computed(&pool, &text(&[7, 8], 0)));
        assert_eq!(second.num_tokens(), 40);
        drop(second);
        assert_eq!(pool.stats().kept_blocks, 0);
        invariants::check(&pool, []).unwrap();
    }

    #[test]
    fn a_text_is_kept_as_far_as_it_is_published_under_its_salt() {
        let pool = pool_of(4);
        drop(computed(&pool, &text(&[1], 0)));
        assert_eq!(pool.keep(None, &text(&[1, 2], 0)).num_tokens(), 32);
        assert_eq!(pool.keep(None, &text(&[2, 1], 0)).num_tokens(), 0);
        assert_eq!(pool.keep(Some("tenant".into()), &text(&[1], 0)).num_tokens(), 0);
    }

    #[test]
    fn who_continues_a_kept_text_writes_into_a_copy() {
        let pool = pool_of(4);
        let tokens = text(&[1], 5);
        let mut sequence = computed(&pool, &tokens);
        let kept = pool.keep(None, &tokens);
        // Its own block, without other holders: the tokens that are kept stay at their places.
        assert_eq!(sequence.append(1).unwrap(), None);
        assert_eq!(kept.num_tokens(), 37);
        drop(sequence);
        let mut other = SequenceCache::new(&pool);
        let adopted = other.adopt(&text(&[1], 9));
        assert_eq!((adopted.tokens, adopted.copy.unwrap().tokens), (37, 5));
        other.append(4).unwrap();
        other.publish(&text(&[1], 9));
        assert_eq!((kept.num_tokens(), found(&pool, &tokens)), (37, 37));
        invariants::check(&pool, [other.table()]).unwrap();
    }

    #[test]
    fn a_lower_limit_drops_kept_blocks_too() {
        let pool = pool_of(4);
        drop(computed(&pool, &text(&[1, 2, 3, 4], 0)));
        let kept = pool.keep(None, &text(&[1, 2, 3, 4], 0));
        assert_eq!((pool.set_limit(2), kept.num_tokens()), (2, 64));
        assert_eq!((pool.set_limit(0), kept.num_tokens(), pool.stats().kept_blocks), (0, 0, 0));
        invariants::check(&pool, []).unwrap();
    }
}
