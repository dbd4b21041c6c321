//! SmolLM3 (Hugging Face, 2025): a llama some of whose layers have no positions.

use super::Family;
use crate::spec::DecoderSpec;
use crate::weights::{FamilyConfig, ModelConfig, WindowRule, has_rope};
use rsgen_core::error::Result;

/// The family.
pub(super) const SMOLLM3: Family = Family {
    config: FamilyConfig {
        architecture: "SmolLM3ForCausalLM",
        model_type: "smollm3",
        defaults: r#"{
            "vocab_size": 128256, "hidden_size": 2048, "num_hidden_layers": 36, "num_attention_heads": 16,
            "num_key_value_heads": 4, "max_position_embeddings": 32768, "rope_theta": 2000000.0,
            "no_rope_layer_interval": 4, "tie_word_embeddings": true, "bos_token_id": 128000,
            "eos_token_id": 128001, "pad_token_id": 128004
        }"#,
        window: WindowRule::WithoutRope,
        ..FamilyConfig::LLAMA
    },
    spec,
};

fn spec(config: &ModelConfig) -> Result<DecoderSpec> {
    let llama = DecoderSpec::llama(config);
    let has_rope = has_rope(config.fields(), config.num_hidden_layers)?;
    Ok(DecoderSpec { rotary: llama.rotary.only(|layer| has_rope[layer]), ..llama })
}
