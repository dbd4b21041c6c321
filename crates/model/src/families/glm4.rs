//! GLM-4-0414 (Zhipu, 2025): a GLM-4 with norms on both sides of a block.

use super::Family;
use crate::spec::{DecoderSpec, Placement, Residual};
use crate::weights::{FamilyConfig, ModelConfig, RopeRule, Switch};
use rsgen_core::error::Result;

/// The family.
pub(super) const GLM4: Family = Family {
    config: FamilyConfig {
        architecture: "Glm4ForCausalLM",
        model_type: "glm4",
        defaults: r#"{
            "vocab_size": 151552, "intermediate_size": 13696, "num_hidden_layers": 40, "num_key_value_heads": 2,
            "head_dim": 128, "attention_bias": true, "max_position_embeddings": 131072, "rms_norm_eps": 1.5625e-7,
            "partial_rotary_factor": 0.5, "eos_token_id": [151329, 151336, 151338], "pad_token_id": 151329
        }"#,
        mlp_bias: Switch::Off,
        rope: RopeRule::Part,
        ..FamilyConfig::LLAMA
    },
    spec,
};

fn spec(config: &ModelConfig) -> Result<DecoderSpec> {
    let placement = Placement {
        inputs: [Some("input_layernorm"), Some("post_attention_layernorm")],
        outputs: [Some("post_self_attn_layernorm"), Some("post_mlp_layernorm")],
        residual: Residual::Sequential,
    };
    Ok(DecoderSpec { placement, ..(super::glm::GLM.spec)(config)? })
}
