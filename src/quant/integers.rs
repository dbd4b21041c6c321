//! Weights as integers in groups: rounded while loading, or read from a packed file.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};

use super::packed::pack_panels;
use super::{PackedWeights, RowOrder, WeightFormat};
use crate::error::{Error, Result};
use crate::kernels::{
    FileFormat, Inputs, MatrixOutput, PackedRows, PanelMatrix, Work, Workers, gated_matmul, matmul,
};
use crate::tensor::{DType, StoredBytes, StoredMatrix, WeightType};

/// The format for integers of one width.
pub(super) struct Integers<F> {
    kind: WeightType,
    format: PhantomData<F>,
}

impl<F> Integers<F> {
    /// The format for weights that `F` packs.
    pub(super) const fn of(kind: WeightType) -> Self {
        Self { kind, format: PhantomData }
    }
}

impl<F: FileFormat> WeightFormat for Integers<F> {
    fn name(&self) -> &'static str {
        self.kind.name()
    }

    fn pack(
        &self,
        workers: &Workers,
        parts: &[StoredMatrix<'_>],
        order: RowOrder,
    ) -> Result<Box<dyn PackedWeights>> {
        Ok(Box::new(IntegerMatrix(pack_panels::<F>(workers, parts, order, DType::F32)?)))
    }

    fn file_shape(&self, num_outputs: usize, num_inputs: usize) -> Option<[usize; 3]> {
        Some(PanelMatrix::<F>::file_shape(num_outputs, num_inputs))
    }

    fn read(
        &self,
        workers: &Workers,
        num_outputs: usize,
        num_inputs: usize,
        bytes: StoredBytes<'_>,
        cancelled: &AtomicBool,
    ) -> Result<Box<dyn PackedWeights>> {
        let matrix = PanelMatrix::<F>::read(workers, num_outputs, num_inputs, |range, out| {
            if cancelled.load(Ordering::Relaxed) {
                return Err(Error::cancelled());
            }
            bytes.part(range).read(out)
        })?;
        let matrix = matrix.ok_or_else(|| {
            Error::load(format!(
                "it holds no {} weights; the file is damaged, pack the model again",
                self.name()
            ))
        })?;
        Ok(Box::new(IntegerMatrix(matrix)))
    }

    fn work(&self, bytes: u64, operations: u64) -> Work {
        Work { bytes, int8_ops: operations, ..Work::default() }
    }
}

/// A matrix that files may hold.
struct IntegerMatrix<F: FileFormat>(PanelMatrix<F>);

impl<F: FileFormat> PackedWeights for IntegerMatrix<F> {
    fn pack_rows(&self, workers: &Workers, inputs: Inputs<'_>, rows: &mut PackedRows) {
        rows.pack::<F::Row>(workers, inputs, self.0.num_inputs());
    }

    fn matmul(&self, workers: &Workers, rows: &PackedRows, output: MatrixOutput<'_>, out: &mut [f32]) {
        matmul(workers, rows, &self.0, output, out);
    }

    fn gated_matmul(
        &self,
        workers: &Workers,
        rows: &PackedRows,
        bias: Option<&[f32]>,
        width: usize,
        out: &mut PackedRows,
    ) {
        gated_matmul(workers, rows, &self.0, bias, width, out);
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
    }

    fn row(&self, output: usize, out: &mut [f32]) {
        self.0.row(output, out);
    }

    fn num_outputs(&self) -> usize {
        self.0.num_outputs()
    }

    fn num_inputs(&self) -> usize {
        self.0.num_inputs()
    }

    fn bytes(&self) -> usize {
        self.0.bytes()
    }
}
