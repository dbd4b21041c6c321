//! Matrices whose weights are decoded while they are multiplied: into panels that stay in a cache, of `float32` or of
//! integers.
//!
//! One tile of rows decodes a few inputs of a panel at a time, into the first cache, and multiplies with them at
//! once. For several tiles a panel is decoded once. Either way each sum is the chain of such panels.

use std::cell::RefCell;
use std::ops::Range;

use super::format::{F32Panels, PANEL_ROWS, PanelProducts};
use super::integers::{IntegerProducts, IntegerStep};
use super::step::F32Step;
use super::tile::{Chunk, PanelChunks};
use super::{
    Columns, Gated, MatrixOutput, OutputColumns, Outputs, PackRows, PackedRows, PanelJob, RowStep as _,
    check_gated, for_each_panel, gated_rows,
};
use crate::isa::Isa;
use crate::parallel::Disjoint;
use crate::threads::Workers;

/// Products with panels that are decoded.
pub(crate) trait DecodedFormat: PanelProducts {
    /// The inputs that a single tile decodes at a time: about 8 KiB of weights.
    const CHUNK_INPUTS: usize;

    /// Calls `run` with memory of this thread, for the steps of a panel.
    fn with_memory(run: impl FnOnce(&mut Vec<Self::Step>));
}

thread_local! {
    static FLOATS: RefCell<Vec<F32Step>> = const { RefCell::new(Vec::new()) };
    static INTEGERS: RefCell<Vec<IntegerStep<1>>> = const { RefCell::new(Vec::new()) };
    static PAIRS: RefCell<Vec<IntegerStep<2>>> = const { RefCell::new(Vec::new()) };
}

impl DecodedFormat for F32Panels {
    const CHUNK_INPUTS: usize = 64;

    fn with_memory(run: impl FnOnce(&mut Vec<F32Step>)) {
        FLOATS.with_borrow_mut(run);
    }
}

impl<const RUN: usize> DecodedFormat for IntegerProducts<1, RUN> {
    const CHUNK_INPUTS: usize = 256;

    fn with_memory(run: impl FnOnce(&mut Vec<IntegerStep<1>>)) {
        INTEGERS.with_borrow_mut(run);
    }
}

impl<const RUN: usize> DecodedFormat for IntegerProducts<2, RUN> {
    const CHUNK_INPUTS: usize = 256;

    fn with_memory(run: impl FnOnce(&mut Vec<IntegerStep<2>>)) {
        PAIRS.with_borrow_mut(run);
    }
}

/// Decodes some inputs of a panel, a multiple of 32 from a multiple of 32 on: `decode(isa, panel, inputs, out)`, where
/// `out` are the steps of these inputs.
pub(crate) type Decode<'a, T> = dyn Fn(Isa, usize, Range<usize>, &mut [T]) + Sync + 'a;

/// A matrix that is decoded while it is multiplied.
#[derive(Clone, Copy)]
pub(crate) struct DecodedPanels<'a, F: DecodedFormat> {
    pub(crate) num_outputs: usize,
    pub(crate) num_inputs: usize,
    /// The memory it takes.
    pub(crate) bytes: usize,
    pub(crate) decode: &'a Decode<'a, F::Step>,
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
        for_each_panel(workers, rows, self.bytes, num_panels, &|panel, tiles| {
            F::with_memory(|decoded| {
                let chunk_inputs = if tiles.len() > 1 { num_inputs } else { F::CHUNK_INPUTS };
                let num_steps = chunk_inputs.div_ceil(F::Row::INPUTS);
                if decoded.len() < num_steps {
                    decoded.resize(num_steps, F::Step::default());
                }
                if tiles.len() > 1 {
                    let chunks = &mut decoded[..num_steps];
                    decode(isa, panel, 0..num_inputs, chunks);
                    let chunks = &mut Chunk { start: 0, steps: &*chunks, following: 0 };
                    F::Row::run(isa, PanelJob::<F> { rows, tiles, chunks, panel, outputs });
                } else {
                    let chunks = &mut Decoding { matrix: self, isa, panel, decoded: &mut decoded[..] };
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
        let inputs = start..self.matrix.num_inputs.min(start + F::CHUNK_INPUTS);
        let decoded = &mut self.decoded[..inputs.len().div_ceil(F::Row::INPUTS)];
        (self.matrix.decode)(self.isa, self.panel, inputs, decoded);
        Chunk { start: start / F::Row::INPUTS, steps: decoded, following: 0 }
    }
}
