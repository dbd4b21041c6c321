//! A packed weight matrix of any format, and the packing that all panel formats share.

use std::any::TypeId;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::{PackedWeights, RowOrder, WeightFormat};
use crate::matmul::{PackRows, PanelLayout, WeightStep};
use crate::tensor::{ComputeDtype, Encoding, StoredBytes, StoredMatrix, WeightType, not_finite};
use crate::{
    Gated, Inputs, MatrixOutput, PANEL_ROWS, PackedRows, PanelFormat, PanelMatrix, Work, Workers,
    gated_matmul, matmul,
};
use rsgen_core::Result;

/// A weight matrix, ready to be multiplied with.
#[derive(Clone)]
pub struct PackedMatrix {
    weights: Arc<dyn PackedWeights>,
    format: &'static dyn WeightFormat,
}

impl PackedMatrix {
    /// Packs the rows of all `parts` as one matrix of type `weights`. Without it they keep their type, or
    /// become `float32` where the types differ; blocks keep theirs, but for gates and ups of two types. For `bfloat16` arithmetic floating-point weights are always
    /// rounded to `bfloat16`.
    ///
    /// # Errors
    /// When a weight is NaN or infinite.
    ///
    /// # Panics
    /// When there are no parts, or when they differ in their number of columns.
    pub fn pack(
        workers: &Workers,
        parts: &[StoredMatrix<'_>],
        order: RowOrder,
        weights: Option<WeightType>,
        compute: ComputeDtype,
    ) -> Result<Self> {
        assert!(
            parts.windows(2).all(|pair| pair[0].num_columns == pair[1].num_columns),
            "rows of one length"
        );
        let format = match weights {
            Some(weights) => <dyn WeightFormat>::choose(weights, compute),
            None => <dyn WeightFormat>::keeping(parts, order, compute),
        };
        Ok(Self { weights: format.pack(workers, parts, order)?.into(), format })
    }

    /// The shape of a quantized matrix in a packed file, in bytes.
    pub fn file_shape(kind: WeightType, num_outputs: usize, num_inputs: usize) -> Option<[usize; 3]> {
        <dyn WeightFormat>::choose(kind, ComputeDtype::F32).file_shape(num_outputs, num_inputs)
    }

    /// The type and the number of weights, padding included, of a packed matrix of this shape.
    pub fn weights_in_file(shape: &[usize]) -> Option<(WeightType, u64)> {
        // A multiple of the inputs of every group.
        const MANY_INPUTS: usize = 1 << 12;
        let &[panels, groups, bytes] = shape else { return None };
        [WeightType::Int8, WeightType::Int4].into_iter().find_map(|kind| {
            let [_, num_groups, group_bytes] = Self::file_shape(kind, PANEL_ROWS, MANY_INPUTS)?;
            let inputs = groups * MANY_INPUTS / num_groups;
            (group_bytes == bytes).then_some((kind, (panels * PANEL_ROWS * inputs) as u64))
        })
    }

    /// The quantized matrix that a packed file holds, in bytes of [`PackedMatrix::file_shape`].
    ///
    /// # Errors
    /// When it cannot be read, or is no such matrix; `Cancelled`.
    pub fn read(
        workers: &Workers,
        kind: WeightType,
        num_outputs: usize,
        num_inputs: usize,
        bytes: StoredBytes<'_>,
        cancelled: &AtomicBool,
    ) -> Result<Self> {
        let format = <dyn WeightFormat>::choose(kind, ComputeDtype::F32);
        let weights = format.read(workers, num_outputs, num_inputs, bytes, cancelled)?.into();
        Ok(Self { weights, format })
    }

    /// Its shape in a packed file, in bytes; `None` if files hold none of its format.
    pub fn packed_shape(&self) -> Option<[usize; 3]> {
        self.format.file_shape(self.num_outputs(), self.num_inputs())
    }

    /// The matrix as a packed file holds it.
    pub fn to_file(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.weights.write(&mut bytes);
        bytes
    }

    /// Multiplies rows with the matrix; `out` is `[num_rows, num_outputs]`. `rows` is scratch memory that
    /// calls reuse.
    pub fn matmul(
        &self,
        workers: &Workers,
        inputs: Inputs<'_>,
        rows: &mut PackedRows,
        output: MatrixOutput<'_>,
        out: &mut [f32],
    ) {
        self.weights.pack_rows(workers, inputs, rows);
        self.weights.matmul(workers, rows, output, out);
    }

    /// [`PackedMatrix::matmul`] with rows that [`PackedMatrix::gated_matmul`] has packed for it.
    pub fn matmul_packed(
        &self,
        workers: &Workers,
        rows: &PackedRows,
        output: MatrixOutput<'_>,
        out: &mut [f32],
    ) {
        self.weights.matmul(workers, rows, output, out);
    }

    /// `out = act(gate) * up`, `[num_rows, width]`, of a matrix whose rows are [`RowOrder::Gated`], packed for `next`.
    /// `rows` is scratch memory that calls reuse.
    pub fn gated_matmul(
        &self,
        workers: &Workers,
        inputs: Inputs<'_>,
        rows: &mut PackedRows,
        gated: Gated<'_>,
        next: &PackedMatrix,
        out: &mut PackedRows,
    ) {
        self.weights.pack_rows(workers, inputs, rows);
        self.weights.gated_matmul(workers, rows, gated, &*next.weights, out);
    }

    /// Unpacks the weights of one output into `out`, `[num_inputs]`.
    pub fn row(&self, output: usize, out: &mut [f32]) {
        self.weights.row(output, out);
    }

    /// The rows of the matrix.
    pub fn num_outputs(&self) -> usize {
        self.weights.num_outputs()
    }

    /// The columns of the matrix.
    pub fn num_inputs(&self) -> usize {
        self.weights.num_inputs()
    }

    /// The memory it takes, in bytes.
    pub fn bytes(&self) -> usize {
        self.weights.bytes()
    }

    /// The arithmetic and memory traffic of multiplying `num_rows` rows.
    pub fn work(&self, num_rows: usize) -> Work {
        let bytes = self.bytes() as u64;
        self.format.work(bytes, 2 * (num_rows * self.num_inputs() * self.num_outputs()) as u64)
    }
}

impl fmt::Debug for PackedMatrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PackedMatrix({} x {}, {})", self.num_outputs(), self.num_inputs(), self.format.name())
    }
}

