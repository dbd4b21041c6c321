//! Matrix multiplication of activation rows with packed weights:
//! `out[r, n] = sum over k of x[r, k] * w[n, k]`.
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
//! Each output is one accumulator that adds its products with `k` ascending and is never split, so a row's
//! result does not depend on the number of rows. Each weight is read from memory once per call: a panel stays
//! in the cache while all tiles of rows use it. For prompts it is read once for each group of rows that a
//! thread runs through all panels (`docs/decisions/0006`).

mod decoded;
mod format;
mod gate;
mod groups;
mod integers;
mod matrix;
mod prologue;
mod rounding;
mod rows;
mod step;
mod tile;
mod tiling;

pub(crate) use decoded::{DecodedFormat, DecodedPanels, TemporaryPanel};
pub use format::{
    Bf16Panels, Bf16Products, EmulatedBf16Products, F16Panels, F32Panels, FileFormat, I8Panels, PANEL_ROWS,
    PanelFormat, PanelProducts,
};
pub(crate) use format::{PanelLayout, WeightStep, Widen, WidenedProducts, WidenedStep};
pub use gate::gate_products;
pub use groups::{I4Groups, I8Groups};
pub(crate) use integers::{
    IntegerProducts, IntegerStep, IntegerWeights, RowIntegers, STEP_INPUTS, STEP_WORDS, words_of_short_sums,
};
pub use matrix::PanelMatrix;
pub use prologue::Prologue;
pub use rows::{InputPair, Inputs, PackedRows, RowStep};
pub use step::{Bf16Step, F32Step, I8Step, KvStep};

pub(super) use rows::{Buffers, FloatPair};

use std::ops::Range;

use super::activation::GatedActivation;
use super::parallel::Disjoint;
use super::simd::{LANES, Simd, SimdOp};
use super::threads::Workers;
use rows::MOST_TILE_ROWS;
pub(crate) use tile::{LINE, PREFETCH, Region};
use tile::{PanelChunks, Parts, panel_times_rows};
use tiling::part;

/// The bias of the products, and whether they are accumulated.
#[derive(Clone, Copy, Default)]
pub struct MatrixOutput<'a> {
    /// Added to every row, `[num_outputs]`.
    pub bias: Option<&'a [f32]>,
    /// Whether the products are added to what `out` holds, instead of replacing it.
    pub accumulate: bool,
    /// Where the products go in rows that are wider; `None` if they are the rows.
    pub columns: Option<OutputColumns>,
}

impl MatrixOutput<'_> {
    /// The columns that `width` products take, once it is clear that everything fits.
    fn columns_of(&self, width: usize, num_rows: usize, out_len: usize) -> OutputColumns {
        let columns = self.columns.unwrap_or(OutputColumns { first: 0, row_width: width });
        assert!(columns.first + width <= columns.row_width, "the outputs are columns of a row");
        assert_eq!(out_len, num_rows * columns.row_width, "a row of the output has all outputs");
        assert!(self.bias.is_none_or(|bias| bias.len() == width), "one bias for each output");
        columns
    }
}

/// Some columns of a wider output.
#[derive(Debug, Clone, Copy)]
pub struct OutputColumns {
    /// The first one.
    pub first: usize,
    /// The columns of the whole.
    pub row_width: usize,
}

/// What becomes of the products with gates and ups.
#[derive(Clone, Copy)]
pub struct Gated<'a> {
    /// The activation of the gates.
    pub activation: GatedActivation,
    /// Added before, in the order of the matrix's outputs.
    pub bias: Option<&'a [f32]>,
    /// The gates, and as many ups.
    pub width: usize,
}

/// The least bytes of weights in a chunk, and the least once each thread has a chunk: contiguous reads of
/// less than 1 MB are slower.
const SMALL_CHUNK: usize = 32 << 10;
const LARGE_CHUNK: usize = 1 << 20;
/// With more rows than this, arithmetic dominates.
const FEW_ROWS: usize = 16;

