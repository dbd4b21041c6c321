//! The invariants between a pool and the block tables of its sequences.
//!
//! Tests check them between passes. All counts are recomputed from the tables.

use super::layout::blocks_for;
use super::pool::BlockPool;
use super::shared::SharedPool;
use super::table::BlockTable;
use rsgen_core::types::BlockId;

/// Checks `pool` against the tables of *all* its sequences. O(blocks + table entries).
///
/// - A table holds exactly the blocks that its length needs, each once.
/// - A block's count is the number of tables that hold it.
/// - The free list, the idle blocks and the blocks in use partition the range the pool has grown to, which is
///   within the maximum.
/// - Each published block is found by its tokens and those before it, and is idle exactly when no table holds
///   it.
/// - Reserved blocks never exceed what is free or not yet grown, and add up over the reservations.
///
/// # Errors
/// The first rule that is broken, in words.
pub fn check<'a>(pool: &SharedPool, tables: impl IntoIterator<Item = &'a BlockTable>) -> Result<(), String> {
    let pool = pool.lock();
    let holders = count_holders(pool.blocks.len(), tables)?;
    check_counts(&pool, &holders)?;
    pool.prefixes.check(holders.len(), |block| holders[block.index()] > 0)?;
    check_reservations(&pool)
}

/// How many tables hold each block.
fn count_holders<'a>(
    num_blocks: usize,
    tables: impl IntoIterator<Item = &'a BlockTable>,
) -> Result<Vec<u32>, String> {
    let mut holders = vec![0_u32; num_blocks];
    // The last table that was seen to hold the block, numbered from 1.
    let mut seen_in = vec![0; num_blocks];
    for (table, number) in tables.into_iter().zip(1..) {
        let (held, needed) = (table.blocks().len(), blocks_for(table.len()));
        require(held == needed, || {
            format!("a table of {} tokens needs {needed} blocks and holds {held}", table.len())
        })?;
        for &block in table.blocks() {
            require(block.index() < num_blocks, || {
                format!("a table holds block {block}, but the pool has grown to {num_blocks} blocks")
            })?;
            require(seen_in[block.index()] != number, || format!("a table holds block {block} twice"))?;
            seen_in[block.index()] = number;
            holders[block.index()] += 1;
        }
    }
    Ok(holders)
}

fn check_counts(pool: &BlockPool, holders: &[u32]) -> Result<(), String> {
    let max_blocks = pool.limit;
    require(holders.len() <= max_blocks, || {
        format!("the pool has grown to {} of {max_blocks} blocks", holders.len())
    })?;
    let mut is_free = vec![false; holders.len()];
    for &block in &pool.free {
        require(block.index() < holders.len(), || format!("block {block} is free but does not exist"))?;
        require(!is_free[block.index()], || format!("block {block} is in the free list twice"))?;
        is_free[block.index()] = true;
    }
    for (index, (state, &held)) in pool.blocks.iter().zip(holders).enumerate() {
        let block = BlockId(index as u32);
        let count = state.count;
        require(count == held, || format!("block {block} has the count {count}, but {held} tables hold it"))?;
        let is_idle = pool.prefixes.published(block).is_some() && count == 0;
        require(is_free[index] == (count == 0 && !is_idle), || {
            format!("block {block} has the count {count}, and is it in the free list: {}", is_free[index])
        })?;
        require(count > 0 || state.owner.is_none(), || format!("block {block} is free but still charged"))?;
    }
    Ok(())
}

fn check_reservations(pool: &BlockPool) -> Result<(), String> {
    for (id, account) in &pool.accounts {
        let charged = pool.blocks.iter().filter(|state| state.owner == Some(*id)).count();
        require(account.used == charged && charged <= account.size, || {
            format!("{id:?} counts {} of {} blocks as used, but {charged} are", account.used, account.size)
        })?;
    }
    let remaining: usize = pool.accounts.values().map(|account| account.size - account.used).sum();
    require(pool.reserved == remaining, || {
        format!("{} blocks are reserved, but the reservations add up to {remaining}", pool.reserved)
    })?;
    let spare = pool.limit - pool.used();
    require(remaining <= spare, || format!("{remaining} blocks are reserved, but only {spare} are left"))
}

fn require(holds: bool, message: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(message()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::SequenceCache;
    use crate::cache::tests::pool_of;

    /// What `check` says after `damage` was done to a pool with one sequence of two blocks and one
    /// reservation.
    fn verdict(damage: impl FnOnce(&mut BlockPool)) -> String {
        let pool = SharedPool::new(pool_of(6).capacity().with_segment_blocks(4));
        let reservation = pool.reserve(3).unwrap();
        let mut sequence = SequenceCache::within(&reservation);
        sequence.append(40).unwrap();
        check(&pool, [sequence.table()]).unwrap();
        damage(&mut pool.lock());
        let verdict = check(&pool, [sequence.table()]).unwrap_err();
        // The damaged pool could not take its blocks back.
        std::mem::forget((sequence, reservation));
        verdict
    }

    #[test]
    fn every_kind_of_damage_is_found() {
        let found: [(&str, String); 7] = [
            ("has the count 2, but 1 tables hold it", verdict(|pool| pool.blocks[0].count = 2)),
            ("in the free list: true", verdict(|pool| pool.free.push(BlockId(1)))),
            ("in the free list: false", verdict(|pool| pool.free.truncate(1))),
            ("in the free list twice", verdict(|pool| pool.free.push(pool.free[0]))),
            (
                "block 3 is free but still charged",
                verdict(|pool| pool.blocks[3].owner = pool.blocks[0].owner),
            ),
            ("counts 2 of 3 blocks as used, but 1 are", verdict(|pool| pool.blocks[0].owner = None)),
            ("2 blocks are reserved, but the reservations add up to 1", verdict(|pool| pool.reserved = 2)),
        ];
        for (expected, verdict) in found {
            assert!(verdict.contains(expected), "expected {expected:?}, got {verdict:?}");
        }
    }

    #[test]
    fn reservations_beyond_what_is_left_are_found() {
        let verdict = verdict(|pool| {
            pool.accounts.values_mut().for_each(|account| account.size = 9);
            pool.reserved = 7;
        });
        assert_eq!(verdict, "7 blocks are reserved, but only 4 are left");
    }

    #[test]
    fn tables_that_do_not_fit_their_length_are_found() {
        let pool = pool_of(2);
        let table =
            |blocks: &[u32], len| BlockTable { blocks: blocks.iter().copied().map(BlockId).collect(), len };
        let mut sequence = SequenceCache::new(&pool);
        sequence.append(64).unwrap();
        for (wrong, expected) in [
            (table(&[0], 33), "needs 2 blocks and holds 1"),
            (table(&[0, 1], 32), "needs 1 blocks and holds 2"),
            (table(&[0, 0], 64), "twice"),
            (table(&[0, 2], 64), "has grown to 2"),
        ] {
            let verdict = check(&pool, [&wrong]).unwrap_err();
            assert!(verdict.contains(expected), "expected {expected:?}, got {verdict:?}");
        }
        assert!(check(&pool, []).unwrap_err().contains("0 tables hold it"), "a table was left out");
    }
}
