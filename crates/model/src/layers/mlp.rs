//! The gated feed-forward block: `down(silu(gate(x)) * up(x))`.

use super::linear::Linear;
use super::{LayerParts, Projections, RmsNorm};
use crate::Stage;
use crate::context::{ForwardContext, Scratch};
use crate::loader::Loader;
use crate::weights::ModelConfig;
use rsgen_core::error::Result;
use rsgen_kernels::quant::RowOrder;

/// Gate and up projection, stacked, and the down projection.
#[derive(Debug)]
pub(crate) struct Mlp {
    gate_up: Linear,
    down: Linear,
    intermediate_size: usize,
}

impl Mlp {
    /// Loads the three projections.
    pub(crate) fn load(loader: &Loader<'_>, config: &ModelConfig, parts: LayerParts) -> Result<Self> {
        let (hidden_size, width) = (config.hidden_size, config.intermediate_size);
        let gate_up: &[_] = match parts.projections {
            Projections::Separate => &[("gate_proj", width), ("up_proj", width)],
            Projections::Fused => &[("gate_up_proj", 2 * width)],
        };
        Ok(Self {
            gate_up: Linear::load(loader, gate_up, RowOrder::Gated, hidden_size, parts.mlp_bias)?,
            down: Linear::load(
                loader,
                &[("down_proj", hidden_size)],
                RowOrder::Stacked,
                width,
                parts.mlp_bias,
            )?,
            intermediate_size: width,
        })
    }

    /// Adds the result for the rows in `scratch.hidden`, normalized with `norm`, to these rows.
    pub(crate) fn forward(&self, norm: &RmsNorm, context: &mut ForwardContext<'_>) -> Result<()> {
        let (workers, Scratch { hidden, packed, activated, .. }) = (context.workers, &mut *context.scratch);
        let num_rows = hidden.len() / self.down.num_outputs();
        self.gate_up.forward_gated(workers, norm.of(hidden), packed, self.intermediate_size, activated);
        context.timing.lap(Stage::GateUp, || self.gate_up.work(num_rows));
        context.check()?;

        let Scratch { hidden, activated, .. } = &mut *context.scratch;
        self.down.forward_packed(workers, activated, true, hidden);
        context.timing.lap(Stage::Down, || self.down.work(num_rows));
        context.check()
    }

    /// The memory it takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.gate_up.bytes() + self.down.bytes()
    }
}
