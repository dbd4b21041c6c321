//! Helium (Kyutai, 2025): a llama with rotated pairs of neighbours.

use super::Family;
use crate::spec::{AttentionSpec, DecoderSpec, RotarySpec};
use crate::weights::{FamilyConfig, ModelConfig};
use rsgen_core::error::Result;
use rsgen_kernels::RotaryPairs;

/// The family.
pub(super) const HELIUM: Family = Family {
    config: FamilyConfig {
        architecture: "HeliumForCausalLM",
        model_type: "helium",
        defaults: r#"{
            "vocab_size": 48000, "hidden_size": 2560, "intermediate_size": 7040, "num_hidden_layers": 24,
            "num_attention_heads": 20, "num_key_value_heads": 20, "head_dim": 128,
            "max_position_embeddings": 4096, "rms_norm_eps": 1e-8, "rope_theta": 100000.0, "bos_token_id": 1,
            "eos_token_id": 2, "pad_token_id": 3
        }"#,
        ..FamilyConfig::LLAMA
    },
    spec,
};

fn spec(config: &ModelConfig) -> Result<DecoderSpec> {
    let llama = DecoderSpec::llama(config);
    Ok(DecoderSpec {
        rotary: RotarySpec::of(config, RotaryPairs::Interleaved),
        attention: AttentionSpec { output_bias: false, ..llama.attention },
        ..llama
    })
}
