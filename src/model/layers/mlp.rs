//! The gated feed-forward block: `down(silu(gate(x)) * up(x))`.

use super::linear::Linear;
use super::{LayerParts, Projections};
use crate::error::Result;
use crate::model::Stage;
use crate::model::context::{ForwardContext, sized};
use crate::model::loader::Loader;
use crate::quant::RowOrder;
use crate::weights::ModelConfig;

/// Three projections, the first two of which are one.
#[derive(Debug)]
pub(in crate::model) struct Mlp {
    gate_up: Linear,
    down: Linear,
    intermediate_size: usize,
}

impl Mlp {
    /// Loads the three projections.
    pub(in crate::model) fn load(
        loader: &Loader<'_>,
        config: &ModelConfig,
        parts: LayerParts,
    ) -> Result<Self> {
        let (hidden_size, width) = (config.hidden_size, config.intermediate_size);
        let gate_up: &[_] = match parts.projections {
            Projections::Apart => &[("gate_proj", width), ("up_proj", width)],
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

    /// Adds the block's result for the rows in `scratch.normed` to those in `scratch.hidden`.
    pub(in crate::model) fn forward(&self, context: &mut ForwardContext<'_>) -> Result<()> {
        let (workers, scratch) = (context.workers, &mut *context.scratch);
        let hidden_size = self.down.num_outputs();
        let num_rows = scratch.normed.len() / hidden_size;
        let activated = sized(&mut scratch.activated, num_rows * self.intermediate_size);
        self.gate_up.forward_gated(workers, &scratch.normed, &mut scratch.packed, activated);
        context.timing.lap(Stage::GateUp, || self.gate_up.work(num_rows));
        context.check()?;

        let scratch = &mut *context.scratch;
        self.down.forward(workers, &scratch.activated, &mut scratch.packed, true, &mut scratch.hidden);
        context.timing.lap(Stage::Down, || self.down.work(num_rows));
        context.check()
    }

    /// The memory it takes, in bytes.
    pub(in crate::model) fn bytes(&self) -> usize {
        self.gate_up.bytes() + self.down.bytes()
    }
}