/// Multiplies rows, packed as [`PanelProducts::Row`] of the format, with packed weights.
///
/// `out` is `[rows.num_rows(), matrix.num_outputs()]`, row-major, unless the products are columns of wider
/// rows.
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
    let width = matrix.num_outputs();
    let OutputColumns { first, row_width } = output.columns_of(width, rows.num_rows(), out.len());
    let columns = Columns { out: Disjoint::new(out), width, first, row_width, output };
    multiply(workers, rows, matrix, &Outputs::Columns(columns));
}

/// Multiplies rows with weights whose outputs interleave 16 gates and 16 ups, padded with zeros at the end.
/// `out` becomes `act(gate) * up`, `[rows.num_rows(), width]`, packed by `pack` for the next matrix; as the rows are,
/// if it is `None`. `bias` is added before.
///
/// # Panics
/// When the shapes do not fit.
pub fn gated_matmul<F: PanelFormat>(
    workers: &Workers,
    rows: &PackedRows,
    matrix: &PanelMatrix<F>,
    gated: Gated<'_>,
    pack: Option<&PackRows<'_>>,
    out: &mut PackedRows,
) {
    check_gated(matrix.num_outputs(), gated.width, gated.bias);
    gated_rows(workers, rows, gated, pack, out, |outputs| multiply(workers, rows, matrix, outputs));
}

/// Packs the results of a product for the next one.
pub(crate) type PackRows<'a> = dyn Fn(&Workers, Inputs<'_>, &mut PackedRows) + 'a;

