//! One layer of a decoder: attention, then the MLP, each on a normalized copy of the residual stream.

use super::{Attention, LayerParts, Mlp, RmsNorm};
use crate::batch::Row;
use crate::cache::KvStore;
use crate::context::{ForwardContext, Scratch};
use crate::loader::Loader;
use crate::rows::ActiveRows;
use crate::weights::ModelConfig;
use rsgen_core::error::Result;
use rsgen_core::types::RowOutputs;
use rsgen_kernels::AttentionShape;

/// One decoder layer.
#[derive(Debug)]
pub(crate) struct DecoderLayer {
    input_norm: RmsNorm,
    attention: Attention,
    post_attention_norm: RmsNorm,
    mlp: Mlp,
}

impl DecoderLayer {
    /// Loads layer `layer`.
    pub(crate) fn load(
        loader: &Loader<'_>,
        config: &ModelConfig,
        layer: usize,
        parts: LayerParts,
    ) -> Result<Self> {
        let (hidden_size, eps) = (config.hidden_size, config.rms_norm_eps as f32);
        Ok(Self {
            input_norm: RmsNorm::load(loader, "input_layernorm", hidden_size, eps)?,
            attention: Attention::load(&loader.child("self_attn"), config, layer, parts)?,
            post_attention_norm: RmsNorm::load(loader, "post_attention_layernorm", hidden_size, eps)?,
            mlp: Mlp::load(&loader.child("mlp"), config, parts)?,
        })
    }

    /// Runs the rows in `scratch.hidden` through the layer, whose weights go to `attentions` of
    /// [`ForwardOutput`](crate::ForwardOutput). In the last layer, rows without requested outputs end once
    /// their keys and values are in the cache.
    pub(crate) fn forward(
        &self,
        index: usize,
        rows: &mut ActiveRows<'_>,
        is_last: bool,
        kv: &mut KvStore,
        context: &mut ForwardContext<'_>,
        attentions: &mut [f32],
    ) -> Result<()> {
        self.attention.project(index, rows, &self.input_norm, kv, context)?;
        self.attention.weights(index, rows, kv, context, attentions)?;
        if is_last {
            let (hidden_size, qkv_width) =
                (context.scratch.hidden.len() / rows.len(), self.attention.qkv_width());
            let Scratch { hidden, qkv, .. } = &mut *context.scratch;
            let has_outputs = |row: &Row| {
                let RowOutputs { logits, hidden_states, layer_logits, attentions } = row.outputs;
                logits || attentions || hidden_states.contains(index + 1) || layer_logits.contains(index + 1)
            };
            rows.retain(has_outputs, &mut [(hidden, hidden_size), (qkv, qkv_width)]);
            if rows.is_empty() {
                return Ok(());
            }
        }
        self.attention.attend(index, rows, kv, context)?;
        self.mlp.forward(&self.post_attention_norm, context)
    }

    /// The heads of attention, and its window.
    pub(crate) fn attention_shape(&self) -> AttentionShape {
        self.attention.shape()
    }

    /// The memory that its matrices take, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.attention.bytes() + self.mlp.bytes()
    }
}
