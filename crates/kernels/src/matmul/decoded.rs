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
    for_each_panel,
};
use crate::isa::Isa;
use crate::parallel::Disjoint;
use crate::simd::LANES;
use crate::threads::Workers;

/// The inputs that a single tile decodes at a time: 8 KiB of weights.
const CHUNK_INPUTS: usize = 64;

/// Panels that can be decoded.
pub(crate) trait DecodePanels: Send + Sync {
    /// Decodes some inputs of a panel, a multiple of 32 from a multiple of 32 on: `out` is `[inputs / 2]`.
    fn decode(&self, isa: Isa, panel: usize, inputs: Range<usize>, out: &mut [F32Step]);

    /// Decodes one row of the matrix.
    fn row(&self, output: usize, out: &mut [f32]);

    /// The rows of the matrix.
    fn num_outputs(&self) -> usize;

    /// The columns of the matrix.
    fn num_inputs(&self) -> usize;

    /// The memory it takes, in bytes.
    fn bytes(&self) -> usize;
}

/// A matrix that is decoded while it is multiplied.
pub(crate) struct DecodedMatrix(pub(crate) Box<dyn DecodePanels>);

thread_local! {
    /// Decoded weights of a panel.
    static DECODED: RefCell<Vec<F32Step>> = const { RefCell::new(Vec::new()) };
}

impl DecodedMatrix {
    /// See [`super::matmul`].
    pub(crate) fn matmul(
        &self,
        workers: &Workers,
        rows: &PackedRows,
        output: MatrixOutput<'_>,
        out: &mut [f32],
    ) {
        let width = self.0.num_outputs();
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
        assert_eq!(
            self.0.num_outputs(),
            2 * width.next_multiple_of(LANES),
            "a gate and an up for each output"
        );
        assert!(bias.is_none_or(|bias| bias.len() == self.0.num_outputs()), "one bias for each gate and up");
        let out = Disjoint::new(out.sized::<[f32; 2]>(rows.tiling(), rows.num_rows(), width));
        let gated = GatedRows { out, steps: width.div_ceil(2), activation, bias };
        self.multiply(workers, rows, &Outputs::GatedRows(gated));
    }

    fn multiply(&self, workers: &Workers, rows: &PackedRows, outputs: &Outputs<'_, [f32; 2]>) {
        let (matrix, isa) = (&*self.0, workers.isa());
        assert_eq!(rows.num_inputs(), matrix.num_inputs(), "rows and weights have the same inner dimension");
        let num_panels = matrix.num_outputs().div_ceil(PANEL_ROWS);
        for_each_panel(workers, rows, matrix.bytes(), num_panels, &|panel, tiles| {
            DECODED.with_borrow_mut(|decoded| {
                let chunk_inputs = if tiles.len() > 1 { matrix.num_inputs() } else { CHUNK_INPUTS };
                if decoded.len() < chunk_inputs.div_ceil(2) {
                    decoded.resize(chunk_inputs.div_ceil(2), F32Step::default());
                }
                if tiles.len() > 1 {
                    let chunks = &mut decoded[..matrix.num_inputs().div_ceil(2)];
                    matrix.decode(isa, panel, 0..matrix.num_inputs(), chunks);
                    let chunks = &*chunks;
                    <[f32; 2]>::run(isa, PanelJob::<F32Panels, _> { rows, tiles, chunks, panel, outputs });
                } else {
                    let chunks = Decoding { matrix, isa, panel, decoded: &mut decoded[..] };
                    <[f32; 2]>::run(isa, PanelJob::<F32Panels, _> { rows, tiles, chunks, panel, outputs });
                }
            });
        });
    }
}

/// A panel that is decoded part by part.
struct Decoding<'a> {
    matrix: &'a dyn DecodePanels,
    isa: Isa,
    panel: usize,
    decoded: &'a mut [F32Step],
}

impl PanelChunks<F32Step> for Decoding<'_> {
    fn count(&self) -> usize {
        self.matrix.num_inputs().div_ceil(CHUNK_INPUTS)
    }

    #[inline(never)]
    fn chunk(&mut self, index: usize) -> (usize, &[F32Step]) {
        let start = index * CHUNK_INPUTS;
        let inputs = start..self.matrix.num_inputs().min(start + CHUNK_INPUTS);
        let decoded = &mut self.decoded[..inputs.len().div_ceil(2)];
        self.matrix.decode(self.isa, self.panel, inputs, decoded);
        (start / 2, decoded)
    }
}