/// Has `multiply` write gates times ups to `out`.
fn gated_rows<P: RowStep>(
    workers: &Workers,
    rows: &PackedRows,
    Gated { activation, bias, width }: Gated<'_>,
    pack: Option<&PackRows<'_>>,
    out: &mut PackedRows,
    multiply: impl FnOnce(&Outputs<'_, P>),
) {
    if P::SPANS_PANELS || pack.is_some() {
        let mut products = std::mem::take(&mut out.unpacked);
        products.resize(rows.num_rows() * width, 0.0);
        let columns = GatedColumns { out: Disjoint::new(&mut products), width, activation, bias };
        multiply(&Outputs::GatedColumns(columns));
        match pack {
            Some(pack) => pack(workers, products[..].into(), out),
            None => out.pack::<P>(workers, products[..].into(), width),
        }
        out.unpacked = products;
        return;
    }
    let out = Disjoint::new(out.sized::<P>(rows.tiling(), rows.num_rows(), width));
    multiply(&Outputs::GatedRows(GatedRows { out, steps: width.div_ceil(2), activation, bias }));
}

/// Panics when a matrix is not one of so many gates and ups.
fn check_gated(num_outputs: usize, width: usize, bias: Option<&[f32]>) {
    assert_eq!(num_outputs, 2 * width.next_multiple_of(LANES), "a gate and an up for each output");
    assert!(bias.is_none_or(|bias| bias.len() == num_outputs), "one bias for each gate and up");
}

/// Multiplies all rows with all panels, on all threads.
fn multiply<F: PanelFormat>(
    workers: &Workers,
    rows: &PackedRows,
    matrix: &PanelMatrix<F>,
    outputs: &Outputs<'_, F::Row>,
) {
    assert_eq!(rows.num_inputs(), matrix.num_inputs(), "rows and weights have the same inner dimension");
    for_each_panel(workers, rows, matrix.bytes(), matrix.num_panels(), &|panel, tiles| {
        let chunks = &mut Parts::of(matrix.chunk(panel), tiles.len(), rows.num_rows());
        F::run(workers.isa(), PanelJob { rows, tiles, chunks, panel, outputs });
    });
}

/// Calls `run` with each panel and the tiles of each group of rows, on all threads.
fn for_each_panel(
    workers: &Workers,
    rows: &PackedRows,
    bytes: usize,
    num_panels: usize,
    run: &(dyn Fn(usize, Range<usize>) + Sync),
) {
    let tiling = rows.tiling();
    let num_groups = tiling.num_groups;
    // Where arithmetic dominates, shorter chunks balance the threads, unless each has rows of its own.
    let is_shared = num_groups == 1 && rows.num_rows() > FEW_ROWS;
    let large_chunk = if is_shared { LARGE_CHUNK / 4 } else { LARGE_CHUNK };
    let num_chunks = chunks(bytes, large_chunk, num_panels, workers.num_threads());
    workers.run(num_groups * num_chunks, &|chunk| {
        let (group, chunk) = (chunk / num_chunks, chunk % num_chunks);
        for panel in part(chunk, num_chunks, num_panels) {
            run(panel, tiling.tiles_of_group(group));
        }
    });
}

/// The number of contiguous ranges of panels: a multiple of the threads if there are enough panels.
fn chunks(bytes: usize, large_chunk: usize, num_panels: usize, num_threads: usize) -> usize {
    let for_each_thread = (bytes / SMALL_CHUNK).clamp(1, num_threads);
    (bytes / large_chunk).next_multiple_of(num_threads).max(for_each_thread).min(num_panels).max(1)
}

/// Where the sums of the tiles go. One type for all, so that the loops of the tiles are compiled once for
/// each format.
enum Outputs<'a, P> {
    Columns(Columns<'a>),
    GatedColumns(GatedColumns<'a>),
    GatedRows(GatedRows<'a, P>),
}

impl<P: RowStep> Outputs<'_, P> {
    /// Receives a panel's products with the rows of a tile, from row `first` on.
    #[inline(always)]
    fn put<S: Simd>(&self, s: S, panel: usize, first: usize, sums: &[[f32; PANEL_ROWS]]) {
        match self {
            Self::Columns(columns) => columns.put(s, panel, first, sums),
            Self::GatedColumns(columns) => columns.put(s, panel, first, sums),
            Self::GatedRows(rows) if !P::SPANS_PANELS => rows.put(s, panel, first, sums),
            Self::GatedRows(_) => unreachable!("rows that span panels are packed afterwards"),
        }
    }
}

/// The output matrix, written panel by panel: each panel owns 32 of its columns.
struct Columns<'a> {
    out: Disjoint<'a, f32>,
    width: usize,
    /// The first column, and the columns of a row of `out`.
    first: usize,
    row_width: usize,
    output: MatrixOutput<'a>,
}

impl Columns<'_> {
    #[inline(always)]
    fn put<S: Simd>(&self, s: S, panel: usize, first: usize, sums: &[[f32; PANEL_ROWS]]) {
        let MatrixOutput { bias, accumulate, .. } = self.output;
        let column = panel * PANEL_ROWS;
        if self.width - column < PANEL_ROWS {
            return self.put_part(panel, first, sums);
        }
        let bias = bias.map(|bias| load_pair(s, &bias[column..]));
        for (r, sums) in sums.iter().enumerate() {
            let start = (first + r) * self.row_width + self.first + column;
            // SAFETY: each panel is run by one thread, and panels own disjoint columns.
            let out = unsafe { self.out.part(start..start + PANEL_ROWS) };
            let mut values = load_pair(s, sums);
            if let Some(bias) = bias {
                values = [s.add(values[0], bias[0]), s.add(values[1], bias[1])];
            }
            if accumulate {
                let old = load_pair(s, out);
                values = [s.add(old[0], values[0]), s.add(old[1], values[1])];
            }
            store_pair(s, values, out);
        }
    }

    /// The last panel of a matrix that ends within it.
    #[cold]
    fn put_part(&self, panel: usize, first: usize, sums: &[[f32; PANEL_ROWS]]) {
        let MatrixOutput { bias, accumulate, .. } = self.output;
        let columns = panel * PANEL_ROWS..self.width;
        for (r, sums) in sums.iter().enumerate() {
            let start = (first + r) * self.row_width + self.first;
            // SAFETY: as above.
            let out = unsafe { self.out.part(start + columns.start..start + columns.end) };
            for (i, (out, &sum)) in out.iter_mut().zip(sums).enumerate() {
                let value = bias.map_or(sum, |bias| sum + bias[columns.start + i]);
                *out = if accumulate { *out + value } else { value };
            }
        }
    }
}

#[inline(always)]
fn load_pair<S: Simd>(s: S, values: &[f32]) -> [S::F; 2] {
    let (pair, _) = values.as_chunks();
    [s.load(&pair[0]), s.load(&pair[1])]
}

