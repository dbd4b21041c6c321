//! Ministral: a Mistral whose layers each have their window or not.

use super::Family;
use crate::spec::DecoderSpec;
use crate::weights::{FamilyConfig, ModelConfig, Switch, WindowRule};
use rsgen_core::error::Result;

/// The family.
pub(super) const MINISTRAL: Family = Family {
    config: FamilyConfig {
        architecture: "MinistralForCausalLM",
        model_type: "ministral",
        defaults: r#"{
            "intermediate_size": 14336, "num_key_value_heads": 8, "max_position_embeddings": 131072,
            "sliding_window": 4096, "_full_attention_every": 1000000, "bos_token_id": 1, "eos_token_id": 2
        }"#,
        attention_bias: Switch::Off,
        mlp_bias: Switch::Off,
        window: WindowRule::AllBut { field: "_full_attention_every", first: false },
        ..FamilyConfig::LLAMA
    },
    spec,
};

fn spec(config: &ModelConfig) -> Result<DecoderSpec> {
    Ok(DecoderSpec::llama(config))
}
