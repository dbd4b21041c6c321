//! The inner loop: a tile of up to 12 rows times one panel, with all its sums in registers.

use std::hint::black_box;
use std::ops::Range;

use super::format::{Fetch, PANEL_ROWS, PanelProducts};
use super::rows::{MOST_TILE_ROWS, PackedRows, RowTile, tile_rows};
use super::{Outputs, store_pair};
use crate::simd::Simd;

/// How far ahead of the multiplication the weights are fetched, in bytes. The hardware's own prefetcher stops
/// at page boundaries.
pub(crate) const PREFETCH: usize = 8192;
/// The rows from which on a single tile takes a panel in parts: fewer take the whole width of it on AVX2.
const LEAST_HALVED: usize = 3;
/// The bytes that a prefetch brings.
pub(crate) const LINE: usize = 64;
/// The steps of so many bytes that a tile of `num_rows` rows multiplies between prefetches. Of three and of four rows
/// the compiler for AVX2 keeps sums in memory when a loop that fetches follows each step: they take twice as long.
/// Tiles of more rows are a tenth slower with several steps.
const fn stretch(step_bytes: usize, num_rows: usize) -> usize {
    let bytes = if num_rows == 3 || num_rows == 4 { 512 } else { 128 };
    if step_bytes < bytes { bytes / step_bytes } else { 1 }
}

/// What a tile prefetches while it multiplies: places in bytes from `base`, times 2^16.
#[derive(Clone, Copy)]
struct Ahead {
    base: *const u8,
    place: usize,
    /// How much further it is for each step.
    pace: usize,
    /// Where there are no more weights. A prefetch of memory that is not mapped takes as long as a hundred
    /// multiplications.
    end: usize,
}

impl Ahead {
    /// That of tile `index` of `count`; each half of a tile counts as one. A single tile is bound by memory, and fetches its
    /// own panel. Several are bound by arithmetic: together they fetch the next panel, so that none waits for memory. What
    /// is decoded next is fetched by all of them.
    #[inline(always)]
    fn of_tile<T>(index: usize, count: usize, chunk: &Chunk<'_, T>) -> Self {
        let base = chunk.steps.as_ptr().cast();
        let (step, bytes) = (size_of::<T>() << 16, size_of_val(chunk.steps) << 16);
        match chunk.later {
            Later::Following(following) => {
                let pace = step / count;
                let place =
                    if count == 1 { PREFETCH << 16 } else { bytes + index * pace * chunk.steps.len() };
                Self { base, place, pace, end: bytes + (following << 16) }
            }
            Later::Decoded(Region { start, bytes }) => {
                let part = (bytes << 16) / count;
                let pace = part / chunk.steps.len().max(1);
                Self { base: start, place: index * part, pace, end: bytes << 16 }
            }
        }
    }
}

/// Some steps of a panel.
#[derive(Clone, Copy)]
pub(super) struct Chunk<'a, T> {
    /// The index of the first one.
    pub(super) start: usize,
    pub(super) steps: &'a [T],
    pub(super) later: Later,
}

/// The weights that are read after a chunk.
#[derive(Clone, Copy)]
pub(super) enum Later {
    /// So many bytes follow the chunk in memory.
    Following(usize),
    /// What is decoded next.
    Decoded(Region),
}

/// A part of memory, to be fetched.
#[derive(Clone, Copy)]
pub(crate) struct Region {
    pub(crate) start: *const u8,
    pub(crate) bytes: usize,
}

/// The steps of a panel: all of them, or one part after the other.
pub(super) trait PanelChunks<T> {
    /// The number of parts.
    fn count(&self) -> usize;

    /// A part of the panel. Each is asked for once for each tile.
    fn chunk(&mut self, index: usize) -> Chunk<'_, T>;
}

impl<T> PanelChunks<T> for Chunk<'_, T> {
    fn count(&self) -> usize {
        1
    }

    fn chunk(&mut self, _: usize) -> Chunk<'_, T> {
        Chunk { ..*self }
    }
}

/// A chunk in parts, of about as many bytes as a tile fetches ahead.
pub(super) struct Parts<'a, T> {
    whole: Chunk<'a, T>,
    /// The most steps of a part.
    num_steps: usize,
}

impl<'a, T> Parts<'a, T> {
    /// The tiles of half a panel take it part by part if there is one of them alone: then both halves find the next part
    /// in the first cache. Several tiles find the whole panel in the second one.
    pub(super) fn of(whole: Chunk<'a, T>, num_tiles: usize, num_rows: usize) -> Self {
        let is_split = num_tiles == 1 && num_rows >= LEAST_HALVED;
        let num_parts = if is_split { size_of_val(whole.steps).div_ceil(PREFETCH).max(1) } else { 1 };
        Self { num_steps: whole.steps.len().div_ceil(num_parts).max(1), whole }
    }
}

impl<T> PanelChunks<T> for Parts<'_, T> {
    fn count(&self) -> usize {
        self.whole.steps.len().div_ceil(self.num_steps)
    }

    fn chunk(&mut self, index: usize) -> Chunk<'_, T> {
        let Chunk { start, steps, later } = self.whole;
        let first = index * self.num_steps;
        let end = steps.len().min(first + self.num_steps);
        let later = match later {
            Later::Following(bytes) => Later::Following(bytes + size_of_val(&steps[end..])),
            Later::Decoded(_) => later,
        };
        Chunk { start: start + first, steps: &steps[first..end], later }
    }
}

