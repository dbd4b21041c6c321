//! Weight formats: how a matrix is kept in memory, and what can be done with it there.
//!
//! A format is a file here and a line in `choose`; everything above sees a [`PackedMatrix`].

mod packed;
mod panels;

pub use packed::PackedMatrix;

use crate::error::Result;
use crate::kernels::{Bf16Panels, Bf16Products, F16Panels, F32Panels, MatrixOutput, PackedRows, Workers};
use crate::tensor::{ComputeDtype, DType, StoredMatrix};
use panels::Panels;

/// A way to keep weights in memory.
pub trait WeightFormat: Send + Sync {
    /// The name that reports use.
    fn name(&self) -> &'static str;

    /// Packs the rows of all `parts`, one after the other, as one matrix, on all threads.
    ///
    /// # Errors
    /// When a weight is NaN or infinite.
    fn pack(&self, workers: &Workers, parts: &[StoredMatrix<'_>]) -> Result<Box<dyn PackedWeights>>;
}

/// A matrix in one of the formats.
pub trait PackedWeights: Send + Sync {
    /// Packs `x`, `[num_rows, num_inputs]`, as [`PackedWeights::matmul`] takes it.
    fn pack_rows(&self, workers: &Workers, x: &[f32], rows: &mut PackedRows);
    /// See [`crate::kernels::matmul`].
    fn matmul(&self, workers: &Workers, rows: &PackedRows, output: MatrixOutput<'_>, out: &mut [f32]);
    /// Unpacks the weights of one output.
    fn row(&self, output: usize, out: &mut [f32]);
    /// The rows of the matrix.
    fn num_outputs(&self) -> usize;
    /// The columns of the matrix.
    fn num_inputs(&self) -> usize;
    /// The memory it takes, in bytes.
    fn bytes(&self) -> usize;
}

impl dyn WeightFormat {
    /// The format for an arithmetic: in `float32` the one that keeps weights of a stored type as they are.
    pub fn choose(dtype: DType, compute: ComputeDtype) -> &'static dyn WeightFormat {
        match (compute, dtype) {
            (ComputeDtype::F32, DType::F32) => const { &Panels::<F32Panels>::keeping(DType::F32) },
            (ComputeDtype::F32, DType::Bf16) => const { &Panels::<Bf16Panels>::keeping(DType::Bf16) },
            (ComputeDtype::F32, DType::F16) => const { &Panels::<F16Panels>::keeping(DType::F16) },
            (ComputeDtype::Bf16, _) => const { &Panels::<Bf16Products>::keeping(DType::Bf16) },
        }
    }
}
