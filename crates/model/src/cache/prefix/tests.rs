//! Tests of publishing, finding and adopting blocks.

use super::*;
use crate::cache::invariants;
use crate::cache::tests::pool_of;
use crate::cache::{Adopted, BlockCopy, KvCapacity, KvDtype, KvLayout, SequenceCache, SharedPool};

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
    SequenceCache::new(pool).adopt(tokens).tokens
}

#[test]
fn a_text_with_the_same_beginning_shares_its_full_blocks() {
    let pool = pool_of(8);
    let first = computed(&pool, &text(&[1, 2], 6));
    let mut second = SequenceCache::new(&pool);
    assert_eq!(second.adopt(&text(&[1, 2, 3], 0)), Adopted { tokens: 64, copy: None });
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
    assert_eq!(salted("b").adopt(&text(&[1, 2], 0)).tokens, 0);
    assert_eq!(found(&pool, &text(&[1, 2], 0)), 0);
    assert_eq!(salted("a").adopt(&text(&[1, 2], 0)).tokens, 64);
    let mut emptied = first.fork();
    emptied.truncate(0);
    assert_eq!(emptied.adopt(&text(&[1], 0)).tokens, 32, "it keeps its salt");
}

#[test]
fn the_beginning_of_a_block_is_copied() {
    let pool = pool_of(16);
    let first = computed(&pool, &text(&[1, 2], 6));
    let others = [text(&[1, 3], 0), text(&[1], 9)].map(|text| computed(&pool, &text));
    let second_block = first.table().blocks()[1];
    let mut cut = SequenceCache::new(&pool);
    let Adopted { tokens, copy } = cut.adopt(&[&text(&[1, 2], 0)[..50], &text(&[4], 0)].concat());
    let target = cut.table().blocks()[1];
    assert_eq!((tokens, copy), (50, Some(BlockCopy { source: second_block, target, tokens: 18 })));
    assert_eq!(cut.append(20).unwrap(), None, "the copy is its own");
    let tail = SequenceCache::new(&pool).adopt(&text(&[1, 2], 20));
    assert_eq!((tail.tokens, tail.copy.map(|copy| copy.tokens)), (70, Some(6)));
    invariants::check(
        &pool,
        [first.table(), cut.table()].into_iter().chain(others.iter().map(SequenceCache::table)),
    )
    .unwrap();
}

#[test]
fn the_end_of_a_text_is_published_again_as_it_grows() {
    let pool = pool_of(4);
    let mut sequence = computed(&pool, &text(&[], 6));
    sequence.append(20).unwrap();
    assert_eq!(found(&pool, &text(&[], 31)), 6, "the rest may not be computed yet");
    sequence.publish(&text(&[], 26));
    assert_eq!(found(&pool, &text(&[], 31)), 26);
    sequence.truncate(10);
    sequence.append(1).unwrap();
    assert_eq!(found(&pool, &text(&[], 31)), 0, "it is written again");
    sequence.publish(&text(&[], 11));
    assert_eq!(found(&pool, &text(&[], 31)), 11);
    drop(sequence);
    assert_eq!(found(&pool, &text(&[], 31)), 11);
}

#[test]
fn the_only_free_block_is_not_copied_onto_itself() {
    let pool = pool_of(1);
    drop(computed(&pool, &text(&[], 6)));
    let mut sequence = SequenceCache::new(&pool);
    assert_eq!(sequence.adopt(&text(&[], 8)), Adopted { tokens: 0, copy: None });
    sequence.append(8).unwrap();
    invariants::check(&pool, [sequence.table()]).unwrap();
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
fn texts_that_are_not_continued_leave_32_megabytes_behind() {
    let layout = KvLayout::new(1, 1, 1 << 12, KvDtype::F32).unwrap(); // a megabyte a block
    let capacity = KvCapacity::from_blocks(layout, 4096).unwrap();
    let grown = |capacity| {
        let pool = SharedPool::new(capacity);
        (0..1000).for_each(|number| drop(computed(&pool, &text(&[number], 0))));
        (pool.num_blocks(), found(&pool, &text(&[999], 0)))
    };
    assert_eq!(grown(capacity.with_texts_continued(false)), (32, 32));
    assert_eq!(grown(capacity), (512, 32), "an eighth of all");
}

#[test]
fn a_block_whose_predecessor_is_gone_is_not_found() {
    let pool = pool_of(3);
    let first = computed(&pool, &text(&[1], 0));
    let mut second = computed(&pool, &text(&[1, 2], 0));
    drop(first);
    let mut other = computed(&pool, &text(&[7], 0));
    assert_eq!(found(&pool, &text(&[1, 2], 0)), 0, "the first block was that of the dropped sequence");

    // A holder of the text publishes it anew.
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
    assert_eq!(third.adopt(&text(&[1, 2], 0)).tokens, 64);
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
    assert_eq!(other.adopt(&text(&[1, 2], 0)).tokens, 64);
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
    assert_eq!(late.adopt(&tokens).tokens, 0, "nothing is published");
    let early = computed(&pool, &tokens[..96]);
    assert_eq!(late.adopt(&tokens).tokens, 64);
    assert_eq!(late.table().blocks()[1..], early.table().blocks()[1..]);
    late.append(1).unwrap();
    assert_eq!(late.adopt(&tokens).tokens, 0, "it ends within a block");
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
    assert_eq!((shared.adopt(&text(&[1], 0)).tokens, reservation.remaining()), (32, 1));
    let mut idle = SequenceCache::within(&reservation);
    let _others = pool.reserve(2).unwrap();
    assert_eq!(idle.adopt(&text(&[2, 3], 0)).tokens, 32, "the second block belongs to the other reservation");
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
