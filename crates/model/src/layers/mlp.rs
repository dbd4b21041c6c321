//! The feed-forward block: `down(act(gate(x)) * up(x))`, or `down(act(up(x)))`.

use super::linear::Linear;
use super::{LowRankMemory, LowRankPass, Site};
use crate::loader::{Loader, Part};
use crate::spec::{MlpLayout, MlpSpec, gated_activation, plain_activation};
use crate::weights::ModelConfig;
use rsgen_core::error::{Error, Result};
use rsgen_kernels::quant::RowOrder;
use rsgen_kernels::{
    Activation, GatedActivation, Inputs, PackedRows, Prologue, Work, Workers, gate_products,
};

/// The projections of an MLP.
#[derive(Debug)]
pub(crate) struct Mlp {
    /// Gates and ups, or ups alone.
    up: Linear,
    down: Linear,
    activation: MlpActivation,
}

#[derive(Debug, Clone, Copy)]
enum MlpActivation {
    Gated(GatedActivation),
    Plain(Activation),
}

/// The activations of an MLP; passes reuse their memory.
#[derive(Default)]
pub(crate) struct MlpMemory {
    /// Of a gated MLP, as inputs of the down projection.
    activated: PackedRows,
    /// Of another one, or with adapters, before the activation.
    wide: Vec<f32>,
    /// Of a gated MLP with adapters.
    gated: Vec<f32>,
}

impl Mlp {
    /// Loads an MLP of `width`, with the activation of the configuration.
    pub(crate) fn load(
        loader: &Loader<'_>,
        config: &ModelConfig,
        spec: MlpSpec,
        is_transposed: bool,
        width: usize,
    ) -> Result<Self> {
        let part = |name: &str, num_outputs| Part { is_transposed, ..Part::new(name, num_outputs) };
        let (parts, activation) = match spec.layout {
            MlpLayout::Gated { gate, up } => {
                (vec![part(gate, width), part(up, width)], MlpActivation::Gated(gated_activation(config)?))
            }
            MlpLayout::GatedStacked { gate_up } => {
                (vec![part(gate_up, 2 * width)], MlpActivation::Gated(gated_activation(config)?))
            }
            MlpLayout::Plain { up } => {
                (vec![part(up, width)], MlpActivation::Plain(plain_activation(config)?))
            }
            MlpLayout::Xielu { up } => (vec![part(up, width)], MlpActivation::Plain(xielu(loader)?)),
        };
        let order = match activation {
            MlpActivation::Gated(_) => RowOrder::Gated,
            MlpActivation::Plain(_) => RowOrder::Stacked,
        };
        let down = part(spec.down, config.hidden_size);
        Self::of_parts(loader, &parts, order, &down, activation, spec.bias)
    }

    /// Loads the gated MLP of an expert, whose parts are given.
    pub(crate) fn load_gated(
        loader: &Loader<'_>,
        gate_up: &[Part],
        order: RowOrder,
        down: &Part,
        activation: GatedActivation,
        bias: bool,
    ) -> Result<Self> {
        Self::of_parts(loader, gate_up, order, down, MlpActivation::Gated(activation), bias)
    }

    fn of_parts(
        loader: &Loader<'_>,
        up: &[Part],
        order: RowOrder,
        down: &Part,
        activation: MlpActivation,
        bias: bool,
    ) -> Result<Self> {
        let rows: usize = up.iter().map(|part| part.num_outputs).sum();
        let width = if order == RowOrder::Stacked { rows } else { rows / 2 };
        let hidden_size = down.num_outputs;
        Ok(Self {
            up: Linear::load(loader, up, order, hidden_size, bias)?,
            down: Linear::load(loader, std::slice::from_ref(down), RowOrder::Stacked, width, bias)?,
            activation,
        })
    }

    /// Computes what the down projection takes, into `memory`. `packed` is memory that calls reuse.
    pub(crate) fn expand(
        &self,
        workers: &Workers,
        x: Inputs<'_>,
        packed: &mut PackedRows,
        memory: &mut MlpMemory,
    ) {
        match self.activation {
            MlpActivation::Gated(activation) => {
                self.up.forward_gated(workers, x, packed, activation, &self.down, &mut memory.activated);
            }
            MlpActivation::Plain(_) => {
                let num_rows = x.values.len() / self.up.num_inputs();
                memory.wide.resize(num_rows * self.up.num_outputs(), 0.0);
                self.up.forward(workers, x, packed, false, &mut memory.wide);
            }
        }
    }

