//! Qwen2 and Qwen2.5 (Yang et al., arXiv:2407.10671), as transformers' `Qwen2ForCausalLM` computes them:
//! llamas with biases on queries, keys and values alone, some of whose layers may see a sliding window.

use super::family::Family;
use super::layers::LayerParts;
use super::llama::Llama;
use crate::weights::{FamilyConfig, ModelConfig, RopeRule, Switch, WindowRule};

/// The family of Qwen2.
pub(super) struct Qwen2;

impl Family for Qwen2 {
    const CONFIG: FamilyConfig = FamilyConfig {
        architecture: "Qwen2ForCausalLM",
        vocab_size: 151_936,
        hidden_size: 4096,
        intermediate_size: 22_016,
        num_hidden_layers: 32,
        num_attention_heads: 32,
        num_key_value_heads: Some(32),
        head_dim: None,
        max_position_embeddings: 32_768,
        rms_norm_eps: 1e-6,
        bos_token_id: None,
        eos_token_id: None,
        pad_token_id: None,
        attention_bias: Switch::On,
        mlp_bias: Switch::Off,
        window: WindowRule::SomeLayers { sliding_window: 4096, max_window_layers: 28 },
        rope: RopeRule::WholeHead,
    };

    fn layer_parts(config: &ModelConfig) -> LayerParts {
        LayerParts { output_bias: false, ..Llama::layer_parts(config) }
    }
}
