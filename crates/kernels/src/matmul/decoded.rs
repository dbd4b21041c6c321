//! Matrices whose weights are decoded while they are multiplied: into panels that stay in a cache, of `float32` or of
//! integers.
//!
//! One tile of rows decodes a few inputs of a panel at a time, into the first cache, and multiplies with them at
//! once. For several tiles a panel is decoded once. A single row needs no panel of the kind, where its matrix can do
//! without. In each way a sum is the chain of such panels.

use std::cell::RefCell;
use std::ops::Range;
use std::thread::LocalKey;

use super::format::{F32Panels, PANEL_ROWS, PanelProducts, WidenedProducts};
use super::integers::{IntegerProducts, IntegerStep};
use super::rows::{FloatPair, RowTile};
use super::step::F32Step;
use super::tile::{Chunk, Later, PanelChunks, Region};
use super::{
    Columns, Gated, MatrixOutput, OutputColumns, Outputs, PackRows, PackedRows, PanelJob, RowStep,
    check_gated, for_each_panel, gated_rows,
};
use crate::isa::Isa;
use crate::parallel::Disjoint;
use crate::simd::{Simd, SimdOp};
use crate::threads::Workers;

/// Products with panels that are made while they are multiplied, in memory of the thread.
pub(crate) trait TemporaryPanel: PanelProducts {
    /// Calls `run` with so many steps, whose contents are old.
    fn with_steps(count: usize, run: impl FnOnce(&mut [Self::Step]));
}

/// Those of matrices that are stored in another form alone.
pub(crate) trait DecodedFormat: TemporaryPanel {
    /// The inputs that a single tile decodes at a time: about 8 KiB of weights.
    const CHUNK_INPUTS: usize;
    /// Whether a single tile fetches what is decoded next while it multiplies, and not while it decodes: the longer of
    /// both, so that memory is idle for less time.
    const FETCHES_WHILE_MULTIPLIED: bool;
}

thread_local! {
    static FLOATS: RefCell<Vec<F32Step>> = const { RefCell::new(Vec::new()) };
    static INTEGERS: RefCell<Vec<IntegerStep<1>>> = const { RefCell::new(Vec::new()) };
    static PAIRS: RefCell<Vec<IntegerStep<2>>> = const { RefCell::new(Vec::new()) };
}

/// [`TemporaryPanel::with_steps`] in this memory, which grows as needed.
pub(super) fn with_steps<T: Copy + Default>(
    memory: &'static LocalKey<RefCell<Vec<T>>>,
    count: usize,
    run: impl FnOnce(&mut [T]),
) {
    memory.with_borrow_mut(|steps| {
        if steps.len() < count {
            steps.resize(count, T::default());
        }
        run(&mut steps[..count]);
    });
}

impl<R: FloatPair> TemporaryPanel for WidenedProducts<F32Step, R> {
    fn with_steps(count: usize, run: impl FnOnce(&mut [F32Step])) {
        with_steps(&FLOATS, count, run);
    }
}

impl<const RUN: usize> TemporaryPanel for IntegerProducts<1, RUN> {
    fn with_steps(count: usize, run: impl FnOnce(&mut [IntegerStep<1>])) {
        with_steps(&INTEGERS, count, run);
    }
}

impl<const RUN: usize> TemporaryPanel for IntegerProducts<2, RUN> {
    fn with_steps(count: usize, run: impl FnOnce(&mut [IntegerStep<2>])) {
        with_steps(&PAIRS, count, run);
    }
}

impl DecodedFormat for F32Panels {
    const CHUNK_INPUTS: usize = 64;
    const FETCHES_WHILE_MULTIPLIED: bool = false;
}

impl<const SCALES: usize, const RUN: usize> DecodedFormat for IntegerProducts<SCALES, RUN>
where
    Self: TemporaryPanel,
{
    const CHUNK_INPUTS: usize = 256;
    const FETCHES_WHILE_MULTIPLIED: bool = true;
}

/// Multiplies several tiles with a panel that `make` makes of its steps once for all of them.
pub(super) fn run_made<F: PanelProducts, T: TemporaryPanel<Row = F::Row>>(
    isa: Isa,
    job: PanelJob<'_, F>,
    make: impl FnOnce(&[F::Step], &mut [T::Step]),
) {
    let PanelJob { rows, tiles, chunks, panel, outputs } = job;
    let Chunk { steps, later, .. } = chunks.chunk(0);
    // The tiles fetch the next panel, so that it is in a cache when it is made into another one.
    let later = match later {
        Later::Following(following) => Later::Decoded(Region {
            start: steps.as_ptr_range().end.cast(),
            bytes: size_of_val(steps).min(following),
        }),
        Later::Decoded(_) => later,
    };
    T::with_steps(steps.len(), |made| {
        make(steps, made);
        let chunks = &mut Chunk { start: 0, steps: &*made, later };
        T::Row::run(isa, PanelJob::<T> { rows, tiles, chunks, panel, outputs });
    });
}

/// Decodes some inputs of a panel, a multiple of 32 from a multiple of 32 on: `decode(isa, panel, inputs, fetches, out)`,
/// where `out` are the steps of these inputs. With `fetches`, which is false for formats with
/// [`DecodedFormat::FETCHES_WHILE_MULTIPLIED`] alone, it fetches what follows them.
pub(crate) type Decode<'a, T> = dyn Fn(Isa, usize, Range<usize>, bool, &mut [T]) + Sync + 'a;

