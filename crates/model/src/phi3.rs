//! Phi-3 and Phi-4 (Abdin et al., arXiv:2404.14219 and 2412.08905), as transformers' `Phi3ForCausalLM`
//! computes them: llamas whose projections are stored fused, whose heads may turn in part, and whose longer
//! contexts are longrope's.

use super::family::Family;
use super::layers::{LayerParts, Projections};
use super::llama::Llama;
use crate::weights::{FamilyConfig, ModelConfig, RopeRule, Switch, WindowRule};

/// The family of Phi-3.
pub(super) struct Phi3;

impl Family for Phi3 {
    const CONFIG: FamilyConfig = FamilyConfig {
        architecture: "Phi3ForCausalLM",
        vocab_size: 32_064,
        hidden_size: 3072,
        intermediate_size: 8192,
        num_hidden_layers: 32,
        num_attention_heads: 32,
        num_key_value_heads: None,
        head_dim: None,
        max_position_embeddings: 4096,
        rms_norm_eps: 1e-5,
        bos_token_id: Some(1),
        eos_token_id: Some(32_000),
        pad_token_id: Some(32_000),
        attention_bias: Switch::Off,
        mlp_bias: Switch::Off,
        window: WindowRule::AllLayers { sliding_window: None },
        rope: RopeRule::Partial { original_max_position_embeddings: 4096 },
    };

    fn layer_parts(config: &ModelConfig) -> LayerParts {
        LayerParts { projections: Projections::Fused, ..Llama::layer_parts(config) }
    }
}
