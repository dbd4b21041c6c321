//! Groups rows into attention tiles.

use std::ops::Range;

use super::{AttentionShape, BLOCK, KvBlocks};

/// The most queries (rows times heads of a group) of a tile, unless a single row has more; fewer when there
/// are too few tiles for the threads.
const MOST_QUERIES: [usize; 3] = [24, 12, 6];
/// The most rows of a tile.
pub(super) const MOST_ROWS: usize = MOST_QUERIES[0];
/// The least number of tiles and heads per thread, and of groups and heads.
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

/// Divides the tiles into groups of adjacent ones whose rows share all blocks: those of a prompt, of which each thread
/// has enough for each of `num_kv_heads` heads.
pub(super) fn groups<T>(
    tiles: &[RowTile],
    num_kv_heads: usize,
    num_threads: usize,
    blocks: &dyn KvBlocks<T>,
    out: &mut Vec<Range<usize>>,
) {
    out.clear();
    let most = (tiles.len() * num_kv_heads / (MANY * num_threads)).clamp(1, MOST_TILES);
    let shares_all = |first: &RowTile, tile: &RowTile| {
        let common = first.common_blocks.min(tile.common_blocks);
        common.min(blocks.shared_blocks(first.rows.start, tile.rows.start)) == usize::MAX
    };
    for (index, tile) in tiles.iter().enumerate() {
        match out.last_mut() {
            Some(group) if group.len() < most && shares_all(&tiles[group.start], tile) => group.end += 1,
            _ => out.push(index..index + 1),
        }
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

    #[test]
    fn tiles_of_a_prompt_are_grouped_and_those_of_beams_are_not() {
        let shape = AttentionShape {
            num_heads: 4,
            num_kv_heads: 2,
            head_dim: 32,
            scale: 1.0,
            softcap: None,
            window: None,
        };
        let lens = |sequences: Vec<usize>, num_threads: usize| {
            let (rows, mut tiles, mut out) = (Rows(sequences, 2), Vec::new(), Vec::new());
            super::tiles(rows.0.len(), shape, num_threads, &rows, &mut tiles);
            groups(&tiles, 2, num_threads, &rows, &mut out);
            assert_eq!(out.iter().map(Range::len).sum::<usize>(), tiles.len());
            out.iter().map(Range::len).collect::<Vec<_>>()
        };
        // 12 rows of two heads are a tile, and two prompts do not share their groups.
        assert_eq!(lens([[0; 120], [1; 120]].concat(), 1), [4, 4, 2, 4, 4, 2]);
        // There must be enough for all threads.
        assert_eq!(lens(vec![0; 36], 1), [1; 3]);
        assert_eq!(lens(vec![0; 120], 16).iter().max(), Some(&1));
        assert_eq!(lens((0..200).collect(), 1).iter().max(), Some(&1), "beams");
    }
}