#[inline(always)]
pub(crate) fn store_pair<S: Simd>(s: S, values: [S::F; 2], out: &mut [f32]) {
    let (pair, _) = out.as_chunks_mut();
    s.store(values[0], &mut pair[0]);
    s.store(values[1], &mut pair[1]);
}

/// Gates times ups: a panel of 16 gates and 16 ups.
#[inline(always)]
fn gated<S: Simd>(
    s: S,
    activation: GatedActivation,
    [mut gate, mut up]: [S::F; 2],
    bias: Option<&[f32]>,
    panel: usize,
) -> S::F {
    if let Some(bias) = bias {
        let (bias, _) = bias[panel * PANEL_ROWS..].as_chunks();
        (gate, up) = (s.add(gate, s.load(&bias[0])), s.add(up, s.load(&bias[1])));
    }
    activation.apply(s, gate, up)
}

/// Gates times ups as a matrix, `[num_rows, width]`: each panel owns 16 of its columns.
struct GatedColumns<'a> {
    out: Disjoint<'a, f32>,
    width: usize,
    activation: GatedActivation,
    bias: Option<&'a [f32]>,
}

impl GatedColumns<'_> {
    #[inline(always)]
    fn put<S: Simd>(&self, s: S, panel: usize, first: usize, sums: &[[f32; PANEL_ROWS]]) {
        let columns = panel * LANES..self.width.min((panel + 1) * LANES);
        for (r, sums) in sums.iter().enumerate() {
            let start = (first + r) * self.width;
            // SAFETY: each panel is run by one thread, and panels own disjoint columns.
            let out = unsafe { self.out.part(start + columns.start..start + columns.end) };
            store_padded(s, gated(s, self.activation, load_pair(s, sums), self.bias, panel), out);
        }
    }
}

/// Gates times ups, written as rows of the next multiplication: each panel owns 8 steps of every tile.
struct GatedRows<'a, P> {
    out: Disjoint<'a, P>,
    /// The steps of a row.
    steps: usize,
    activation: GatedActivation,
    bias: Option<&'a [f32]>,
}

impl<P: RowStep> GatedRows<'_, P> {
    #[inline(always)]
    fn put<S: Simd>(&self, s: S, panel: usize, first: usize, sums: &[[f32; PANEL_ROWS]]) {
        const STEPS: usize = LANES / 2;
        let mut values = [[s.splat(0.0); 2]; MOST_TILE_ROWS];
        for (values, sums) in values.iter_mut().zip(sums) {
            values[0] = gated(s, self.activation, load_pair(s, sums), self.bias, panel);
        }
        let steps = panel * STEPS..self.steps.min((panel + 1) * STEPS);
        let start = first * self.steps;
        // SAFETY: each panel is run by one thread, and panels own disjoint steps of a tile; the tiles are
        // those of the input.
        let out = unsafe { self.out.part(start + steps.start * sums.len()..start + steps.end * sums.len()) };
        P::arrange(s, &values[..sums.len()], out);
    }
}

/// Up to 16 values, padded with zeros.
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

/// Writes the first of 16 values, as many as there is room for.
#[inline(always)]
fn store_padded<S: Simd>(s: S, value: S::F, out: &mut [f32]) {
    if let Ok(out) = <&mut [f32; LANES]>::try_from(&mut *out) {
        s.store(value, out);
    } else {
        let mut padded = [0.0; LANES];
        s.store(value, &mut padded);
        out.copy_from_slice(&padded[..out.len()]);
    }
}

/// The rows of some tiles times one panel.
#[doc(hidden)]
pub struct PanelJob<'a, F: PanelProducts> {
    rows: &'a PackedRows,
    tiles: Range<usize>,
    chunks: &'a mut dyn PanelChunks<F::Step>,
    panel: usize,
    outputs: &'a Outputs<'a, F::Row>,
}

impl<F: PanelProducts> SimdOp for PanelJob<'_, F> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        panel_times_rows::<S, F>(s, self.rows, self.tiles, self.chunks, self.panel, self.outputs);
    }
}

#[cfg(test)]
mod tests;
