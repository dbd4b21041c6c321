//! How rows are divided into tiles, and tiles into groups.

use std::marker::PhantomData;
use std::ops::Range;

use super::rows::RowStep;
use crate::simd::{Simd, SimdOp};
use crate::threads::Workers;

/// From twice as many tiles on, each thread runs some of the rows through the whole matrix, so that a row
/// stays on its core from one matrix to the next. Weights are read once per group, which takes less time than
/// the arithmetic then.
const TILES_OF_A_GROUP: usize = 8;

/// The numbers of tiles and of groups.
#[derive(Clone, Copy, Default)]
pub(super) struct Tiling {
    pub(super) num_tiles: usize,
    /// The groups of tiles, each of which one thread runs through a matrix.
    pub(super) num_groups: usize,
}

impl Tiling {
    /// Few tiles, and the same number in each group where rows can be divided so.
    pub(super) fn of<P: RowStep>(workers: &Workers, num_rows: usize) -> Self {
        let least = P::run(workers.isa(), NumTiles::<P> { num_rows, step: PhantomData });
        let num_groups = (least / TILES_OF_A_GROUP).clamp(1, workers.num_threads());
        Self { num_tiles: least.next_multiple_of(num_groups).min(num_rows), num_groups }
    }

    /// The tiles of a group.
    pub(super) fn tiles_of_group(self, group: usize) -> Range<usize> {
        part(group, self.num_groups, self.num_tiles)
    }

    /// The rows of a tile; all tiles are about equally large.
    pub(super) fn rows_of_tile(self, tile: usize, num_rows: usize) -> Range<usize> {
        part(tile, self.num_tiles, num_rows)
    }
}

/// Part `index` of `count` about equal ones.
pub(super) fn part(index: usize, count: usize, len: usize) -> Range<usize> {
    index * len / count..(index + 1) * len / count
}

/// The least number of tiles for so many rows.
struct NumTiles<P> {
    num_rows: usize,
    step: PhantomData<P>,
}

impl<P: RowStep> SimdOp for NumTiles<P> {
    type Output = usize;

    #[inline(always)]
    fn eval<S: Simd>(self, _: S) -> usize {
        self.num_rows.div_ceil(P::most_rows::<S>(self.num_rows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;

    #[test]
    fn groups_have_the_same_number_of_tiles_and_all_rows_belong_to_one() {
        for isa in Isa::available() {
            for num_threads in 1..5 {
                let workers = Workers::new(num_threads, isa).unwrap();
                for num_rows in [0, 1, 12, 13, 200, 276, 300, 512] {
                    let tiling = Tiling::of::<[f32; 2]>(&workers, num_rows);
                    let groups = (0..tiling.num_groups).map(|group| tiling.tiles_of_group(group));
                    let tiles: Vec<usize> = groups.clone().flatten().collect();
                    assert!(tiles.iter().copied().eq(0..tiling.num_tiles));
                    let rows = tiles.iter().flat_map(|&tile| tiling.rows_of_tile(tile, num_rows));
                    assert!(rows.eq(0..num_rows));
                    assert!(tiles.iter().all(|&tile| !tiling.rows_of_tile(tile, num_rows).is_empty()));
                    let sizes: Vec<usize> = groups.map(|tiles| tiles.len()).collect();
                    let is_equal = sizes.iter().all(|size| *size == sizes[0]);
                    assert!(is_equal || tiling.num_tiles == num_rows, "{num_rows} rows: {sizes:?}");
                }
            }
        }
    }
}
