//! A linear map with packed weights: one projection of the checkpoint, or several that share their input, stacked.

use crate::error::Result;
use crate::kernels::{MatrixOutput, PackedRows, Work, Workers};
use crate::model::loader::Loader;
use crate::quant::{PackedMatrix, RowOrder};

/// `y = W x + b`.
#[derive(Debug)]
pub(in crate::model) struct Linear {
    matrix: PackedMatrix,
    /// `[num_outputs]`
    bias: Option<Vec<f32>>,
}

impl Linear {
    /// Loads projections and makes one of them: `parts` are their names and numbers of outputs.
    pub(in crate::model) fn load(
        loader: &Loader<'_>,
        parts: &[(&str, usize)],
        order: RowOrder,
        num_inputs: usize,
        has_bias: bool,
    ) -> Result<Self> {
        let matrix = loader.pack(parts, order, num_inputs)?;
        let mut bias = None;
        if has_bias {
            let mut stored = Vec::new();
            for &(name, num_outputs) in parts {
                stored.extend(loader.child(name).vector("bias", num_outputs)?);
            }
            let of_output = |output| order.row(output, stored.len()).map_or(0.0, |row| stored[row]);
            bias = Some((0..matrix.num_outputs()).map(of_output).collect());
        }
        Ok(Self { matrix, bias })
    }

    /// `out = W x + b` for each row `x`, `[num_rows, num_inputs]`, or `out += …` if `accumulate`; `out` is
    /// `[num_rows, num_outputs]`. `rows` is memory that calls reuse.
    pub(in crate::model) fn forward(
        &self,
        workers: &Workers,
        x: &[f32],
        rows: &mut PackedRows,
        accumulate: bool,
        out: &mut [f32],
    ) {
        let output = MatrixOutput { bias: self.bias.as_deref(), accumulate, gated: false };
        self.matrix.matmul(workers, x, rows, output, out);
    }

    /// `out = silu(gate) * up` for each row `x`, of a map whose rows are [`RowOrder::Gated`]; `out` is
    /// `[num_rows, width]`, where each part has `width` outputs.
    pub(in crate::model) fn forward_gated(
        &self,
        workers: &Workers,
        x: &[f32],
        rows: &mut PackedRows,
        out: &mut [f32],
    ) {
        let output = MatrixOutput { bias: self.bias.as_deref(), accumulate: false, gated: true };
        self.matrix.matmul(workers, x, rows, output, out);
    }

    /// The number of outputs, those of all parts.
    pub(in crate::model) fn num_outputs(&self) -> usize {
        self.matrix.num_outputs()
    }

    /// The weights of one output, `[num_inputs]`.
    pub(in crate::model) fn row(&self, output: usize, out: &mut [f32]) {
        self.matrix.row(output, out);
    }

    /// What [`Linear::forward`] takes for so many rows.
    pub(in crate::model) fn work(&self, num_rows: usize) -> Work {
        self.matrix.work(num_rows)
    }

    /// The memory it takes, in bytes.
    pub(in crate::model) fn bytes(&self) -> usize {
        self.matrix.bytes()
    }
}
