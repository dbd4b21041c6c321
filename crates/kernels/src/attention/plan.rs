//! Groups rows into attention tiles.

use std::ops::Range;

use super::{AttentionShape, BLOCK, KvBlocks};

/// The most queries (rows times heads of a group) of a tile, unless a single row has more; fewer when there
/// are too few tiles for the threads.
const MOST_QUERIES: [usize; 3] = [24, 12, 6];
/// The most rows of a tile.
pub(super) const MOST_ROWS: usize = MOST_QUERIES[0];
/// The least number of tiles and heads per thread.
const MANY: usize = 8;

/// Adjacent rows that share blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RowTile {
    pub(super) rows: Range<usize>,
    /// The leading blocks that all rows share.
    pub(super) common_blocks: usize,
}

/// Divides the rows into tiles, each of which is computed for each of `num_kv_heads` heads by one of
/// `num_threads`.
pub(super) fn tiles<T>(
    num_rows: usize,
    shape: AttentionShape,
    num_threads: usize,
    blocks: &dyn KvBlocks<T>,
    out: &mut Vec<RowTile>,
) {
    let group = shape.num_heads / shape.num_kv_heads;
    for most_queries in MOST_QUERIES {
        divide(num_rows, (most_queries / group).max(1), blocks, out);
        let items = out.len() * shape.num_kv_heads;
        if items.is_multiple_of(num_threads) || items >= MANY * num_threads {
            return;
        }
    }
}

/// Divides the rows into tiles: a row joins the previous ones if they share at least half of the longer
/// context.
fn divide<T>(num_rows: usize, most_rows: usize, blocks: &dyn KvBlocks<T>, out: &mut Vec<RowTile>) {
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