/// Multiplies the rows of some tiles with one panel, the one of that index. The conditions on the number of rows are
/// constants, so that no code is made for tiles that an instruction set does not have.
#[inline(always)]
pub(super) fn panel_times_rows<S: Simd, F: PanelProducts>(
    s: S,
    rows: &PackedRows,
    tiles: Range<usize>,
    chunks: &mut dyn PanelChunks<F::Step>,
    panel: usize,
    outputs: &Outputs<'_, F::Row>,
) {
    let num_tiles = tiles.len();
    let mut products = [[0.0; PANEL_ROWS]; MOST_TILE_ROWS];
    for (index, RowTile { first, num_rows, values }) in rows.tiles::<F::Row>(tiles).enumerate() {
        macro_rules! rows {
            ($($m:literal)*) => {
                match num_rows {
                    $($m => {
                        let mut sums = [[s.splat(0.0); 2]; $m];
                        for chunk in 0..chunks.count() {
                            let chunk = chunks.chunk(chunk);
                            let (steps, values) = (chunk.steps, &values[chunk.start * $m..]);
                            if const { $m <= tile_rows::<S, F::Row>().0 } {
                                let ahead = Ahead::of_tile(index, num_tiles, &chunk);
                                sums = tile::<S, F, $m, 2>(s, steps, values, 0, ahead, sums);
                            } else if const { $m <= tile_rows::<S, F::Row>().1 } {
                                // One loop for both: unrolled, the sums of the first half take the registers
                                // of the second one.
                                for half in 0..black_box(2) {
                                    // Each has a share of what is fetched, so that memory is idle in neither.
                                    let ahead = Ahead::of_tile(2 * index + half, 2 * num_tiles, &chunk);
                                    let mut of_half = [[s.splat(0.0)]; $m];
                                    for r in 0..$m {
                                        of_half[r][0] = sums[r][half];
                                    }
                                    of_half = tile::<S, F, $m, 1>(s, steps, values, half, ahead, of_half);
                                    for r in 0..$m {
                                        sums[r][half] = of_half[r][0];
                                    }
                                }
                            } else {
                                unreachable!("no tile of this instruction set has so many rows");
                            }
                        }
                        for r in 0..$m {
                            store_pair(s, sums[r], &mut products[r]);
                        }
                    })*
                    _ => unreachable!("a tile has at most 12 rows"),
                }
            };
        }
        rows!(1 2 3 4 5 6 7 8 9 10 11 12);
        outputs.put(s, panel, first, &products[..num_rows]);
    }
}

/// `M` rows times `V` vectors of outputs, from vector `first` of the panel on, added to `sums`: each is one
/// chain, steps ascending.
#[inline(always)]
fn tile<S: Simd, F: PanelProducts, const M: usize, const V: usize>(
    s: S,
    steps: &[F::Step],
    values: &[F::Row],
    first: usize,
    ahead: Ahead,
    mut sums: [[S::F; V]; M],
) -> [[S::F; V]; M] {
    let stretch = const { stretch(size_of::<F::Step>(), M) };
    let Ahead { mut place, pace, end: end_of_weights, base } = ahead;
    let lines_of_stretch = ((pace * stretch) >> 16).div_ceil(LINE);
    let (rows, _) = values.as_chunks::<M>();
    let count = steps.len().min(rows.len());
    // Index loops: calls of iterators are not always inlined.
    if F::FETCHES && M == 1 {
        let distance = base.addr().wrapping_sub(steps.as_ptr().addr());
        for i in 0..count {
            let place_of_step = i * size_of::<F::Step>();
            // What is there already, if no weights are left. What is fetched may be elsewhere in memory than the steps.
            let (place_from_step, stride) = if place < end_of_weights {
                ((place >> 16).wrapping_add(distance).wrapping_sub(place_of_step), LINE)
            } else {
                (0, 0)
            };
            let fetch = Some(Fetch { place: place_from_step, stride });
            F::multiply_and_fetch(s, &steps[i], first, &rows[i], &mut sums, fetch);
            place += pace;
        }
        return sums;
    }
    let mut start = 0;
    while start < count {
        let lines = if place < end_of_weights { lines_of_stretch } else { 0 };
        for line in 0..lines {
            s.prefetch(base, (place >> 16) + line * LINE);
        }
        place += pace * stretch;
        let end = count.min(start + stretch);
        for i in start..end {
            F::multiply_add(s, &steps[i], first, &rows[i], &mut sums);
        }
        start = end;
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parts that rows of a tile take: the first step of each, its steps, and the bytes that follow.
    fn parts(num_steps: usize, num_tiles: usize, num_rows: usize) -> Vec<(usize, usize, usize)> {
        let steps = vec![[0u8; 1000]; num_steps];
        let whole = Chunk { start: 0, steps: &steps[..], later: Later::Following(500) };
        let mut parts = Parts::of(whole, num_tiles, num_rows);
        let part = |index| match parts.chunk(index) {
            Chunk { start, steps, later: Later::Following(bytes) } => (start, steps.len(), bytes),
            Chunk { later: Later::Decoded(_), .. } => panic!("the steps are stored"),
        };
        (0..Parts::of(whole, num_tiles, num_rows).count()).map(part).collect()
    }

    #[test]
    fn a_single_tile_of_several_rows_takes_a_panel_in_parts() {
        assert_eq!(parts(20, 1, 4), [(0, 7, 13_500), (7, 7, 6_500), (14, 6, 500)]);
        assert_eq!(parts(8, 1, 3), [(0, 8, 500)]);
        assert_eq!(parts(20, 1, 2), [(0, 20, 500)]);
        assert_eq!(parts(20, 2, 12), [(0, 20, 500)]);
        assert_eq!(parts(0, 1, 4), []);
    }
}
