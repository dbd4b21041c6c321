//! Qwen2 and Qwen2.5 (Yang et al., arXiv:2407.10671 and 2412.15115): llamas whose queries, keys and values have
//! biases, and some of whose layers may see a sliding window.

use super::Family;
use crate::spec::{AttentionSpec, DecoderSpec};
use crate::weights::{FamilyConfig, ModelConfig, Switch, WindowRule};
use rsgen_core::error::Result;

/// The family.
pub(super) const QWEN2: Family = Family {
    config: FamilyConfig {
        architecture: "Qwen2ForCausalLM",
        model_type: "qwen2",
        defaults: r#"{
            "vocab_size": 151936, "num_key_value_heads": 32, "intermediate_size": 22016, "max_position_embeddings": 32768, "sliding_window": 4096,
            "max_window_layers": 28
        }"#,
        attention_bias: Switch::On,
        mlp_bias: Switch::Off,
        window: WindowRule::FromLayer,
        ..FamilyConfig::LLAMA
    },
    spec,
};

fn spec(config: &ModelConfig) -> Result<DecoderSpec> {
    let llama = DecoderSpec::llama(config);
    Ok(DecoderSpec { attention: AttentionSpec { output_bias: false, ..llama.attention }, ..llama })
}