impl<F: PanelFormat> PackedWeights for PanelMatrix<F> {
    fn pack_rows(&self, workers: &Workers, inputs: Inputs<'_>, rows: &mut PackedRows) {
        rows.pack::<F::Row>(workers, inputs, PanelMatrix::num_inputs(self));
    }

    fn matmul(&self, workers: &Workers, rows: &PackedRows, output: MatrixOutput<'_>, out: &mut [f32]) {
        matmul(workers, rows, self, output, out);
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
        let pack = |workers: &Workers, inputs: Inputs<'_>, rows: &mut PackedRows| {
            next.pack_rows(workers, inputs, rows);
        };
        let pack: Option<&PackRows<'_>> = if next.row_type() == self.row_type() { None } else { Some(&pack) };
        gated_matmul(workers, rows, self, gated, pack, out);
    }

    fn write(&self, out: &mut Vec<u8>) {
        PanelMatrix::write(self, out);
    }

    fn row(&self, output: usize, out: &mut [f32]) {
        PanelMatrix::row(self, output, out);
    }

    fn num_outputs(&self) -> usize {
        PanelMatrix::num_outputs(self)
    }

    fn num_inputs(&self) -> usize {
        PanelMatrix::num_inputs(self)
    }

    fn bytes(&self) -> usize {
        PanelMatrix::bytes(self)
    }
}

