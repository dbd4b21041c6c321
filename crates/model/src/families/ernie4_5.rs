//! ERNIE 4.5 (Baidu, 2025): a llama with rotated pairs of neighbours.

use super::Family;
use crate::spec::{DecoderSpec, RotarySpec};
use crate::weights::{FamilyConfig, ModelConfig};
use rsgen_core::error::Result;
use rsgen_kernels::RotaryPairs;

/// The family.
pub(super) const ERNIE4_5: Family = Family {
    config: FamilyConfig {
        architecture: "Ernie4_5ForCausalLM",
        model_type: "ernie4_5",
        defaults: r#"{
            "vocab_size": 103424, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 18,
            "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 128,
            "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
            "tie_word_embeddings": true, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0
        }"#,
        aliases: &[("attention_bias", "use_bias"), ("mlp_bias", "use_bias")],
        ..FamilyConfig::LLAMA
    },
    spec,
};

fn spec(config: &ModelConfig) -> Result<DecoderSpec> {
    let rotary = RotarySpec::of(config, RotaryPairs::Interleaved);
    Ok(DecoderSpec { rotary, ..DecoderSpec::llama(config) })
}
