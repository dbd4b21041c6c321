//! Llama (Touvron et al., arXiv:2302.13971 and 2307.09288), as transformers' `LlamaForCausalLM` computes it.

use super::family::Family;
use super::layers::{LayerParts, Projections};
use crate::weights::{FamilyConfig, ModelConfig, RopeRule, Switch, WindowRule};

/// The family that the others are described by.
pub(super) struct Llama;

impl Family for Llama {
    const CONFIG: FamilyConfig = FamilyConfig {
        architecture: "LlamaForCausalLM",
        vocab_size: 32_000,
        hidden_size: 4096,
        intermediate_size: 11_008,
        num_hidden_layers: 32,
        num_attention_heads: 32,
        num_key_value_heads: None,
        head_dim: None,
        max_position_embeddings: 2048,
        rms_norm_eps: 1e-6,
        bos_token_id: Some(1),
        eos_token_id: Some(2),
        pad_token_id: None,
        attention_bias: Switch::Configured,
        mlp_bias: Switch::Configured,
        window: WindowRule::Never,
        rope: RopeRule::WholeHead,
    };

    fn layer_parts(config: &ModelConfig) -> LayerParts {
        LayerParts {
            projections: Projections::Separate,
            qkv_bias: config.attention_bias,
            output_bias: config.attention_bias,
            head_norms: false,
            mlp_bias: config.mlp_bias,
        }
    }
}
