//! Apertus (Swiss AI, arXiv:2509.14233): normalized heads, and an MLP with xIELU.

use super::Family;
use crate::spec::{AttentionSpec, DecoderSpec, HeadNormSpec, MlpLayout, MlpSpec, Placement};
use crate::weights::{FamilyConfig, ModelConfig, Switch};
use rsgen_core::error::Result;

/// The family.
pub(super) const APERTUS: Family = Family {
    config: FamilyConfig {
        architecture: "ApertusForCausalLM",
        model_type: "apertus",
        defaults: r#"{
            "vocab_size": 131072, "intermediate_size": 14336, "num_key_value_heads": 32, "hidden_act": "xielu",
            "max_position_embeddings": 65536, "rms_norm_eps": 1e-5, "rope_theta": 12000000.0,
            "rope_parameters": {
                "rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192,
                "low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_theta": 12000000.0
            },
            "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3
        }"#,
        mlp_bias: Switch::Off,
        ..FamilyConfig::LLAMA
    },
    spec,
};

fn spec(config: &ModelConfig) -> Result<DecoderSpec> {
    let llama = DecoderSpec::llama(config);
    let head_norms = Some(HeadNormSpec::each(llama.norm));
    Ok(DecoderSpec {
        placement: Placement::before("attention_layernorm", "feedforward_layernorm"),
        attention: AttentionSpec { head_norms, ..llama.attention },
        mlp: MlpSpec { layout: MlpLayout::Xielu { up: "up_proj" }, ..llama.mlp },
        ..llama
    })
}