    /// Writes the result to `out`, `[num_rows, hidden_size]`, or adds it if `accumulate`.
    pub(crate) fn contract(
        &self,
        workers: &Workers,
        packed: &mut PackedRows,
        memory: &MlpMemory,
        accumulate: bool,
        out: &mut [f32],
    ) {
        match self.activation {
            MlpActivation::Gated(_) => {
                self.down.forward_packed(workers, &memory.activated, accumulate, out);
            }
            MlpActivation::Plain(activation) => {
                let x = Inputs { values: &memory.wide, prologue: Prologue::Activation(activation) };
                self.down.forward(workers, x, packed, accumulate, out);
            }
        }
    }

    /// [`Mlp::expand`] for rows of which some have adapters; [`Mlp::contract_adapted`] follows. The other rows get the same
    /// bits.
    pub(crate) fn expand_adapted(
        &self,
        adapters: &LowRankPass<'_>,
        x: Inputs<'_>,
        packed: &mut PackedRows,
        memory: &mut MlpMemory,
        low_rank: &mut LowRankMemory,
    ) {
        let num_rows = x.values.len() / self.up.num_inputs();
        memory.wide.resize(num_rows * self.up.num_outputs(), 0.0);
        self.up.forward(adapters.workers, x, packed, false, &mut memory.wide);
        adapters.add(Site::Up, x, low_rank, &mut memory.wide);
        if let MlpActivation::Gated(activation) = self.activation {
            let width = self.down.num_inputs();
            memory.gated.resize(num_rows * width, 0.0);
            gate_products(adapters.workers, &memory.wide, activation, width, &mut memory.gated);
        }
    }

    /// [`Mlp::contract`] after [`Mlp::expand_adapted`].
    pub(crate) fn contract_adapted(
        &self,
        adapters: &LowRankPass<'_>,
        packed: &mut PackedRows,
        (memory, low_rank): (&MlpMemory, &mut LowRankMemory),
        accumulate: bool,
        out: &mut [f32],
    ) {
        let x = match self.activation {
            MlpActivation::Gated(_) => memory.gated[..].into(),
            MlpActivation::Plain(activation) => {
                Inputs { values: &memory.wide, prologue: Prologue::Activation(activation) }
            }
        };
        self.down.forward(adapters.workers, x, packed, accumulate, out);
        adapters.add(Site::Down, x, low_rank, out);
    }

    /// The maps before and after the activation.
    pub(crate) fn maps(&self) -> [&Linear; 2] {
        [&self.up, &self.down]
    }

    /// The work of [`Mlp::expand`] and of [`Mlp::contract`].
    pub(crate) fn work(&self, num_rows: usize) -> [Work; 2] {
        [self.up.work(num_rows), self.down.work(num_rows)]
    }

    /// The memory it takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.up.bytes() + self.down.bytes()
    }
}

/// The activation with the learned factors of this scope, as transformers computes them in float32.
///
/// # Errors
/// `Load` for other constants than xIELU's; published files have these as tensors.
fn xielu(loader: &Loader<'_>) -> Result<Activation> {
    const BETA: f32 = 0.5;
    let scope = loader.child("act_fn");
    for (name, expected, shown) in [("beta", BETA, "0.5"), ("eps", -1e-6, "-1e-6")] {
        if !scope.contains(name) {
            continue;
        }
        // Stored as a scalar or as a list of one, rounded to the file's numbers.
        let stored = scope.floats(name, &[]).or_else(|_| scope.floats(name, &[1]))?[0];
        if (stored - expected).abs() > expected.abs() / 128.0 {
            return Err(Error::load(format!(
                "act_fn.{name} of xIELU must be {shown}, as in all published models, got {stored}"
            )));
        }
    }
    let factor = |name: &str| -> Result<f32> {
        let stored = scope.floats(name, &[1])?[0];
        Ok(if stored > 20.0 { stored } else { stored.exp().ln_1p() })
    };
    Ok(Activation::Xielu { positive: factor("alpha_p")?, negative: BETA + factor("alpha_n")? })
}
