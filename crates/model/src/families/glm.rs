//! GLM-4 9B (GLM Team, arXiv:2406.12793): a llama whose heads turn in part, in pairs of neighbours.

use super::Family;
use crate::spec::{AttentionSpec, DecoderSpec, MlpLayout, MlpSpec, RotarySpec};
use crate::weights::{FamilyConfig, ModelConfig, RopeRule, Switch};
use rsgen_core::error::Result;
use rsgen_kernels::RotaryPairs;

/// The family.
pub(super) const GLM: Family = Family {
    config: FamilyConfig {
        architecture: "GlmForCausalLM",
        model_type: "glm",
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
    let llama = DecoderSpec::llama(config);
    let layout = MlpLayout::GatedStacked { gate_up: "gate_up_proj" };
    Ok(DecoderSpec {
        rotary: RotarySpec::of(config, RotaryPairs::Interleaved),
        attention: AttentionSpec { output_bias: false, ..llama.attention },
        mlp: MlpSpec { layout, ..llama.mlp },
        ..llama
    })
}
