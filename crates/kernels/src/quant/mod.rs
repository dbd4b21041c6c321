//! Weight formats: the layout of a matrix in memory, and the operations on it.
//!
//! A format is a file here and a line in `choose`; everything above sees a [`PackedMatrix`].

mod integers;
mod mixed;
mod packed;
mod panels;

pub(crate) use mixed::Mixed;
pub use packed::PackedMatrix;
pub(crate) use packed::{pack_panels, read_rows};

use std::any::TypeId;
use std::sync::atomic::AtomicBool;

use crate::tensor::{ComputeDtype, DType, Encoding, StoredBytes, StoredMatrix, WeightType};
use crate::{
    Bf16Panels, F16Panels, F32Panels, Gated, I4Groups, I8Groups, Inputs, MatrixOutput, PANEL_ROWS,
    PackedRows, Work, Workers,
};
use integers::Integers;
use panels::{Bf16Arithmetic, Panels};
use rsgen_core::{Error, Result};

/// A layout of weights in memory.
pub trait WeightFormat: Send + Sync {
    /// The name that reports use.
    fn name(&self) -> &'static str;

    /// Packs the rows of all `parts` as one matrix, on all threads.
    ///
    /// # Errors
    /// When a weight is NaN or infinite.
    fn pack(
        &self,
        workers: &Workers,
        parts: &[StoredMatrix<'_>],
        order: RowOrder,
    ) -> Result<Box<dyn PackedWeights>>;

    /// The shape of a matrix in a packed file, in bytes; `None` if files hold none of this format.
    fn file_shape(&self, _num_outputs: usize, _num_inputs: usize) -> Option<[usize; 3]> {
        None
    }

    /// The matrix that a packed file holds, in bytes of that shape.
    ///
    /// # Errors
    /// When it cannot be read, or is no matrix of this format.
    fn read(
        &self,
        _workers: &Workers,
        _num_outputs: usize,
        _num_inputs: usize,
        _bytes: StoredBytes<'_>,
        _cancelled: &AtomicBool,
    ) -> Result<Box<dyn PackedWeights>> {
        Err(Error::internal("files hold no matrix of this format"))
    }

    /// The work of so many multiplications and additions with a matrix of so many bytes.
    fn work(&self, bytes: u64, operations: u64) -> Work;
}

/// How the rows of the source matrices map to the outputs of the packed matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowOrder {
    /// Stacked: output `i` is row `i`.
    Stacked,
    /// The first half are gate rows, the second half up rows. Interleaved in groups of 16, as
    /// [`gated_matmul`](crate::gated_matmul) takes them; the last groups are padded with zeros.
    Gated,
    /// The same, where gate and up rows alternate.
    GatedPairs,
    /// Stacked, of rows that are stored in groups: so many query heads, a key head and a value head each. The
    /// queries of all groups come first, then the keys, then the values.
    Grouped {
        /// The query heads of a group.
        queries: usize,
        /// The rows of a head.
        head_dim: usize,
    },
}

impl RowOrder {
    /// The number of outputs of a matrix of `num_rows` rows, padding included.
    pub fn num_outputs(self, num_rows: usize) -> usize {
        match self {
            Self::Stacked | Self::Grouped { .. } => num_rows,
            Self::Gated | Self::GatedPairs => (num_rows / 2).div_ceil(PANEL_ROWS / 2) * PANEL_ROWS,
        }
    }

    /// The source row of an output; `None` for padding.
    pub fn row(self, output: usize, num_rows: usize) -> Option<usize> {
        let row = match self {
            Self::Stacked => output,
            Self::Gated | Self::GatedPairs => {
                let (half, lane) = (output % PANEL_ROWS / (PANEL_ROWS / 2), output % (PANEL_ROWS / 2));
                let pair = output / PANEL_ROWS * (PANEL_ROWS / 2) + lane;
                if pair >= num_rows / 2 {
                    return None;
                }
                if self == Self::Gated { half * (num_rows / 2) + pair } else { 2 * pair + half }
            }
            Self::Grouped { queries, head_dim } => {
                let num_groups = num_rows / ((queries + 2) * head_dim);
                let (head, place) = (output / head_dim, output % head_dim);
                let (group, in_group) = match head.checked_sub(queries * num_groups) {
                    None => (head / queries, head % queries),
                    Some(head) => (head % num_groups, queries + head / num_groups),
                };
                (group * (queries + 2) + in_group) * head_dim + place
            }
        };
        Some(row)
    }
}

