//! Matrices with the same inputs whose encodings differ, as one: each keeps its own format.

use std::any::TypeId;

use super::{PackedWeights, RowOrder, WeightFormat};
use crate::tensor::{ComputeDtype, StoredMatrix};
use crate::{Gated, Inputs, MatrixOutput, OutputColumns, PackedRows, Work, Workers};
use rsgen_core::Result;

/// The format of stacked parts, each in a format with this arithmetic, or all in `float32` where one has no other.
pub(crate) struct Mixed(pub(crate) ComputeDtype);

impl WeightFormat for Mixed {
    fn name(&self) -> &'static str {
        "mixed"
    }

    fn pack(
        &self,
        workers: &Workers,
        parts: &[StoredMatrix<'_>],
        order: RowOrder,
    ) -> Result<Box<dyn PackedWeights>> {
        let pack = |compute| {
            let pack = |part: &StoredMatrix<'_>| {
                let part = std::slice::from_ref(part);
                <dyn WeightFormat>::keeping(part, order, compute).pack(workers, part, order)
            };
            parts.iter().map(pack).collect::<Result<Vec<_>>>()
        };
        let packed = pack(self.0)?;
        let share_rows = packed.iter().all(|part| part.row_type() == packed[0].row_type());
        Ok(Box::new(Stack(if share_rows { packed } else { pack(ComputeDtype::F32)? })))
    }

    fn work(&self, bytes: u64, operations: u64) -> Work {
        Work { bytes, f32_flops: operations, ..Work::default() }
    }
}

/// Matrices with the same inputs, whose outputs follow each other.
struct Stack(Vec<Box<dyn PackedWeights>>);

impl PackedWeights for Stack {
    fn pack_rows(&self, workers: &Workers, inputs: Inputs<'_>, rows: &mut PackedRows) {
        self.0[0].pack_rows(workers, inputs, rows);
    }

    fn matmul(&self, workers: &Workers, rows: &PackedRows, output: MatrixOutput<'_>, out: &mut [f32]) {
        let whole = OutputColumns { first: 0, row_width: self.num_outputs() };
        let OutputColumns { mut first, row_width } = output.columns.unwrap_or(whole);
        let mut bias = output.bias;
        for part in &self.0 {
            let columns = Some(OutputColumns { first, row_width });
            let (own, rest) = bias.map(|bias| bias.split_at(part.num_outputs())).unzip();
            part.matmul(workers, rows, MatrixOutput { bias: own, columns, ..output }, out);
            (first, bias) = (first + part.num_outputs(), rest);
        }
    }

    fn row_type(&self) -> TypeId {
        self.0[0].row_type()
    }

    fn gated_matmul(
        &self,
        _: &Workers,
        _: &PackedRows,
        _: Gated<'_>,
        _: &dyn PackedWeights,
        _: &mut PackedRows,
    ) {
        unreachable!("gates and ups alternate in one matrix, which is not stacked")
    }

    fn write(&self, _: &mut Vec<u8>) {}

    fn row(&self, mut output: usize, out: &mut [f32]) {
        for part in &self.0 {
            match output.checked_sub(part.num_outputs()) {
                Some(after) => output = after,
                None => return part.row(output, out),
            }
        }
        unreachable!("the output is a row of one of the parts")
    }

    fn num_outputs(&self) -> usize {
        self.0.iter().map(|part| part.num_outputs()).sum()
    }

    fn num_inputs(&self) -> usize {
        self.0[0].num_inputs()
    }

    fn bytes(&self) -> usize {
        self.0.iter().map(|part| part.bytes()).sum()
    }
}
