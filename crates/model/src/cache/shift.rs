//! Dropping tokens from the middle of a sequence: those after them move to their places, with keys rotated
//! back.
//!
//! The keys of a token are stored rotated by its position. A token that moves `n` positions to the front is
//! rotated back by the angles of `n` positions, so that the cache is that of a shorter text, up to rounding.

use super::layout::{BLOCK_TOKENS, KvLayout, blocks_for};
use super::sequence::SequenceCache;
use super::slab::Slab;
use super::table::BlockTable;
use rsgen_core::error::Result;
use rsgen_core::types::BlockId;
use rsgen_kernels::{Isa, KvStep, RotaryPairs, rotate};

/// Tokens that move to the front, within the store. It must happen as [`BlockCopy`](super::BlockCopy) must,
/// in the order of both.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "without the shift the sequence has the keys and values of other tokens"]
pub struct BlockShift {
    /// The blocks of the sequence before and after.
    pub source: Vec<BlockId>,
    /// As many as `tokens` need. A block may stay at its place.
    pub target: Vec<BlockId>,
    /// How many of the first tokens stay as they are.
    pub first: usize,
    /// How many tokens after them are dropped.
    pub dropped: usize,
    /// The tokens that are left.
    pub tokens: usize,
}

/// How the keys of a layer are rotated back: the cosine and the sine of each pair of rotated dimensions, none
/// where nothing is rotated.
#[derive(Debug, Clone, PartialEq)]
pub struct KeyRotation {
    /// Which dimensions are pairs.
    pub pairs: RotaryPairs,
    /// The cosines.
    pub cos: Vec<f32>,
    /// The sines.
    pub sin: Vec<f32>,
}

impl SequenceCache {
    /// Drops `dropped` tokens after the `first` ones. O(blocks).
    ///
    /// # Errors
    /// `Capacity` when others share its blocks, and the pool cannot give as many; the sequence is unchanged
    /// then.
    ///
    /// # Panics
    /// When there are not so many tokens.
    pub fn drop_after(&mut self, first: usize, dropped: usize) -> Result<BlockShift> {
        let BlockTable { blocks, len } = &mut self.table;
        assert!(first + dropped <= *len, "{dropped} tokens after {first} of {len} cannot be dropped");
        let tokens = *len - dropped;
        let (begin, end) = (blocks_for(first + 1) - 1, blocks_for(tokens));
        let moved = begin.min(end)..end;
        let mut pool = self.pool.lock();
        let shared = blocks[moved.clone()].iter().filter(|&&block| pool.count(block) > 1).count();
        let mut new = Vec::new();
        pool.allocate(shared, self.reservation, &mut new)?;
        let (source, mut new) = (blocks.clone(), new.into_iter());
        for block in &mut blocks[moved] {
            if pool.count(*block) > 1 {
                let old = std::mem::replace(block, new.next().expect("one for each that is shared"));
                pool.release(old);
            } else {
                pool.unpublish_beyond(*block, 0);
            }
        }
        for block in blocks.drain(end..).rev() {
            pool.release(block);
        }
        *len = tokens;
        self.chain.truncate(0);
        Ok(BlockShift { source, target: blocks.clone(), first, dropped, tokens })
    }
}

