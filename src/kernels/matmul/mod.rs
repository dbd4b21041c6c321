//! Matrix multiplication of activation rows with packed weights: `out[r, n] = sum over k of x[r, k] * w[n, k]`.
//!
//! ```text
//! panel p = outputs 32p .. 32p+31        step q = inputs 2q and 2q+1 of all 32 outputs
//!
//!          q=0      q=1      q=2   ...
//!        ┌────────┬────────┬────────┬──      a vector holds 16 *outputs*, so a product needs no horizontal sum,
//! 0..15  │ k0 k1  │ k2 k3  │ k4 k5  │        and the same bytes serve one row and five hundred
//! 16..31 │ k0 k1  │ k2 k3  │ k4 k5  │
//!        └────────┴────────┴────────┴──
//! ```
//!
//! Each output is one accumulator that takes its products with `k` ascending and is never split, so a row's result
//! does not depend on how many rows are computed with it. Each weight is read from memory once per call: a panel
//! stays in the cache while all tiles of rows pass over it.

mod format;
mod matrix;
mod rows;
mod step;
mod tile;

pub use format::{Bf16Panels, Bf16Products, F16Panels, F32Panels, PANEL_ROWS, PanelFormat};
pub use matrix::PanelMatrix;
pub use rows::{InputPair, PackedRows};
pub use step::{Bf16Step, F32Step, KvStep};

pub(super) use rows::Buffers;

use super::parallel::Disjoint;
use super::silu::silu_times;
use super::simd::{LANES, Simd, SimdOp};
use super::threads::Workers;
use tile::{Sink, panel_times_rows};

/// What happens to the products besides being stored.
#[derive(Clone, Copy, Default)]
pub struct MatrixOutput<'a> {
    /// Added to every row, `[num_outputs]`.
    pub bias: Option<&'a [f32]>,
    /// Whether the products are added to what `out` holds, instead of replacing it.
    pub accumulate: bool,
    /// Whether the outputs of the matrix are, by turns, 16 gates and 16 ups. Then `out` is `silu(gate) * up`, half as wide,
    /// and as much narrower as the last 16 are padded.
    pub gated: bool,
}

/// The least bytes of weights in a chunk, and the least when there is already a chunk for each thread: a thread that
/// reads less than 1 MB in one go reads slower.
const SMALL_CHUNK: usize = 32 << 10;
const LARGE_CHUNK: usize = 1 << 20;
/// With more rows than this it is arithmetic that takes the time, and shorter chunks let all threads end together.
const FEW_ROWS: usize = 16;

/// Multiplies rows, packed as [`PanelFormat::Pair`] of the format, with packed weights.
///
/// `out` is `[rows.num_rows(), matrix.num_outputs()]`, row-major, unless the output is gated.
///
/// # Panics
/// When the shapes do not fit.
pub fn matmul<F: PanelFormat>(
    workers: &Workers,
    rows: &PackedRows,
    matrix: &PanelMatrix<F>,
    output: MatrixOutput<'_>,
    out: &mut [f32],
) {
    let num_outputs = matrix.num_outputs();
    assert_eq!(rows.num_inputs(), matrix.num_inputs(), "rows and weights have the same inner dimension");
    let width = out.len() / rows.num_rows().max(1);
    assert_eq!(out.len(), rows.num_rows() * width, "the output has a row for each input row");
    let whole = if output.gated { 2 * width.next_multiple_of(LANES) } else { width };
    assert!(rows.num_rows() == 0 || whole == num_outputs, "a row of the output has all outputs");
    assert!(output.bias.is_none_or(|bias| bias.len() == num_outputs), "one bias for each output");
    let num_panels = matrix.num_panels();
    let num_chunks = chunks(matrix.bytes(), rows.num_rows(), num_panels, workers.num_threads());
    let columns = Columns { out: Disjoint::new(out), width, output };
    workers.run(num_chunks, &|chunk| {
        let panels = chunk * num_panels / num_chunks..(chunk + 1) * num_panels / num_chunks;
        for panel in panels {
            F::run(
                workers.isa(),
                PanelJob::<F> { rows, steps: matrix.panel(panel), columns: &columns, panel },
            );
        }
    });
}

/// How many contiguous ranges of panels a matrix is cut into: as many for each thread, where there are enough.
fn chunks(bytes: usize, num_rows: usize, num_panels: usize, num_threads: usize) -> usize {
    let large_chunk = if num_rows > FEW_ROWS { LARGE_CHUNK / 4 } else { LARGE_CHUNK };
    let for_each_thread = (bytes / SMALL_CHUNK).clamp(1, num_threads);
    (bytes / large_chunk).next_multiple_of(num_threads).max(for_each_thread).min(num_panels).max(1)
}

/// The output matrix, written panel by panel: each panel owns 32 of its columns, or 16 if it is gated.
struct Columns<'a> {
    out: Disjoint<'a, f32>,
    width: usize,
    output: MatrixOutput<'a>,
}

impl Columns<'_> {
    /// Finishes 16 outputs of one row, those of a half of a panel, and stores them. A row's halves come in order.
    ///
    /// # Safety
    /// No other thread writes these columns at the same time.
    #[inline(always)]
    unsafe fn store<S: Simd>(&self, s: S, row: usize, panel: usize, half: usize, value: S::F) {
        let MatrixOutput { bias, accumulate, gated } = self.output;
        let output = panel * PANEL_ROWS + half * LANES;
        let column = if gated { panel * LANES } else { output };
        if column >= self.width {
            return;
        }
        let width = LANES.min(self.width - column);
        let start = row * self.width + column;
        // SAFETY: the columns are this thread's own (the caller's duty).
        let out = unsafe { self.out.part(start..start + width) };
        let mut value = value;
        if let Some(bias) = bias {
            value = s.add(value, load_padded(s, &bias[output..bias.len().min(output + LANES)]));
        }
        if accumulate {
            value = s.add(load_padded(s, out), value);
        }
        if gated && half == 1 {
            value = silu_times(s, load_padded(s, out), value);
        }
        if let Ok(out) = <&mut [f32; LANES]>::try_from(&mut *out) {
            s.store(value, out);
        } else {
            let mut padded = [0.0; LANES];
            s.store(value, &mut padded);
            out.copy_from_slice(&padded[..width]);
        }
    }
}

#[inline(always)]
fn load_padded<S: Simd>(s: S, values: &[f32]) -> S::F {
    if let Ok(values) = values.try_into() {
        s.load(values)
    } else {
        let mut padded = [0.0; LANES];
        padded[..values.len()].copy_from_slice(values);
        s.load(&padded)
    }
}

/// All rows times one panel.
struct PanelJob<'a, F: PanelFormat> {
    rows: &'a PackedRows,
    steps: &'a [F::Step],
    columns: &'a Columns<'a>,
    panel: usize,
}

impl<F: PanelFormat> SimdOp for PanelJob<'_, F> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        panel_times_rows::<S, F>(s, self.rows, self.steps, &self);
    }
}

impl<F: PanelFormat> Sink for PanelJob<'_, F> {
    #[inline(always)]
    fn put<S: Simd>(&self, s: S, row: usize, half: usize, sums: S::F) {
        // SAFETY: each panel is run by one thread, and panels own disjoint columns.
        unsafe { self.columns.store(s, row, self.panel, half, sums) };
    }
}

#[cfg(test)]
mod tests;
