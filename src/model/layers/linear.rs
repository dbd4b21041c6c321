//! A linear map with packed weights: one projection of the checkpoint, or several that share their input, stacked.

use crate::error::{Error, Result, ResultExt};
use crate::kernels::{MatrixOutput, PackedRows, Workers};
use crate::quant::PackedMatrix;
use crate::weights::WeightScope;

/// `y = W x + b`.
#[derive(Debug)]
pub(in crate::model) struct Linear {
    matrix: PackedMatrix,
    /// `[num_outputs]`
    bias: Option<Vec<f32>>,
}

impl Linear {
    /// Loads projections and stacks their outputs: `parts` are their names and numbers of outputs.
    pub(in crate::model) fn load(
        scope: &WeightScope<'_>,
        workers: &Workers,
        parts: &[(&str, usize)],
        num_inputs: usize,
        has_bias: bool,
    ) -> Result<Self> {
        let mut stored = Vec::with_capacity(parts.len());
        let mut bias = Vec::new();
        for &(name, num_outputs) in parts {
            let part = scope.child(name);
            stored.push(part.matrix("weight", num_outputs, num_inputs)?);
            if has_bias {
                bias.extend(part.vector("bias", num_outputs)?);
            }
        }
        let names = || parts.iter().map(|&(name, _)| name).collect::<Vec<_>>().join(" and ");
        let matrix = PackedMatrix::pack(workers, &stored).context(|| scope.child(&names()).path())?;
        if bias.iter().any(|value| !value.is_finite()) {
            return Err(Error::load("the biases must be finite, but there is a NaN or an infinity")
                .context(scope.child(&names()).path()));
        }
        Ok(Self { matrix, bias: has_bias.then_some(bias) })
    }

    /// `out = W x + b` for each row, or `out += …` if `accumulate`; `out` is `[rows.num_rows(), num_outputs]`.
    pub(in crate::model) fn forward(
        &self,
        workers: &Workers,
        rows: &PackedRows,
        accumulate: bool,
        out: &mut [f32],
    ) {
        self.matrix.matmul(workers, rows, MatrixOutput { bias: self.bias.as_deref(), accumulate }, out);
    }

    /// The number of outputs, those of all parts.
    pub(in crate::model) fn num_outputs(&self) -> usize {
        self.matrix.num_outputs()
    }

    /// The weights of one output, `[num_inputs]`.
    pub(in crate::model) fn row(&self, output: usize, out: &mut [f32]) {
        self.matrix.row(output, out);
    }

    /// The memory it takes, in bytes.
    pub(in crate::model) fn bytes(&self) -> usize {
        self.matrix.bytes()
    }
}
