//! The inner loop: a tile of up to 12 rows times one panel, with all its sums in registers.

use std::hint::black_box;
use std::ops::Range;

use super::Outputs;
use super::format::PanelProducts;
use super::rows::{PackedRows, RowStep, RowTile};
use crate::simd::Simd;

/// How far ahead of the multiplication the weights are fetched, in bytes. The hardware's own prefetcher stops
/// at page boundaries.
const PREFETCH: usize = 8192;
/// The bytes that a prefetch brings.
const LINE: usize = 64;

/// The part of the next panel that a tile prefetches. The tiles of a panel are bound by arithmetic: together
/// they prefetch the next panel, so that none waits for memory.
#[derive(Clone, Copy)]
struct Ahead {
    /// Bytes from the start of the panel, times 2^16.
    place: usize,
    /// The same, for each step.
    pace: usize,
    /// The steps from one prefetch to the next: a power of two.
    every: usize,
    /// Whether it goes to the second cache: a whole panel is too large for the first one.
    is_far: bool,
}

impl Ahead {
    /// That of tile `index` of `count`, where a panel takes `bytes`. A single tile fetches nothing of the
    /// next panel: it is bound by memory itself.
    #[inline(always)]
    fn of_tile(index: usize, count: usize, bytes: usize, steps: usize) -> Option<Self> {
        let part = (bytes << 16) / count;
        let pace = part / steps.max(1);
        // With many tiles, steps that follow each other would ask for the same line.
        let every = if pace >> 16 < LINE / 2 { 4 } else { 1 };
        (count > 1).then_some(Self { place: (bytes << 16) + index * part, pace, every, is_far: false })
    }

    /// All of the next panel: the first half of a single tile has brought this one, and memory would be idle
    /// during the second.
    #[inline(always)]
    fn of_second_half(bytes: usize, steps: usize) -> Self {
        Self { place: bytes << 16, pace: (bytes << 16) / steps.max(1), every: 1, is_far: true }
    }
}

/// The steps of a panel: all of them, or one part after the other.
pub(super) trait PanelChunks<T> {
    /// The number of parts.
    fn count(&self) -> usize;

    /// A part of the panel, and the index of its first step. Each is asked for once for each tile.
    fn chunk(&mut self, index: usize) -> (usize, &[T]);
}

impl<T> PanelChunks<T> for &[T] {
    #[inline(always)]
    fn count(&self) -> usize {
        1
    }

    #[inline(always)]
    fn chunk(&mut self, _: usize) -> (usize, &[T]) {
        (0, self)
    }
}

/// Multiplies the rows of some tiles with one panel, the one of that index.
#[inline(always)]
pub(super) fn panel_times_rows<S: Simd, F: PanelProducts, C: PanelChunks<F::Step>>(
    s: S,
    rows: &PackedRows,
    tiles: Range<usize>,
    mut chunks: C,
    panel: usize,
    outputs: &Outputs<'_, F::Row>,
) {
    let num_tiles = tiles.len();
    let (wide, half) = F::Row::tile_rows::<S>();
    for (index, RowTile { first, num_rows, values }) in rows.tiles::<F::Row>(tiles).enumerate() {
        macro_rules! rows {
            ($($m:literal)*) => {
                match num_rows {
                    $($m => {
                        let mut sums = [[s.splat(0.0); 2]; $m];
                        for chunk in 0..chunks.count() {
                            let (start, steps) = chunks.chunk(chunk);
                            let values = &values[start * $m..];
                            let ahead = Ahead::of_tile(index, num_tiles, size_of_val(steps), steps.len());
                            if $m <= wide {
                                sums = tile::<S, F, $m, 2>(s, steps, values, 0, ahead, sums);
                            } else if $m <= half {
                                // One loop for both: unrolled, the sums of the first half take the registers
                                // of the second one.
                                for half in 0..black_box(2) {
                                    let second = Ahead::of_second_half(size_of_val(steps), steps.len());
                                    let ahead = if half == 0 { ahead } else { ahead.or(Some(second)) };
                                    let mut of_half = [[s.splat(0.0)]; $m];
                                    for r in 0..$m {
                                        of_half[r][0] = sums[r][half];
                                    }
                                    of_half = tile::<S, F, $m, 1>(s, steps, values, half, ahead, of_half);
                                    for r in 0..$m {
                                        sums[r][half] = of_half[r][0];
                                    }
                                }
                            }
                        }
                        if $m <= wide.max(half) {
                            outputs.put(s, panel, first, &sums);
                        }
                    })*
                    _ => unreachable!("a tile has at most 12 rows"),
                }
            };
        }
        rows!(1 2 3 4 5 6 7 8 9 10 11 12);
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
    ahead: Option<Ahead>,
    mut sums: [[S::F; V]; M],
) -> [[S::F; V]; M] {
    let (rows, _) = values.as_chunks::<M>();
    if let Some(Ahead { mut place, pace, every, is_far }) = ahead {
        let lines = ((pace * every) >> 16).div_ceil(LINE);
        for (index, (step, rows)) in steps.iter().zip(rows).enumerate() {
            if index & (every - 1) == 0 {
                for line in 0..lines {
                    let bytes = (place >> 16) + line * LINE;
                    if V == 1 && is_far {
                        s.prefetch_far(&steps[0], bytes);
                    } else {
                        s.prefetch(&steps[0], bytes);
                    }
                }
                place += pace * every;
            }
            F::multiply_add(s, step, first, rows, &mut sums);
        }
    } else {
        for (step, rows) in steps.iter().zip(rows) {
            for line in 0..size_of::<F::Step>() / LINE {
                s.prefetch(step, PREFETCH + line * LINE);
            }
            F::multiply_add(s, step, first, rows, &mut sums);
        }
    }
    sums
}
