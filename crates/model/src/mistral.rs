//! Mistral (Jiang et al., arXiv:2310.06825), as transformers' `MistralForCausalLM` computes it: a llama
//! without biases, whose layers may all see a sliding window.

use super::family::Family;
use super::layers::LayerParts;
use super::llama::Llama;
use crate::weights::{FamilyConfig, ModelConfig, RopeRule, Switch, WindowRule};

/// The family of Mistral 7B.
pub(super) struct Mistral;

impl Family for Mistral {
    const CONFIG: FamilyConfig = FamilyConfig {
        architecture: "MistralForCausalLM",
        vocab_size: 32_000,
        hidden_size: 4096,
        intermediate_size: 14_336,
        num_hidden_layers: 32,
        num_attention_heads: 32,
        num_key_value_heads: Some(8),
        head_dim: None,
        max_position_embeddings: 131_072,
        rms_norm_eps: 1e-6,
        bos_token_id: Some(1),
        eos_token_id: Some(2),
        pad_token_id: None,
        attention_bias: Switch::Off,
        mlp_bias: Switch::Off,
        window: WindowRule::AllLayers { sliding_window: Some(4096) },
        rope: RopeRule::WholeHead,
    };

    fn layer_parts(config: &ModelConfig) -> LayerParts {
        Llama::layer_parts(config)
    }
}
