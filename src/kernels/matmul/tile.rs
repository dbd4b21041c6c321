//! The inner loop: a tile of up to 12 rows times one panel, with all its sums in registers.

use super::format::{PANEL_ROWS, PanelFormat};
use super::pack::PackedRows;
use crate::kernels::simd::{LANES, Simd};

/// How far ahead of the multiplication the weights are fetched, in bytes. The hardware's own prefetcher stops at
/// page boundaries.
const PREFETCH: usize = 4096;

/// Takes the sums of a tile. A trait rather than a closure, because only a function can be marked to be inlined.
pub(super) trait Sink {
    /// Takes 16 outputs of a row: those of the given half of the panel.
    fn put<S: Simd>(&self, s: S, row: usize, half: usize, sums: S::F);
}

/// Multiplies every row with one panel.
#[inline(always)]
pub(super) fn panel_times_rows<S: Simd, F: PanelFormat>(
    s: S,
    rows: &PackedRows,
    steps: &[F::Step],
    sink: &impl Sink,
) {
    for (first, num_rows, values) in rows.tiles() {
        macro_rules! rows {
            ($($m:literal)*) => {
                match num_rows {
                    $($m => {
                        if $m <= S::WIDE_TILE_ROWS {
                            let sums = tile::<S, F, $m, 2>(s, steps, values, 0);
                            for r in 0..$m {
                                sink.put(s, first + r, 0, sums[r][0]);
                                sink.put(s, first + r, 1, sums[r][1]);
                            }
                        } else if $m <= S::HALF_TILE_ROWS {
                            for half in 0..PANEL_ROWS / LANES {
                                let sums = tile::<S, F, $m, 1>(s, steps, values, half);
                                for r in 0..$m {
                                    sink.put(s, first + r, half, sums[r][0]);
                                }
                            }
                        }
                    })*
                    _ => unreachable!("a tile has at most 12 rows"),
                }
            };
        }
        rows!(1 2 3 4 5 6 7 8 9 10 11 12);
    }
}

/// `M` rows times `V` vectors of outputs, from vector `first` of the panel on: each sum is one chain, inputs
/// ascending.
#[inline(always)]
fn tile<S: Simd, F: PanelFormat, const M: usize, const V: usize>(
    s: S,
    steps: &[F::Step],
    values: &[f32],
    first: usize,
) -> [[S::F; V]; M] {
    let mut sums = [[s.splat(0.0); V]; M];
    let (inputs, _) = values.as_chunks::<M>();
    let (pairs, _) = inputs.as_chunks::<2>();
    for (step, pair) in steps.iter().zip(pairs) {
        s.prefetch(step, PREFETCH);
        s.prefetch(step, PREFETCH + 64);
        for i in 0..2 {
            let mut weights = [s.splat(0.0); V];
            for v in 0..V {
                weights[v] = F::widen(s, step, first + v, i);
            }
            for r in 0..M {
                let x = s.splat(pair[i][r]);
                for v in 0..V {
                    sums[r][v] = s.fma(weights[v], x, sums[r][v]);
                }
            }
        }
    }
    sums
}
