//! Matrices whose weights are decoded while they are multiplied: into `float32` panels that stay in a cache.
//!
//! One tile of rows decodes a few inputs of a panel at a time, into the first cache, and multiplies with them at
//! once. For several tiles a panel is decoded once. Either way each sum is the chain of `float32` panels.

use std::cell::RefCell;
use std::ops::Range;

use super::format::{F32Panels, PANEL_ROWS};
use super::step::F32Step;
use super::tile::PanelChunks;
use super::{
    Columns, Gated, GatedRows, MatrixOutput, OutputColumns, Outputs, PackedRows, PanelJob, RowStep as _,
    check_gated, for_each_panel,
};
use crate::isa::Isa;
use crate::parallel::Disjoint;
use crate::threads::Workers;

/// The inputs that a single tile decodes at a time: 8 KiB of weights.
const CHUNK_INPUTS: usize = 64;

/// Decodes some inputs of a panel, a multiple of 32 from a multiple of 32 on: `decode(isa, panel, inputs, out)`, where
/// `out` is `[inputs / 2]`.
pub(crate) type Decode<'a> = dyn Fn(Isa, usize, Range<usize>, &mut [F32Step]) + Sync + 'a;

/// A matrix that is decoded while it is multiplied.
#[derive(Clone, Copy)]
pub(crate) struct DecodedPanels<'a> {
    pub(crate) num_outputs: usize,
    pub(crate) num_inputs: usize,
    /// The memory it takes.
    pub(crate) bytes: usize,
    pub(crate) decode: &'a Decode<'a>,
}

thread_local! {
    /// Decoded weights of a panel.
    static DECODED: RefCell<Vec<F32Step>> = const { RefCell::new(Vec::new()) };
}

impl DecodedPanels<'_> {
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
        Gated { activation, bias, width }: Gated<'_>,
        out: &mut PackedRows,
    ) {
        check_gated(self.num_outputs, width, bias);
        let out = Disjoint::new(out.sized::<[f32; 2]>(rows.tiling(), rows.num_rows(), width));
        let gated = GatedRows { out, steps: width.div_ceil(2), activation, bias };
        self.multiply(workers, rows, &Outputs::GatedRows(gated));
    }

    fn multiply(&self, workers: &Workers, rows: &PackedRows, outputs: &Outputs<'_, [f32; 2]>) {
        let (Self { num_inputs, decode, .. }, isa) = (*self, workers.isa());
        assert_eq!(rows.num_inputs(), num_inputs, "rows and weights have the same inner dimension");
        let num_panels = self.num_outputs.div_ceil(PANEL_ROWS);
        for_each_panel(workers, rows, self.bytes, num_panels, &|panel, tiles| {
            DECODED.with_borrow_mut(|decoded| {
                let chunk_inputs = if tiles.len() > 1 { num_inputs } else { CHUNK_INPUTS };
                if decoded.len() < chunk_inputs.div_ceil(2) {
                    decoded.resize(chunk_inputs.div_ceil(2), F32Step::default());
                }
                if tiles.len() > 1 {
                    let chunks = &mut decoded[..num_inputs.div_ceil(2)];
                    decode(isa, panel, 0..num_inputs, chunks);
                    let chunks = &*chunks;
                    <[f32; 2]>::run(isa, PanelJob::<F32Panels, _> { rows, tiles, chunks, panel, outputs });
                } else {
                    let chunks = Decoding { matrix: *self, isa, panel, decoded: &mut decoded[..] };
                    <[f32; 2]>::run(isa, PanelJob::<F32Panels, _> { rows, tiles, chunks, panel, outputs });
                }
            });
        });
    }
}

/// A panel that is decoded part by part.
struct Decoding<'a> {
    matrix: DecodedPanels<'a>,
    isa: Isa,
    panel: usize,
    decoded: &'a mut [F32Step],
}

impl PanelChunks<F32Step> for Decoding<'_> {
    fn count(&self) -> usize {
        self.matrix.num_inputs.div_ceil(CHUNK_INPUTS)
    }

    #[inline(never)]
    fn chunk(&mut self, index: usize) -> (usize, &[F32Step]) {
        let start = index * CHUNK_INPUTS;
        let inputs = start..self.matrix.num_inputs.min(start + CHUNK_INPUTS);
        let decoded = &mut self.decoded[..inputs.len().div_ceil(2)];
        (self.matrix.decode)(self.isa, self.panel, inputs, decoded);
        (start / 2, decoded)
    }
}