/// A matrix in one of the formats.
pub trait PackedWeights: Send + Sync {
    /// Packs input rows for [`PackedWeights::matmul`].
    fn pack_rows(&self, workers: &Workers, inputs: Inputs<'_>, rows: &mut PackedRows);
    /// See [`crate::matmul`].
    fn matmul(&self, workers: &Workers, rows: &PackedRows, output: MatrixOutput<'_>, out: &mut [f32]);
    /// The type that rows are packed as.
    fn row_type(&self) -> TypeId;
    /// See [`crate::gated_matmul`]: `out` are rows for `next`.
    fn gated_matmul(
        &self,
        workers: &Workers,
        rows: &PackedRows,
        gated: Gated<'_>,
        next: &dyn PackedWeights,
        out: &mut PackedRows,
    );
    /// Appends the matrix as a packed file holds it; nothing if files hold none of this format.
    fn write(&self, out: &mut Vec<u8>);
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
    /// The format for weights and an arithmetic. In `bfloat16` all floating-point weights are rounded to it;
    /// integers have their own.
    pub fn choose(weights: WeightType, compute: ComputeDtype) -> &'static dyn WeightFormat {
        match (weights, compute) {
            (WeightType::Int8, _) => const { &Integers::<I8Groups>::of(WeightType::Int8) },
            (WeightType::Int4, _) => const { &Integers::<I4Groups>::of(WeightType::Int4) },
            (WeightType::Float(_), ComputeDtype::Bf16) => &Bf16Arithmetic,
            (WeightType::Float(DType::F32), _) => const { &Panels::<F32Panels>::keeping(DType::F32) },
            (WeightType::Float(DType::Bf16), _) => const { &Panels::<Bf16Panels>::keeping(DType::Bf16) },
            (WeightType::Float(DType::F16), _) => const { &Panels::<F16Panels>::keeping(DType::F16) },
        }
    }

    /// The format that keeps the parts of a matrix as they are stored. Blocks compute in `float32` or with integers, and
    /// so does what is in one matrix with them.
    fn keeping(
        parts: &[StoredMatrix<'_>],
        order: RowOrder,
        compute: ComputeDtype,
    ) -> &'static dyn WeightFormat {
        let (first, is_same) =
            (parts[0].encoding, parts.iter().all(|part| part.encoding == parts[0].encoding));
        let has_blocks = parts.iter().any(|part| !matches!(part.encoding, Encoding::Plain(_)));
        match first {
            Encoding::Blocks(kind) if is_same && compute == ComputeDtype::Int8 => {
                kind.integer_format().unwrap_or(kind.format())
            }
            Encoding::Blocks(kind) if is_same => kind.format(),
            Encoding::Indexed(kind) if is_same => kind.format(),
            Encoding::Plain(dtype) if is_same => Self::choose(dtype.into(), compute),
            _ if !has_blocks => Self::choose(DType::F32.into(), compute),
            _ if order == RowOrder::Stacked && compute == ComputeDtype::Int8 => &Mixed(ComputeDtype::Int8),
            _ if order == RowOrder::Stacked => &Mixed(ComputeDtype::F32),
            _ => Self::choose(DType::F32.into(), ComputeDtype::F32),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_and_ups_come_by_turns() {
        let order = RowOrder::Gated;
        assert_eq!((order.num_outputs(64), order.num_outputs(66), order.num_outputs(2)), (64, 96, 32));
        let rows = |range: std::ops::Range<usize>| -> Vec<_> {
            range.map(|output| order.row(output, 2 * 18)).collect()
        };
        assert_eq!(rows(0..16), (0..16).map(Some).collect::<Vec<_>>());
        assert_eq!(rows(16..32), (18..34).map(Some).collect::<Vec<_>>());
        assert_eq!(rows(32..35), [Some(16), Some(17), None]);
        assert_eq!(rows(48..51), [Some(34), Some(35), None]);
        assert_eq!(RowOrder::Stacked.row(7, 9), Some(7));
        let order = RowOrder::GatedPairs;
        let rows: Vec<_> = (0..order.num_outputs(6)).filter_map(|output| order.row(output, 6)).collect();
        assert_eq!(rows, [0, 2, 4, 1, 3, 5]);
    }

    #[test]
    fn groups_of_heads_are_taken_apart() {
        let order = RowOrder::Grouped { queries: 2, head_dim: 1 };
        let rows: Vec<_> = (0..8).filter_map(|output| order.row(output, 8)).collect();
        assert_eq!(rows, [0, 1, 4, 5, 2, 6, 3, 7]);
        let order = RowOrder::Grouped { queries: 1, head_dim: 2 };
        let rows: Vec<_> = (0..12).filter_map(|output| order.row(output, 12)).collect();
        assert_eq!(rows, [0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11]);
    }
}
