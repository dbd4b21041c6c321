//! One layer of a decoder or an encoder: attention, that to a source, the MLP or the experts, their norms, and the
//! residual stream.

use super::{
    Attention, CrossAttention, Experts, LayerPass, Linear, LowRankPass, Mlp, Norm, Sight, Site, normed,
};
use crate::Stage;
use crate::batch::Row;
use crate::cache::KvStore;
use crate::context::{ForwardContext, Scratch, sized};
use crate::loader::Loader;
use crate::rows::ActiveRows;
use crate::spec::{DecoderSpec, Residual};
use crate::weights::ModelConfig;
use rsgen_core::error::Result;
use rsgen_core::types::RowOutputs;
use rsgen_kernels::{AttentionShape, Work, add_rows};

/// One decoder layer.
#[derive(Debug)]
pub(crate) struct DecoderLayer {
    attention: Attention,
    cross: Option<CrossAttention>,
    feed_forward: FeedForward,
    /// The norms of the inputs of both, and those of their outputs.
    inputs: [Option<Norm>; 2],
    outputs: [Option<Norm>; 2],
    residual: Residual,
    /// The factor of what is added to the residual stream.
    factor: f32,
    hidden_size: usize,
}

#[derive(Debug)]
enum FeedForward {
    Mlp(Mlp),
    Experts(Experts),
}

impl DecoderLayer {
    /// Loads layer `layer` of the list `layers`.
    pub(crate) fn load(
        layers: &Loader<'_>,
        config: &ModelConfig,
        layer: usize,
        spec: &DecoderSpec,
    ) -> Result<Self> {
        let DecoderSpec { names, placement, .. } = spec;
        let hidden_size = config.hidden_size;
        let (loader, first) = (&layers.index(layer), layers.index(0));
        let norms = |[attention, mlp]: [Option<&str>; 2]| -> Result<[Option<Norm>; 2]> {
            let load = |name: Option<&str>| {
                name.map(|name| Norm::load(loader, name, hidden_size, spec.norm)).transpose()
            };
            Ok([load(attention)?, load(mlp)?])
        };
        // In the order of the file, so that the first tensor that is missing is named.
        let inputs = norms(placement.inputs)?;
        let [attention, first] = [loader, &first].map(|layer| layer.child(names.attention));
        let attention = Attention::load(&attention, &first, config, layer, &spec.attention, names.conv1d)?;
        let cross = CrossAttention::load(loader, config, spec)?;
        let feed_forward =
            if let Some(experts) = spec.experts.as_ref().filter(|experts| experts.layers[layer]) {
                FeedForward::Experts(Experts::load(loader, config, experts)?)
            } else {
                let (mlp, width) = (loader.child(names.mlp), config.intermediate_size);
                FeedForward::Mlp(Mlp::load(&mlp, config, spec.mlp, names.conv1d, width)?)
            };
        Ok(Self {
            attention,
            cross,
            feed_forward,
            inputs,
            outputs: norms(placement.outputs)?,
            residual: placement.residual,
            factor: spec.scalings.residual,
            hidden_size,
        })
    }

    /// Runs the rows in `scratch.hidden` through the layer, whose weights go to `attentions` and `cross_attentions`
    /// of [`ForwardOutput`](crate::ForwardOutput). In the last layer of a decoder, rows without requested outputs end once
    /// their keys and values are in the cache.
    pub(crate) fn forward(
        &self,
        pass: LayerPass<'_>,
        rows: &mut ActiveRows<'_>,
        kv: &mut KvStore,
        context: &mut ForwardContext<'_>,
        [attentions, cross_attentions]: [&mut [f32]; 2],
    ) -> Result<()> {
        self.attention.project(pass, rows, self.inputs[0].as_ref(), kv, context)?;
        self.attention.weights(pass, rows, kv, context, attentions)?;
        let next = pass.layer + 1;
        if next == pass.num_layers && matches!(pass.sight, Sight::Past) {
            let qkv_width = self.attention.qkv_width();
            let Scratch { hidden, qkv, .. } = &mut *context.scratch;
            let has_outputs = |row: &Row| {
                let RowOutputs { logits, hidden_states, layer_logits, attentions } = row.outputs;
                logits || attentions || hidden_states.contains(next) || layer_logits.contains(next)
            };
            rows.retain(has_outputs, &mut [(hidden, self.hidden_size), (qkv, qkv_width)]);
            if rows.is_empty() {
                return Ok(());
            }
        }
        match self.residual {
            Residual::Sequential | Residual::NormOfSum => {
                let to_block = self.to_block(0);
                self.attention.attend(pass, rows, kv, to_block, context)?;
                self.finish(0, to_block, context);
                if let Some(cross) = &self.cross {
                    cross.forward(pass, rows, kv, context, cross_attentions)?;
                }
                let to_block = self.to_block(1);
                self.expand(pass, rows, context)?;
                self.contract(pass, rows, [to_block, false], context)?;
                self.finish(1, to_block, context);
            }
            // The MLP takes the rows as they were before attention is added.
            Residual::Parallel => {
                self.attention.attend(pass, rows, kv, true, context)?;
                self.expand(pass, rows, context)?;
                self.add_block(None, context);
                self.contract(pass, rows, [false, false], context)?;
            }
            Residual::ParallelSum => {
                self.attention.attend(pass, rows, kv, true, context)?;
                self.expand(pass, rows, context)?;
                self.contract(pass, rows, [true, true], context)?;
                self.add_block(None, context);
            }
        }
        Ok(())
    }

