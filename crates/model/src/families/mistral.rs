//! Mistral (Jiang et al., arXiv:2310.06825): a llama without biases, whose layers may all see a sliding window.

use super::Family;
use crate::spec::DecoderSpec;
use crate::weights::{FamilyConfig, ModelConfig, Switch, WindowRule};
use rsgen_core::error::Result;

/// The family.
pub(super) const MISTRAL: Family = Family {
    config: FamilyConfig {
        architecture: "MistralForCausalLM",
        model_type: "mistral",
        defaults: r#"{
            "intermediate_size": 14336, "num_key_value_heads": 8, "max_position_embeddings": 131072,
            "sliding_window": 4096, "bos_token_id": 1, "eos_token_id": 2
        }"#,
        attention_bias: Switch::Off,
        mlp_bias: Switch::Off,
        window: WindowRule::AllLayers,
        ..FamilyConfig::LLAMA
    },
    spec,
};

fn spec(config: &ModelConfig) -> Result<DecoderSpec> {
    Ok(DecoderSpec::llama(config))
}
