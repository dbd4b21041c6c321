//! Matrices whose panels are decoded while they are multiplied.

use std::any::TypeId;
use std::marker::PhantomData;
use std::ops::Range;

use crate::matmul::{DecodedFormat, DecodedPanels, PANEL_ROWS, PackRows, Region};
use crate::quant::PackedWeights;
use crate::{Gated, Inputs, Isa, MatrixOutput, PackedRows, Workers};

/// `multiply_row(matrix, isa, panel, row, products)`.
pub(super) type MultiplyRowOf<M, R> = fn(&M, Isa, usize, &[R], &mut [f32; PANEL_ROWS]);

/// A matrix in panels that decode themselves for products of type `F`.
pub(super) trait PanelSource<F: DecodedFormat>: Sized + Send + Sync + 'static {
    /// Decodes some inputs of a panel, a multiple of 32 or all that are left, from a multiple of 32 on. With `fetches`, which
    /// is false for formats with [`DecodedFormat::FETCHES_WHILE_MULTIPLIED`] alone, it fetches what follows them.
    fn decode(&self, isa: Isa, panel: usize, inputs: Range<usize>, fetches: bool, out: &mut [F::Step]);

    /// Where some inputs of a panel are in memory, or of the next panel where they are behind its last one.
    fn stored(&self, panel: usize, inputs: Range<usize>) -> Region;

    /// Multiplies a row with a panel, with the bits of decoding the panel and multiplying then. `None`: it is decoded.
    const MULTIPLY_ROW: Option<MultiplyRowOf<Self, F::Row>> = None;

    /// Unpacks the weights of one output.
    fn row(&self, output: usize, out: &mut [f32]);

    /// The rows of the matrix.
    fn num_outputs(&self) -> usize;

    /// The columns of the matrix.
    fn num_inputs(&self) -> usize;

    /// The memory it takes, in bytes.
    fn bytes(&self) -> usize;
}

/// Such a matrix, for products of type `F`.
pub(super) struct DecodedMatrix<M, F> {
    source: M,
    products: PhantomData<fn() -> F>,
}

impl<F: DecodedFormat, M: PanelSource<F>> DecodedMatrix<M, F> {
    pub(super) fn new(source: M) -> Self {
        Self { source, products: PhantomData }
    }

    /// Calls `multiply` with the matrix as one that is decoded.
    fn decoded(&self, multiply: impl FnOnce(DecodedPanels<'_, F>)) {
        let source = &self.source;
        let decode = |isa: Isa, panel: usize, inputs: Range<usize>, fetches: bool, out: &mut [F::Step]| {
            source.decode(isa, panel, inputs, fetches, out);
        };
        let stored = |panel: usize, inputs: Range<usize>| source.stored(panel, inputs);
        let multiply_row = M::MULTIPLY_ROW.map(|multiply_row| {
            move |isa: Isa, panel: usize, row: &[F::Row], products: &mut [f32; PANEL_ROWS]| {
                multiply_row(source, isa, panel, row, products);
            }
        });
        multiply(DecodedPanels {
            num_outputs: source.num_outputs(),
            num_inputs: source.num_inputs(),
            bytes: source.bytes(),
            decode: &decode,
            stored: &stored,
            multiply_row: multiply_row.as_ref().map(|multiply_row| multiply_row as _),
        });
    }
}

impl<F: DecodedFormat, M: PanelSource<F>> PackedWeights for DecodedMatrix<M, F> {
    fn pack_rows(&self, workers: &Workers, inputs: Inputs<'_>, rows: &mut PackedRows) {
        rows.pack::<F::Row>(workers, inputs, self.num_inputs());
    }

    fn matmul(&self, workers: &Workers, rows: &PackedRows, output: MatrixOutput<'_>, out: &mut [f32]) {
        self.decoded(|panels| panels.matmul(workers, rows, output, out));
    }

    fn row_type(&self) -> TypeId {
        TypeId::of::<F::Row>()
    }

    fn gated_matmul(
        &self,
        workers: &Workers,
        rows: &PackedRows,
        gated: Gated<'_>,
        next: &dyn PackedWeights,
        out: &mut PackedRows,
    ) {
        let pack: &PackRows<'_> = &|workers, inputs, rows| next.pack_rows(workers, inputs, rows);
        let pack = (next.row_type() != self.row_type()).then_some(pack);
        self.decoded(|panels| panels.gated_matmul(workers, rows, gated, pack, out));
    }

    fn write(&self, _: &mut Vec<u8>) {}

    fn row(&self, output: usize, out: &mut [f32]) {
        self.source.row(output, out);
    }

    fn num_outputs(&self) -> usize {
        self.source.num_outputs()
    }

    fn num_inputs(&self) -> usize {
        self.source.num_inputs()
    }

    fn bytes(&self) -> usize {
        self.source.bytes()
    }
}