/// Packs stored rows into panels of a format that keeps what is encoded so.
pub(crate) fn pack_panels<F: PanelLayout>(
    workers: &Workers,
    parts: &[StoredMatrix<'_>],
    order: RowOrder,
    encoding: Encoding,
) -> Result<PanelMatrix<F>> {
    let num_rows = parts.iter().map(|part| part.num_rows).sum();
    let (num_outputs, num_inputs) = (order.num_outputs(num_rows), parts[0].num_columns);
    let row_bytes = F::Weights::stored_bytes(num_inputs);
    let read = |outputs: Range<usize>, bytes: &mut [u8]| {
        read_rows(parts, order, encoding, row_bytes, outputs, bytes)
    };
    let packed = PanelMatrix::<F>::pack(workers, num_outputs, num_inputs, read)?;
    packed.ok_or_else(not_finite)
}

/// Reads the rows of some outputs, `[outputs, row_bytes]`; zeros for padding.
pub(crate) fn read_rows(
    parts: &[StoredMatrix<'_>],
    order: RowOrder,
    encoding: Encoding,
    row_bytes: usize,
    outputs: Range<usize>,
    mut bytes: &mut [u8],
) -> Result<()> {
    let num_rows = parts.iter().map(|part| part.num_rows).sum();
    let num_inputs = parts[0].num_columns;
    // The part and row of an output; `None` for padding.
    let source = |output: usize| {
        let mut row = order.row(output, num_rows)?;
        for (index, part) in parts.iter().enumerate() {
            if row < part.num_rows {
                return Some((index, row));
            }
            row -= part.num_rows;
        }
        unreachable!("the output is a row of one of the parts")
    };
    // Consecutive rows of a part are read at once.
    let mut output = outputs.start;
    while output < outputs.end {
        let first = source(output);
        let follows = |source: Option<(usize, usize)>, by: usize| match (first, source) {
            (Some((part, row)), Some(source)) => source == (part, row + by),
            (None, None) => true,
            _ => false,
        };
        let len = (1..outputs.end - output)
            .find(|&by| !follows(source(output + by), by))
            .unwrap_or(outputs.end - output);
        let (now, rest) = bytes.split_at_mut(len * row_bytes);
        match first {
            Some((part, row)) => {
                parts[part].read(row * num_inputs..(row + len) * num_inputs, encoding, now)?;
            }
            None => now.fill(0),
        }
        (output, bytes) = (output + len, rest);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;
    use crate::tensor::DType;

    fn stored(dtype: DType, rows: usize, columns: usize, bytes: &[u8]) -> StoredMatrix<'_> {
        StoredMatrix {
            encoding: dtype.into(),
            num_rows: rows,
            num_columns: columns,
            bytes: bytes.into(),
            cancelled: None,
        }
    }

    #[test]
    fn parts_become_the_rows_of_one_matrix() {
        let workers = Workers::new(2, Isa::select().unwrap()).unwrap();
        let a: Vec<u8> = (0..12).flat_map(|i| (i as f32).to_le_bytes()).collect();
        let b: Vec<u8> =
            (100..106).flat_map(|i| half::bf16::from_f32(i as f32).to_bits().to_le_bytes()).collect();
        let parts = [stored(DType::F32, 4, 3, &a), stored(DType::Bf16, 2, 3, &b)];
        let packed =
            PackedMatrix::pack(&workers, &parts, RowOrder::Stacked, None, ComputeDtype::F32).unwrap();
        assert_eq!((packed.num_outputs(), packed.num_inputs()), (6, 3));
        assert!(format!("{packed:?}").contains("float32"));
        let mut row = [0.0; 3];
        packed.row(5, &mut row);
        assert_eq!(row, [103.0, 104.0, 105.0]);
        packed.row(1, &mut row);
        assert_eq!(row, [3.0, 4.0, 5.0]);
        assert_eq!(packed.bytes(), 32 * 4 * 4);
    }

    #[test]
    fn rows_that_are_kept_as_stored_equal_those_that_are_converted() {
        let workers = Workers::new(2, Isa::select().unwrap()).unwrap();
        for dtype in [DType::F32, DType::Bf16, DType::F16] {
            for (rows, columns) in [(1, 1), (5, 7), (33, 4), (70, 31)] {
                let values = (0..rows * columns).map(|i| (i as f32 * 0.37).sin());
                let bytes: Vec<u8> = values.flat_map(|value| dtype.to_le_bytes(value)).collect();
                let stored = stored(dtype, rows, columns, &bytes);
                let (mut as_stored, mut converted) = (vec![0.0; columns], vec![0.0; columns]);
                let packed =
                    PackedMatrix::pack(&workers, &[stored], RowOrder::Stacked, None, ComputeDtype::F32)
                        .unwrap();
                let wide = PackedMatrix::pack(
                    &workers,
                    &[stored],
                    RowOrder::Stacked,
                    Some(DType::F32.into()),
                    ComputeDtype::F32,
                )
                .unwrap();
                for row in 0..rows {
                    packed.row(row, &mut as_stored);
                    wide.row(row, &mut converted);
                    assert_eq!(as_stored, converted);
                    assert!(
                        dtype.to_f32(&bytes).skip(row * columns).take(columns).eq(converted.iter().copied())
                    );
                }
            }
        }
    }

    #[test]
    fn for_bfloat16_arithmetic_weights_of_any_type_are_rounded() {
        let workers = Workers::new(1, Isa::select().unwrap()).unwrap();
        let (x, mut rows) = ([1.0 + 1.0 / 512.0, 3.0], PackedRows::default());
        for dtype in [DType::F32, DType::Bf16, DType::F16] {
            let bytes: Vec<u8> =
                [1.0 + 1.0 / 512.0, 2.0].into_iter().flat_map(|w| dtype.to_le_bytes(w)).collect();
            let stored = [stored(dtype, 1, 2, &bytes)];
            let packed =
                PackedMatrix::pack(&workers, &stored, RowOrder::Stacked, None, ComputeDtype::Bf16).unwrap();
            assert_eq!(packed.bytes(), 32 * 2 * 2);
            let mut out = [0.0];
            packed.matmul(&workers, x[..].into(), &mut rows, MatrixOutput::default(), &mut out);
            assert_eq!(out, [7.0], "one and a bit is one in bfloat16");
        }
    }

    #[test]
    fn a_weight_that_is_not_finite_is_refused() {
        let workers = Workers::new(1, Isa::select().unwrap()).unwrap();
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for (dtype, kept) in
                [(DType::F32, None), (DType::Bf16, None), (DType::F16, Some(DType::Bf16.into()))]
            {
                let bytes: Vec<u8> =
                    [1.0, bad, 2.0].into_iter().flat_map(|value| dtype.to_le_bytes(value)).collect();
                for compute in [ComputeDtype::F32, ComputeDtype::Bf16] {
                    let stored = [stored(dtype, 1, 3, &bytes)];
                    let error =
                        PackedMatrix::pack(&workers, &stored, RowOrder::Stacked, kept, compute).unwrap_err();
                    assert!(error.to_string().contains("finite"), "{error}");
                }
            }
        }
    }
}
