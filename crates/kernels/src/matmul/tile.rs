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
    /// Whether it goes to the second cache: a whole panel is too large for the first one.
    is_far: bool,
}

impl Ahead {
    /// That of tile `index` of `count`. A single tile is bound by memory, and fetches its own panel. Several are bound
    /// by arithmetic: together they fetch the next panel, so that none waits for memory. What is decoded next is
    /// fetched by all of them.
    #[inline(always)]
    fn of_tile<T>(index: usize, count: usize, chunk: &Chunk<'_, T>) -> Self {
        let base = chunk.steps.as_ptr().cast();
        let (step, bytes) = (size_of::<T>() << 16, size_of_val(chunk.steps) << 16);
        match chunk.later {
            Later::Following(following) => {
                let (place, pace) = if count == 1 {
                    (PREFETCH << 16, step)
                } else {
                    (bytes + index * (bytes / count), step / count)
                };
                Self { base, place, pace, end: bytes + (following << 16), is_far: false }
            }
            Later::Decoded(Region { start, bytes }) => {
                let part = (bytes << 16) / count;
                let pace = part / chunk.steps.len().max(1);
                Self { base: start, place: index * part, pace, end: bytes << 16, is_far: false }
            }
        }
    }

    /// That of a half of a single tile: as two tiles do, the halves together fetch the next panel, so that memory is
    /// idle in neither.
    #[inline(always)]
    fn of_half<T>(half: usize, chunk: &Chunk<'_, T>) -> Self {
        Self { is_far: true, ..Self::of_tile(half, 2, chunk) }
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
                            let ahead = Ahead::of_tile(index, num_tiles, &chunk);
                            if const { $m <= tile_rows::<S, F::Row>().0 } {
                                sums = tile::<S, F, $m, 2>(s, steps, values, 0, ahead, sums);
                            } else if const { $m <= tile_rows::<S, F::Row>().1 } {
                                // One loop for both: unrolled, the sums of the first half take the registers
                                // of the second one.
                                for half in 0..black_box(2) {
                                    let ahead = if num_tiles == 1 { Ahead::of_half(half, &chunk) } else { ahead };
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
    let Ahead { mut place, pace, end: end_of_weights, is_far, base } = ahead;
    let lines_of_stretch = ((pace * stretch) >> 16).div_ceil(LINE);
    let (rows, _) = values.as_chunks::<M>();
    let count = steps.len().min(rows.len());
    // Index loops: calls of iterators are not always inlined.
    if F::FETCHES && M == 1 {
        for i in 0..count {
            let place_of_step = i * size_of::<F::Step>();
            // What is there already, if no weights are left.
            let (place_from_step, stride) =
                if place < end_of_weights { ((place >> 16) - place_of_step, LINE) } else { (0, 0) };
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
            let bytes = (place >> 16) + line * LINE;
            if V == 1 && is_far {
                s.prefetch_far(base, bytes);
            } else {
                s.prefetch(base, bytes);
            }
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
