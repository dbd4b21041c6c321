//! Which rows attention computes together.

use std::ops::Range;

use super::{BLOCK, KvBlocks};

/// The most queries (rows times heads of a group) of a tile, unless a single row has more.
const MOST_QUERIES: usize = 24;
/// The most rows of a tile.
pub(super) const MOST_ROWS: usize = MOST_QUERIES;

/// Neighbouring rows that share blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RowTile {
    pub(super) rows: Range<usize>,
    /// The first blocks of the context that all of them have in common.
    pub(super) common_blocks: usize,
}

/// Divides the rows into tiles: a row joins those before it if they share at least half of the longer context.
pub(super) fn tiles<T>(num_rows: usize, group: usize, blocks: &impl KvBlocks<T>, out: &mut Vec<RowTile>) {
    let most_rows = (MOST_QUERIES / group).max(1);
    out.clear();
    for row in 0..num_rows {
        if let Some(tile) = out.last_mut().filter(|tile| tile.rows.len() < most_rows) {
            let first = tile.rows.start;
            let common = tile.common_blocks.min(blocks.shared_blocks(first, row));
            let longer = blocks.context_len(first).max(blocks.context_len(row));
            if common >= longer.div_ceil(2 * BLOCK) {
                *tile = RowTile { rows: first..row + 1, common_blocks: common };
                continue;
            }
        }
        out.push(RowTile { rows: row..row + 1, common_blocks: usize::MAX });
    }
}
