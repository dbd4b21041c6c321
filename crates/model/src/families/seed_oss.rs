//! Seed-OSS (ByteDance, 2025): a llama with biases of its own choice.

use super::Family;
use crate::spec::{AttentionSpec, DecoderSpec};
use crate::weights::{FamilyConfig, ModelConfig};
use rsgen_core::error::Result;

/// The family.
pub(super) const SEED_OSS: Family = Family {
    config: FamilyConfig {
        architecture: "SeedOssForCausalLM",
        model_type: "seed_oss",
        defaults: r#"{
            "vocab_size": 155136, "intermediate_size": 27648, "num_hidden_layers": 64, "num_attention_heads": 80,
            "num_key_value_heads": 8, "head_dim": 128, "attention_bias": true, "attention_out_bias": false,
            "max_position_embeddings": 524288, "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1
        }"#,
        ..FamilyConfig::LLAMA
    },
    spec,
};

fn spec(config: &ModelConfig) -> Result<DecoderSpec> {
    let llama = DecoderSpec::llama(config);
    let output_bias = config.fields().is_set("attention_out_bias")?;
    Ok(DecoderSpec { attention: AttentionSpec { output_bias, ..llama.attention }, ..llama })
}
