//! Qwen3 (Yang et al., arXiv:2505.09388): a llama whose queries and keys are normalized head by head, and some of
//! whose layers may see a sliding window.

use super::Family;
use crate::spec::{AttentionSpec, DecoderSpec, HeadNormSpec};
use crate::weights::{FamilyConfig, ModelConfig, Switch, WindowRule};
use rsgen_core::error::Result;

/// The family.
pub(super) const QWEN3: Family = Family {
    config: FamilyConfig {
        architecture: "Qwen3ForCausalLM",
        model_type: "qwen3",
        defaults: r#"{
            "vocab_size": 151936, "num_key_value_heads": 32, "head_dim": 128, "intermediate_size": 22016, "max_position_embeddings": 32768, "sliding_window": 4096,
            "max_window_layers": 28
        }"#,
        mlp_bias: Switch::Off,
        window: WindowRule::FromLayer,
        ..FamilyConfig::LLAMA
    },
    spec,
};

fn spec(config: &ModelConfig) -> Result<DecoderSpec> {
    let llama = DecoderSpec::llama(config);
    let head_norms = Some(HeadNormSpec::each(llama.norm));
    Ok(DecoderSpec { attention: AttentionSpec { head_norms, ..llama.attention }, ..llama })
}
