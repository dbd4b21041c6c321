//! CWM (Meta, arXiv:2510.02387): a llama with a window in three of four layers.

use super::Family;
use crate::spec::DecoderSpec;
use crate::weights::{FamilyConfig, ModelConfig, Switch, WindowRule};
use rsgen_core::error::Result;

/// The family.
pub(super) const CWM: Family = Family {
    config: FamilyConfig {
        architecture: "CwmForCausalLM",
        model_type: "cwm",
        defaults: r#"{
            "vocab_size": 128256, "hidden_size": 6144, "intermediate_size": 21504, "num_hidden_layers": 64,
            "num_attention_heads": 48, "num_key_value_heads": 8, "head_dim": 128,
            "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 1000000.0,
            "rope_parameters": {
                "rope_type": "llama3", "factor": 16.0, "original_max_position_embeddings": 8192,
                "low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_theta": 1000000.0
            },
            "sliding_window": 8192, "_full_attention_every": 4, "bos_token_id": 128000,
            "eos_token_id": [128001, 128008, 128009]
        }"#,
        attention_bias: Switch::Off,
        window: WindowRule::AllBut { field: "_full_attention_every", first: true },
        ..FamilyConfig::LLAMA
    },
    spec,
};

fn spec(config: &ModelConfig) -> Result<DecoderSpec> {
    Ok(DecoderSpec::llama(config))
}
