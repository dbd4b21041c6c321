//! A linear layer with packed weights: one projection of the checkpoint, or several stacked ones with the
//! same input.

use crate::loader::{Loader, Part};
use rsgen_core::error::Result;
use rsgen_kernels::quant::{PackedMatrix, RowOrder};
use rsgen_kernels::{Gated, GatedActivation, Inputs, MatrixOutput, PackedRows, Work, Workers};

/// `y = W x + b`.
#[derive(Debug)]
pub(crate) struct Linear {
    matrix: PackedMatrix,
    /// `[num_outputs]`
    bias: Option<Vec<f32>>,
    /// The names of its modules in the checkpoint, each with its rows, and how those become outputs.
    modules: Vec<(String, usize)>,
    order: RowOrder,
}

impl Linear {
    /// Loads projections as one layer.
    pub(crate) fn load(
        loader: &Loader<'_>,
        parts: &[Part],
        order: RowOrder,
        num_inputs: usize,
        has_bias: bool,
    ) -> Result<Self> {
        let matrix = loader.pack(parts, order, num_inputs)?;
        let mut bias = None;
        if has_bias {
            let mut stored = Vec::new();
            for part in parts {
                stored.extend(loader.bias(part)?);
            }
            let of_output = |output| order.row(output, stored.len()).map_or(0.0, |row| stored[row]);
            bias = Some((0..matrix.num_outputs()).map(of_output).collect());
        }
        let name = |part: &Part| loader.full_name(part.weight.trim_end_matches(".weight"));
        let modules = parts.iter().map(|part| (name(part), part.num_outputs)).collect();
        Ok(Self { matrix, bias, modules, order })
    }

    /// The same with these biases.
    pub(crate) fn with_bias(self, bias: Option<Vec<f32>>) -> Self {
        Self { bias, ..self }
    }

    /// `out = W x + b` for each row `x`, or `out += …` if `accumulate`; `out` is `[num_rows, num_outputs]`.
    /// `rows` is memory that calls reuse.
    pub(crate) fn forward<'a>(
        &self,
        workers: &Workers,
        x: impl Into<Inputs<'a>>,
        rows: &mut PackedRows,
        accumulate: bool,
        out: &mut [f32],
    ) {
        let output = MatrixOutput { bias: self.bias.as_deref(), accumulate, columns: None };
        self.matrix.matmul(workers, x.into(), rows, output, out);
    }

    /// [`Linear::forward`] for rows that [`Linear::forward_gated`] gave.
    pub(crate) fn forward_packed(
        &self,
        workers: &Workers,
        rows: &PackedRows,
        accumulate: bool,
        out: &mut [f32],
    ) {
        let output = MatrixOutput { bias: self.bias.as_deref(), accumulate, columns: None };
        self.matrix.matmul_packed(workers, rows, output, out);
    }

    /// `out = act(gate) * up` for each row `x`, of a map whose rows are [`RowOrder::Gated`]; `out` is
    /// `[num_rows, width]`, the inputs of `next`.
    pub(crate) fn forward_gated(
        &self,
        workers: &Workers,
        x: Inputs<'_>,
        rows: &mut PackedRows,
        activation: GatedActivation,
        next: &Self,
        out: &mut PackedRows,
    ) {
        let gated = Gated { activation, bias: self.bias.as_deref(), width: next.num_inputs() };
        self.matrix.gated_matmul(workers, x, rows, gated, &next.matrix, out);
    }

    /// The number of outputs of all parts.
    pub(crate) fn num_outputs(&self) -> usize {
        self.matrix.num_outputs()
    }

    /// The number of inputs.
    pub(crate) fn num_inputs(&self) -> usize {
        self.matrix.num_inputs()
    }

    /// The weights of one output, `[num_inputs]`.
    pub(crate) fn row(&self, output: usize, out: &mut [f32]) {
        self.matrix.row(output, out);
    }

    /// The names of its modules in the checkpoint, each with its rows.
    pub(crate) fn modules(&self) -> &[(String, usize)] {
        &self.modules
    }

    /// How the rows of its modules become outputs.
    pub(crate) fn order(&self) -> RowOrder {
        self.order
    }

    /// The work of [`Linear::forward`] for `num_rows` rows.
    pub(crate) fn work(&self, num_rows: usize) -> Work {
        self.matrix.work(num_rows)
    }

    /// The memory it takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.matrix.bytes()
    }
}
