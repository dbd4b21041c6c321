//! Preemption: the sequences of a request give all their blocks back, and later get as many again.
//!
//! No floats are kept. [`Preempted`] remembers which sequences shared which blocks; restoring them takes that
//! many blocks and tells which tokens the engine must compute again. Blocks that were published and have not
//! been reused since are taken as they are, so publish what is computed first.

use std::collections::HashMap;
use std::ops::Range;

use super::chain::Chain;
use super::layout::BLOCK_TOKENS;
use super::prefix::PublishedBlock;
use super::sequence::SequenceCache;
use super::shared::SharedPool;
use super::table::BlockTable;
use rsgen_core::error::Result;
use rsgen_core::types::BlockId;

/// The tables of preempted sequences. It holds no blocks; dropping it forgets them.
#[derive(Debug)]
pub struct Preempted {
    pool: SharedPool,
    tables: Vec<PreemptedTable>,
    blocks: Vec<PreemptedBlock>,
}

#[derive(Debug)]
struct PreemptedTable {
    len: usize,
    chain: Chain,
    /// Indices of [`Preempted::blocks`].
    blocks: Vec<usize>,
}

/// A block that one or more of the sequences held.
#[derive(Debug)]
struct PreemptedBlock {
    published: Option<PublishedBlock>,
    /// The tokens in this block of its longest holder.
    tokens: RecomputedTokens,
}

/// Tokens of a restored sequence whose keys and values must be computed again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecomputedTokens {
    /// The index of the sequence among those that were preempted.
    pub sequence: usize,
    /// The positions of the tokens in the sequence.
    pub positions: Range<usize>,
}

impl SharedPool {
    /// Takes all blocks from sequences of this pool; they are empty until [`Preempted::restore`]. Pass all
    /// sequences of a request at once, so that their sharing is known. A block that other requests hold, too,
    /// stays with those.
    ///
    /// # Panics
    /// When a sequence is of another pool.
    pub fn preempt<'a>(&self, sequences: impl IntoIterator<Item = &'a mut SequenceCache>) -> Preempted {
        let mut pool = self.lock();
        let (mut tables, mut blocks) = (Vec::new(), Vec::<PreemptedBlock>::new());
        let mut known: HashMap<BlockId, usize> = HashMap::new();
        for (sequence, cache) in sequences.into_iter().enumerate() {
            assert!(self.is_same(&cache.pool), "a sequence of another pool cannot be preempted");
            let BlockTable { blocks: held, len } = std::mem::take(&mut cache.table);
            let chain = cache.chain.clone();
            cache.chain.truncate(0);
            let mut indices = Vec::with_capacity(held.len());
            for (&block, start) in held.iter().zip((0..).step_by(BLOCK_TOKENS)) {
                let positions = start..len.min(start + BLOCK_TOKENS);
                let index = *known.entry(block).or_insert(blocks.len());
                if index == blocks.len() {
                    let tokens = RecomputedTokens { sequence, positions: positions.clone() };
                    blocks.push(PreemptedBlock { published: pool.prefixes.published(block), tokens });
                }
                let longest = &mut blocks[index].tokens;
                if positions.end > longest.positions.end {
                    *longest = RecomputedTokens { sequence, positions };
                }
                indices.push(index);
            }
            for &block in held.iter().rev() {
                pool.release(block);
            }
            tables.push(PreemptedTable { len, chain, blocks: indices });
        }
        for PreemptedBlock { published, tokens } in &mut blocks {
            // What is beyond the published tokens need not be computed yet.
            *published =
                published.filter(|&published| pool.prefixes.len_of(published) >= tokens.positions.len());
        }
        Preempted { pool: self.clone(), tables, blocks }
    }
}

impl Preempted {
    /// The blocks that restoring takes at most.
    pub fn num_blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Gives the sequences, in the order in which they were preempted, their lengths and as many blocks as
    /// they had, shared as before; all or nothing. Returns the tokens that must be computed again before
    /// anything reads or publishes them: those of each block once. Each comes after all tokens before it, of
    /// whichever sequence.
    ///
    /// # Errors
    /// `Capacity` when the pool has not enough blocks. The sequences stay empty then, and a later call can
    /// succeed.
    ///
    /// # Panics
    /// When the sequences are not as many as were preempted, or not empty.
    pub fn restore<'a>(
        &self,
        sequences: impl IntoIterator<Item = &'a mut SequenceCache>,
    ) -> Result<Vec<RecomputedTokens>> {
        let sequences: Vec<_> = sequences.into_iter().collect();
        let all_empty = sequences.iter().all(|sequence| sequence.is_empty());
        assert!(all_empty && sequences.len() == self.tables.len(), "the sequences are not those preempted");
        let reservation = sequences.first().and_then(|sequence| sequence.reservation);
        let mut pool = self.pool.lock();
        let adopted: Vec<Option<BlockId>> = self
            .blocks
            .iter()
            .map(|block| block.published.filter(|&published| pool.adopt(published, reservation)))
            .map(|published| published.map(|published| published.block))
            .collect();
        let mut new = Vec::new();
        let missing = adopted.iter().filter(|block| block.is_none()).count();
        if let Err(error) = pool.allocate(missing, reservation, &mut new) {
            adopted.iter().flatten().for_each(|&block| pool.release(block));
            return Err(error);
        }
        let mut new = new.into_iter();
        let blocks: Vec<BlockId> = adopted.iter().filter_map(|block| block.or_else(|| new.next())).collect();
        for (sequence, table) in sequences.into_iter().zip(&self.tables) {
            sequence.chain = table.chain.clone();
            sequence.table.len = table.len;
            sequence.table.blocks = table.blocks.iter().map(|&index| blocks[index]).collect();
            sequence.table.blocks.iter().for_each(|&block| pool.retain(block));
        }
        // Every block was held once from the start.
        for &block in &blocks {
            pool.release(block);
        }
        let lost = self.blocks.iter().zip(&adopted).filter(|(_, adopted)| adopted.is_none());
        Ok(in_order(lost.map(|(block, _)| block.tokens.clone()).collect()))
    }
}

