//! The gated feed-forward block: `down(silu(gate(x)) * up(x))`.

use super::linear::Linear;
use super::{LayerParts, Projections};
use crate::error::Result;
use crate::kernels::{Work, silu_mul};
use crate::model::Stage;
use crate::model::context::{ForwardContext, sized};
use crate::model::loader::Loader;
use crate::weights::ModelConfig;

/// Three projections, the first two stacked.
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
            gate_up: Linear::load(loader, gate_up, hidden_size, parts.mlp_bias)?,
            down: Linear::load(loader, &[("down_proj", hidden_size)], width, parts.mlp_bias)?,
            intermediate_size: width,
        })
    }

    /// Adds the block's result for the rows in `scratch.normed` to those in `scratch.hidden`.
    pub(in crate::model) fn forward(&self, context: &mut ForwardContext<'_>) -> Result<()> {
        let (workers, scratch) = (context.workers, &mut *context.scratch);
        let hidden_size = self.down.num_outputs();
        let num_rows = scratch.normed.len() / hidden_size;
        let width = self.intermediate_size;
        let gate_up = sized(&mut scratch.gate_up, num_rows * 2 * width);
        self.gate_up.forward(workers, &scratch.normed, &mut scratch.packed, false, gate_up);
        context.timing.lap(Stage::GateUp, || self.gate_up.work(num_rows));
        context.check()?;

        let scratch = &mut *context.scratch;
        let gate_up = &scratch.gate_up;
        let activated = sized(&mut scratch.activated, num_rows * width);
        let isa = workers.isa();
        if num_rows == 1 {
            silu_mul(isa, gate_up, width, activated);
        } else {
            workers.for_each_chunk(activated, width, |row, out| {
                silu_mul(isa, &gate_up[row * 2 * width..(row + 1) * 2 * width], width, out);
            });
        }
        context.timing.lap(Stage::Activation, Work::default);
        self.down.forward(workers, &scratch.activated, &mut scratch.packed, true, &mut scratch.hidden);
        context.timing.lap(Stage::Down, || self.down.work(num_rows));
        context.check()
    }

    /// The memory it takes, in bytes.
    pub(in crate::model) fn bytes(&self) -> usize {
        self.gate_up.bytes() + self.down.bytes()
    }
}