impl<T: KvStep> Slab<T> {
    /// Performs a shift in all layers, with the rotation of each, token by token from the front: a token may overwrite one that has
    /// moved before.
    pub(super) fn shift(
        &mut self,
        isa: Isa,
        layout: KvLayout,
        shift: &BlockShift,
        rotations: &[KeyRotation],
    ) {
        let head_dim = layout.head_dim();
        let slot = |blocks: &[BlockId], token: usize| (blocks[token / BLOCK_TOKENS], token % BLOCK_TOKENS);
        let mut key = vec![0.0; layout.row_elements()];
        let mut value = key.clone();
        for (layer, KeyRotation { pairs, cos, sin }) in rotations.iter().enumerate() {
            for token in shift.first / BLOCK_TOKENS * BLOCK_TOKENS..shift.tokens {
                let moves = token >= shift.first;
                let (block, offset) = slot(&shift.source, token + if moves { shift.dropped } else { 0 });
                let target = slot(&shift.target, token);
                if target == (block, offset) {
                    continue;
                }
                let view = self.view(layer);
                let heads = key.chunks_exact_mut(head_dim).zip(value.chunks_exact_mut(head_dim));
                for (head, (key, value)) in heads.enumerate() {
                    let (keys, values) = (view.keys(block, head), view.values(block, head));
                    for (d, (key, value)) in key.iter_mut().zip(value).enumerate() {
                        (*key, *value) = (T::key(keys, offset, d), T::value(values, offset, d));
                    }
                }
                if moves {
                    rotate(isa, *pairs, &mut key, head_dim, cos, sin);
                }
                self.write(layer, target, &key, &value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::segment::tests::workers;
    use crate::cache::tests::pool_of;
    use crate::cache::{KvCapacity, KvDtype, KvStore, KvView, SharedPool, invariants};
    use rsgen_core::types::TokenId;
    use rsgen_kernels::{F32Step, scalar};

    const DIM: usize = 8;

    fn sequence(pool: &SharedPool, tokens: usize) -> SequenceCache {
        let mut sequence = SequenceCache::new(pool);
        sequence.append(tokens).unwrap();
        sequence
    }

    fn rotation(by: f32) -> KeyRotation {
        let (sin, cos) = (0..DIM / 2).map(|i| (by / (1 << i) as f32).sin_cos()).unzip();
        KeyRotation { pairs: RotaryPairs::Half, cos, sin }
    }

    /// What a token has before it is rotated.
    fn plain(token: usize) -> [f32; DIM] {
        std::array::from_fn(|d| ((token * 31 + d * 7) as f32).sin())
    }

    fn rotated(token: usize, position: usize) -> [f32; DIM] {
        let (mut key, KeyRotation { pairs, cos, sin }) = (plain(token), rotation(position as f32));
        scalar::rotate(pairs, &mut key, DIM, &cos, &sin);
        key
    }

    fn stored(store: &KvStore, sequence: &SequenceCache, position: usize) -> [[f32; DIM]; 2] {
        let KvView::F32(view) = store.blocks(1) else { panic!("the store holds f32") };
        let (block, offset) = sequence.table().slot(position);
        let (keys, values) = (view.keys(block, 0), view.values(block, 0));
        [
            std::array::from_fn(|d| F32Step::key(keys, offset, d)),
            std::array::from_fn(|d| F32Step::value(values, offset, d)),
        ]
    }

    /// A store with the tokens of a sequence at their positions, in layer 1.
    fn filled(pool: &SharedPool, sequence: &SequenceCache) -> KvStore {
        let layout = KvLayout::new(2, 1, DIM, KvDtype::F32).unwrap();
        let mut store = KvStore::new(KvCapacity::from_blocks(layout, 16).unwrap());
        store.ensure(pool.num_blocks(), &workers()).unwrap();
        for token in 0..sequence.len() {
            store.write(1, sequence.table().slot(token), &rotated(token, token), &plain(token));
        }
        store
    }

    #[track_caller]
    fn assert_near(found: [f32; DIM], expected: [f32; DIM]) {
        for (found, expected) in found.into_iter().zip(expected) {
            assert!((found - expected).abs() < 1e-5, "{found} instead of {expected}");
        }
    }

    #[test]
    fn what_is_left_has_the_keys_of_its_new_positions() {
        for (len, first, dropped) in
            [(96, 4, 32), (70, 0, 1), (70, 32, 20), (40, 39, 1), (65, 4, 33), (90, 33, 57)]
        {
            let pool = pool_of(16);
            let mut sequence = sequence(&pool, len);
            let mut store = filled(&pool, &sequence);
            let shift = sequence.drop_after(first, dropped).unwrap();
            store.shift(Isa::fastest(), &shift, &[rotation(0.0), rotation(-(dropped as f32))]);
            assert_eq!(sequence.len(), len - dropped);
            for position in 0..sequence.len() {
                let token = if position < first { position } else { position + dropped };
                let [key, value] = stored(&store, &sequence, position);
                assert_near(key, rotated(token, position));
                assert_eq!(value, plain(token), "values move as they are");
            }
            invariants::check(&pool, [sequence.table()]).unwrap();
        }
    }

    #[test]
    fn forks_that_share_blocks_move_their_tokens_alone() {
        let pool = pool_of(16);
        let mut first = sequence(&pool, 96);
        let (mut second, third) = (first.fork(), first.fork());
        let mut store = filled(&pool, &first);
        for sequence in [&mut first, &mut second] {
            let shift = sequence.drop_after(4, 32).unwrap();
            store.ensure(pool.num_blocks(), &workers()).unwrap();
            store.shift(Isa::fastest(), &shift, &[rotation(0.0), rotation(-32.0)]);
        }
        invariants::check(&pool, [first.table(), second.table(), third.table()]).unwrap();
        for position in 0..64 {
            let token = if position < 4 { position } else { position + 32 };
            for sequence in [&first, &second] {
                assert_near(stored(&store, sequence, position)[0], rotated(token, position));
            }
        }
        for position in 0..96 {
            assert_eq!(stored(&store, &third, position)[0], rotated(position, position));
        }
        assert_eq!(pool.stats().used_blocks, 2 + 2 + 3);
    }

    #[test]
    fn what_is_moved_is_published_no_more_and_a_refusal_changes_nothing() {
        let pool = pool_of(5);
        let mut sequence = sequence(&pool, 96);
        sequence.publish(&[TokenId(1); 96]);
        let other = sequence.fork();
        let before = sequence.table().blocks().to_vec();
        let hog = sequence.fork();
        let _blocks = self::sequence(&pool, 64);
        assert!(sequence.drop_after(4, 32).is_err(), "its blocks are shared, and none are free");
        assert_eq!((sequence.len(), sequence.table().blocks()), (96, &before[..]));
        drop((hog, other));
        drop(sequence.drop_after(4, 32).unwrap());
        let mut found = SequenceCache::new(&pool);
        assert_eq!(found.adopt(&[TokenId(1); 96]).tokens, 0);
        sequence.append(1).unwrap();
        sequence.publish(&[TokenId(2); 65]);
        assert_eq!(sequence.published_blocks(), 2);
    }
}