    /// Whether the output of attention, 0, or of the MLP, 1, changes before it is added.
    fn to_block(&self, block: usize) -> bool {
        self.residual == Residual::Sequential && (self.outputs[block].is_some() || self.factor != 1.0)
    }

    /// Completes the sum of the residual stream and the output of attention, 0, or of the MLP, 1.
    fn finish(&self, block: usize, in_block: bool, context: &mut ForwardContext<'_>) {
        let norm = self.outputs[block].as_ref();
        if in_block {
            self.add_block(norm, context);
        } else if let Some(norm) = norm {
            norm.forward_rows(context.workers, &mut context.scratch.hidden);
        }
    }

    /// Adds `scratch.block` to the residual stream.
    fn add_block(&self, norm: Option<&Norm>, context: &mut ForwardContext<'_>) {
        let Scratch { hidden, block, .. } = &mut *context.scratch;
        add_rows(context.workers, block, self.hidden_size, norm.map(Norm::kernel), self.factor, hidden);
    }

    /// The MLP up to its down projection, or the experts.
    fn expand(
        &self,
        pass: LayerPass<'_>,
        rows: &ActiveRows<'_>,
        context: &mut ForwardContext<'_>,
    ) -> Result<()> {
        let norm = self.inputs[1].as_ref();
        match &self.feed_forward {
            FeedForward::Experts(experts) => experts.forward(norm, context),
            FeedForward::Mlp(up) => {
                let Scratch { hidden, packed, mlp, low_rank, .. } = &mut *context.scratch;
                let adapters = LowRankPass { rows, layer: pass.layer, workers: context.workers };
                if adapters.changes(&[Site::Up, Site::Down]) {
                    up.expand_adapted(&adapters, normed(norm, hidden), packed, mlp, low_rank);
                } else {
                    up.expand(context.workers, normed(norm, hidden), packed, mlp);
                }
                let num_rows = hidden.len() / self.hidden_size;
                context.timing.lap(Stage::GateUp, || up.work(num_rows)[0]);
                context.check()
            }
        }
    }

    /// Adds what follows to the residual stream, or writes it to `scratch.block`, or adds it there.
    fn contract(
        &self,
        pass: LayerPass<'_>,
        rows: &ActiveRows<'_>,
        [to_block, accumulate]: [bool; 2],
        context: &mut ForwardContext<'_>,
    ) -> Result<()> {
        let Scratch { hidden, block, packed, mlp, experts, low_rank, .. } = &mut *context.scratch;
        let num_rows = hidden.len() / self.hidden_size;
        let accumulate = accumulate || !to_block;
        let out = if to_block { sized(block, hidden.len()) } else { &mut hidden[..] };
        match &self.feed_forward {
            FeedForward::Mlp(down) => {
                let adapters = LowRankPass { rows, layer: pass.layer, workers: context.workers };
                if adapters.changes(&[Site::Up, Site::Down]) {
                    down.contract_adapted(&adapters, packed, (mlp, low_rank), accumulate, out);
                } else {
                    down.contract(context.workers, packed, mlp, accumulate, out);
                }
                context.timing.lap(Stage::Down, || down.work(num_rows)[1]);
            }
            FeedForward::Experts(_) => {
                if !accumulate {
                    out.fill(0.0);
                }
                add_rows(context.workers, &mut experts.sums, self.hidden_size, None, 1.0, out);
                context.timing.lap(Stage::Down, Work::default);
            }
        }
        context.check()
    }

    /// The heads of attention, and its window.
    pub(crate) fn attention_shape(&self) -> AttentionShape {
        self.attention.shape()
    }

    /// The maps that adapters can change, in the order of [`Site`].
    pub(crate) fn maps(&self) -> [Option<&Linear>; 4] {
        let [qkv, output] = self.attention.maps().map(Some);
        let [up, down] = match &self.feed_forward {
            FeedForward::Mlp(mlp) => mlp.maps().map(Some),
            FeedForward::Experts(_) => [None; 2],
        };
        [qkv, output, up, down]
    }

    /// The memory that its matrices take, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.cross.as_ref().map_or(0, CrossAttention::bytes)
            + self.attention.bytes()
            + match &self.feed_forward {
                FeedForward::Mlp(mlp) => mlp.bytes(),
                FeedForward::Experts(experts) => experts.bytes(),
            }
    }

    /// What a pass over one token reads of them, in bytes.
    pub(crate) fn bytes_per_token(&self) -> usize {
        match &self.feed_forward {
            FeedForward::Mlp(_) => self.bytes(),
            FeedForward::Experts(experts) => self.attention.bytes() + experts.bytes_per_token(),
        }
    }
}