/// Sorts tokens by position and joins those that follow each other in a sequence.
fn in_order(mut tokens: Vec<RecomputedTokens>) -> Vec<RecomputedTokens> {
    tokens.sort_by_key(|tokens| (tokens.positions.start, tokens.sequence));
    let mut joined: Vec<RecomputedTokens> = Vec::with_capacity(tokens.len());
    for next in tokens {
        match joined.last_mut() {
            Some(last) if last.sequence == next.sequence && last.positions.end == next.positions.start => {
                last.positions.end = next.positions.end;
            }
            _ => joined.push(next),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::invariants::check;
    use crate::cache::tests::pool_of;
    use rsgen_core::types::TokenId;

    fn sequence(pool: &SharedPool, tokens: usize) -> SequenceCache {
        let mut sequence = SequenceCache::new(pool);
        sequence.append(tokens).unwrap();
        sequence
    }

    /// Three beams: of 70 and 100 tokens, which share two blocks, and a cut fork of the second, of 98.
    fn beams(pool: &SharedPool) -> [SequenceCache; 3] {
        let mut first = sequence(pool, 64);
        let mut second = first.fork();
        first.append(6).unwrap();
        second.append(36).unwrap();
        let mut third = second.fork();
        third.truncate(98);
        [first, second, third]
    }

    fn spans(lost: &[RecomputedTokens]) -> Vec<(usize, Range<usize>)> {
        lost.iter().map(|lost| (lost.sequence, lost.positions.clone())).collect()
    }

    #[test]
    fn beams_get_as_many_blocks_as_they_had_and_share_them_as_before() {
        let pool = pool_of(8);
        let mut beams = beams(&pool);
        let preempted = pool.preempt(&mut beams);
        assert_eq!((preempted.num_blocks(), pool.stats().used_blocks), (5, 0));
        let lost = preempted.restore(&mut beams).unwrap();
        // Each block once: by the beam that fills it most, and after all that comes before.
        assert_eq!(spans(&lost), [(0, 0..70), (1, 64..100)]);
        assert_eq!(beams.each_ref().map(SequenceCache::len), [70, 100, 98]);
        let [first, second, third] = beams.each_ref().map(|beam| beam.table().blocks());
        assert_eq!((&first[..2], second), (&second[..2], third));
        assert_eq!(pool.stats().used_blocks, 5);
        check(&pool, beams.iter().map(SequenceCache::table)).unwrap();
        assert!(beams[2].append(1).unwrap().is_some(), "the last block is still shared");
    }

    #[test]
    fn shared_tokens_come_before_those_that_need_them() {
        let pool = pool_of(8);
        let [first, second, third] = beams(&pool);
        let mut beams = [third, first, second];
        let lost = pool.preempt(&mut beams).restore(&mut beams).unwrap();
        assert_eq!(spans(&lost), [(0, 0..96), (1, 64..70), (2, 96..100)]);
    }

    #[test]
    fn published_blocks_come_back_without_work_until_they_are_reused() {
        let pool = pool_of(5);
        let mut beams = beams(&pool);
        beams[1].publish(&(0..100).map(TokenId).collect::<Vec<_>>());
        let preempted = pool.preempt(&mut beams);
        let lost = preempted.restore(&mut beams).unwrap();
        assert_eq!(spans(&lost), [(0, 64..70)]);
        let preempted = pool.preempt(&mut beams);
        // Takes the unpublished block and the last two of the text.
        drop(sequence(&pool, 96));
        let lost = preempted.restore(&mut beams).unwrap();
        assert_eq!(spans(&lost), [(0, 64..70), (1, 64..100)]);
        check(&pool, beams.iter().map(SequenceCache::table)).unwrap();
    }

    #[test]
    fn a_refused_restore_changes_nothing_and_can_succeed_later() {
        let pool = pool_of(5);
        let mut beams = beams(&pool);
        beams[0].publish(&[TokenId(1); 64]);
        let preempted = pool.preempt(&mut beams);
        let other = sequence(&pool, 1);
        assert!(preempted.restore(&mut beams).unwrap_err().to_string().contains("KV cache does not suffice"));
        assert!(beams.iter().all(SequenceCache::is_empty));
        check(&pool, [other.table()]).unwrap();
        drop(other);
        preempted.restore(&mut beams).unwrap();
        assert_eq!(pool.stats().used_blocks, 5);
    }

    #[test]
    fn the_reservation_of_the_sequences_gets_its_blocks_back_and_gives_them_again() {
        let pool = pool_of(4);
        let reservation = pool.reserve(3).unwrap();
        let mut sequences = [SequenceCache::within(&reservation)];
        sequences[0].append(70).unwrap();
        let preempted = pool.preempt(&mut sequences);
        assert_eq!(reservation.remaining(), 3);
        let _others = sequence(&pool, 1);
        preempted.restore(&mut sequences).unwrap();
        assert_eq!(reservation.remaining(), 0);
    }

    #[test]
    fn a_sequence_whose_request_was_never_restored_is_empty_and_can_be_used() {
        let pool = pool_of(4);
        let mut sequences = [sequence(&pool, 40), sequence(&pool, 0)];
        let preempted = pool.preempt(&mut sequences);
        drop(preempted);
        assert!(sequences[0].fork().is_empty());
        sequences[0].append(1).unwrap();
        check(&pool, sequences.iter().map(SequenceCache::table)).unwrap();
    }
}