/// Where some inputs of a panel are in memory, or of the next panel where they are behind its last one.
pub(crate) type Stored<'a> = dyn Fn(usize, Range<usize>) -> Region + Sync + 'a;

/// Multiplies a row with a panel: `multiply_row(isa, panel, row, products)`.
pub(crate) type MultiplyRow<'a, R> = dyn Fn(Isa, usize, &[R], &mut [f32; PANEL_ROWS]) + Sync + 'a;

/// A matrix that is decoded while it is multiplied.
#[derive(Clone, Copy)]
pub(crate) struct DecodedPanels<'a, F: DecodedFormat> {
    pub(crate) num_outputs: usize,
    pub(crate) num_inputs: usize,
    /// The memory it takes.
    pub(crate) bytes: usize,
    pub(crate) decode: &'a Decode<'a, F::Step>,
    pub(crate) stored: &'a Stored<'a>,
    /// What takes a single row in its place, with the same bits.
    pub(crate) multiply_row: Option<&'a MultiplyRow<'a, F::Row>>,
}

/// Hands the products of a single row over.
struct Put<'a, P> {
    outputs: &'a Outputs<'a, P>,
    panel: usize,
    products: &'a [f32; PANEL_ROWS],
}

impl<P: RowStep> SimdOp for Put<'_, P> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        self.outputs.put(s, self.panel, 0, &[*self.products]);
    }
}

impl<F: DecodedFormat> DecodedPanels<'_, F> {
    /// See [`super::matmul`].
    pub(crate) fn matmul(
        &self,
        workers: &Workers,
        rows: &PackedRows,
        output: MatrixOutput<'_>,
        out: &mut [f32],
    ) {
        let width = self.num_outputs;
        let OutputColumns { first, row_width } = output.columns_of(width, rows.num_rows(), out.len());
        self.multiply(
            workers,
            rows,
            &Outputs::Columns(Columns { out: Disjoint::new(out), width, first, row_width, output }),
        );
    }

    /// See [`super::gated_matmul`].
    pub(crate) fn gated_matmul(
        &self,
        workers: &Workers,
        rows: &PackedRows,
        gated: Gated<'_>,
        pack: Option<&PackRows<'_>>,
        out: &mut PackedRows,
    ) {
        check_gated(self.num_outputs, gated.width, gated.bias);
        gated_rows(workers, rows, gated, pack, out, |outputs| self.multiply(workers, rows, outputs));
    }

    fn multiply(&self, workers: &Workers, rows: &PackedRows, outputs: &Outputs<'_, F::Row>) {
        let (Self { num_inputs, decode, .. }, isa) = (self, workers.isa());
        let num_inputs = *num_inputs;
        assert_eq!(rows.num_inputs(), num_inputs, "rows and weights have the same inner dimension");
        let num_panels = self.num_outputs.div_ceil(PANEL_ROWS);
        if let (Some(multiply_row), 1) = (self.multiply_row, rows.num_rows()) {
            for_each_panel(workers, rows, self.bytes, num_panels, &|panel, tiles| {
                for RowTile { values, .. } in rows.tiles::<F::Row>(tiles) {
                    let mut products = [0.0; PANEL_ROWS];
                    multiply_row(isa, panel, values, &mut products);
                    F::Row::run(isa, Put { outputs, panel, products: &products });
                }
            });
            return;
        }
        for_each_panel(workers, rows, self.bytes, num_panels, &|panel, tiles| {
            let chunk_inputs = if tiles.len() > 1 { num_inputs } else { F::CHUNK_INPUTS };
            F::with_steps(chunk_inputs.div_ceil(F::Row::INPUTS), |decoded| {
                if tiles.len() > 1 {
                    decode(isa, panel, 0..num_inputs, true, decoded);
                    let chunks = &mut Chunk { start: 0, steps: &*decoded, later: Later::Following(0) };
                    F::Row::run(isa, PanelJob::<F> { rows, tiles, chunks, panel, outputs });
                } else {
                    let chunks = &mut Decoding { matrix: self, isa, panel, decoded };
                    F::Row::run(isa, PanelJob::<F> { rows, tiles, chunks, panel, outputs });
                }
            });
        });
    }
}

/// A panel that is decoded part by part.
struct Decoding<'a, F: DecodedFormat> {
    matrix: &'a DecodedPanels<'a, F>,
    isa: Isa,
    panel: usize,
    decoded: &'a mut [F::Step],
}

impl<F: DecodedFormat> PanelChunks<F::Step> for Decoding<'_, F> {
    fn count(&self) -> usize {
        self.matrix.num_inputs.div_ceil(F::CHUNK_INPUTS)
    }

    fn chunk(&mut self, index: usize) -> Chunk<'_, F::Step> {
        let start = index * F::CHUNK_INPUTS;
        let end = self.matrix.num_inputs.min(start + F::CHUNK_INPUTS);
        let decoded = &mut self.decoded[..(end - start).div_ceil(F::Row::INPUTS)];
        (self.matrix.decode)(self.isa, self.panel, start..end, !F::FETCHES_WHILE_MULTIPLIED, decoded);
        let later = if F::FETCHES_WHILE_MULTIPLIED {
            Later::Decoded((self.matrix.stored)(self.panel, end..end + F::CHUNK_INPUTS))
        } else {
            Later::Following(0)
        };
        Chunk { start: start / F::Row::INPUTS, steps: decoded, later }
    }
}
