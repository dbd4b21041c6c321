//! Groups rows into attention tiles.

use std::ops::Range;

use super::{AttentionShape, BLOCK, KvBlocks};

/// The most queries (rows times heads of a group) of a tile, unless a single row has more; fewer when there
/// are too few tiles for the threads.
const MOST_QUERIES: [usize; 3] = [24, 12, 6];
/// The most rows of a tile.
pub(super) const MOST_ROWS: usize = MOST_QUERIES[0];
/// The least number of tiles and heads per thread, and of groups and heads, unless they are the same for each.
const MANY: usize = 8;
/// The most tiles of a group: more would take the cache from the keys and values of a span.
const MOST_TILES: usize = 4;

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

/// Adjacent tiles that share blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TileGroup {
    pub(super) tiles: Range<usize>,
    /// The leading blocks that all of their rows share.
    pub(super) common_blocks: usize,
}

/// Divides the tiles into groups, each of which is computed for each of `num_kv_heads` heads by one of `num_threads`; of
/// one tile each when there are too few for the threads.
pub(super) fn groups<T>(
    tiles: &[RowTile],
    num_kv_heads: usize,
    num_threads: usize,
    blocks: &dyn KvBlocks<T>,
    out: &mut Vec<TileGroup>,
) {
    for most_tiles in (1..=MOST_TILES).rev() {
        group(tiles, most_tiles, blocks, out);
        let items = out.len() * num_kv_heads;
        let is_even = items.is_multiple_of(num_threads) && items >= 2 * num_threads;
        // Where no tiles share blocks, smaller groups are the same.
        if is_even || items >= MANY * num_threads || out.len() == tiles.len() {
            return;
        }
    }
}

/// Divides the tiles into groups: a tile joins the previous ones if they share at least half of the longer context.
fn group<T>(tiles: &[RowTile], most_tiles: usize, blocks: &dyn KvBlocks<T>, out: &mut Vec<TileGroup>) {
    out.clear();
    for (index, tile) in tiles.iter().enumerate() {
        if let Some(group) = out.last_mut().filter(|group| group.tiles.len() < most_tiles) {
            let first = tiles[group.tiles.start].rows.start;
            let shared = tile.common_blocks.min(blocks.shared_blocks(first, tile.rows.start));
            let common = group.common_blocks.min(shared);
            let longer = blocks.context_len(first).max(blocks.context_len(tile.rows.end - 1));
            if common >= longer.div_ceil(2 * BLOCK) {
                *group = TileGroup { tiles: group.tiles.start..index + 1, common_blocks: common };
                continue;
            }
        }
        out.push(TileGroup { tiles: index..index + 1, common_blocks: tile.common_blocks });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::F32Step;

    /// Rows of sequences that share so many blocks.
    struct Rows(Vec<usize>, usize);

    impl KvBlocks<F32Step> for Rows {
        fn context_len(&self, row: usize) -> usize {
            assert!(row < self.0.len());
            64
        }

        fn keys(&self, _row: usize, _block: usize, _kv_head: usize) -> &[F32Step] {
            &[]
        }

        fn values(&self, _row: usize, _block: usize, _kv_head: usize) -> &[F32Step] {
            &[]
        }

        fn shared_blocks(&self, row: usize, other: usize) -> usize {
            if self.0[row] == self.0[other] { usize::MAX } else { self.1 }
        }
    }

    /// The tiles of the groups, and the blocks that are common to each.
    fn grouped(sequences: &[usize], shared: usize, num_threads: usize) -> Vec<(usize, usize)> {
        let shape = AttentionShape {
            num_heads: 4,
            num_kv_heads: 2,
            head_dim: 32,
            scale: 1.0,
            softcap: None,
            window: None,
        };
        let (rows, mut tiles, mut out) = (Rows(sequences.to_vec(), shared), Vec::new(), Vec::new());
        super::tiles(rows.0.len(), shape, num_threads, &rows, &mut tiles);
        groups(&tiles, 2, num_threads, &rows, &mut out);
        assert_eq!(out.iter().map(|group| group.tiles.len()).sum::<usize>(), tiles.len());
        out.iter().map(|group| (group.tiles.len(), group.common_blocks)).collect()
    }

    #[test]
    fn tiles_are_grouped_that_share_half_of_their_blocks() {
        const ALL: usize = usize::MAX;
        // 12 rows of two heads are a tile. Two prompts that share nothing are not in one group.
        let prompts = [[0; 120], [1; 120]].concat();
        let of_prompt = [(4, ALL), (4, ALL), (2, ALL)];
        assert_eq!(grouped(&prompts, 0, 1), of_prompt.repeat(2));
        // 36 rows of different sequences, with and without a beginning.
        let sequences: Vec<usize> = (0..36).collect();
        assert_eq!(grouped(&sequences, 1, 1), [(3, 1)]);
        assert_eq!(grouped(&sequences, 0, 1), [(1, ALL); 36]);
    }

    #[test]
    fn there_are_groups_for_all_threads() {
        let each = |rows: usize, num_threads| grouped(&vec![0; rows], 0, num_threads).len();
        assert_eq!((each(96, 1), each(96, 2), each(96, 3), each(96, 4), each(96, 8)), (2, 2, 6, 4, 8));
    }
}
