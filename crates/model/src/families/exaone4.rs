//! EXAONE 4 (LG AI Research, arXiv:2507.11407): blocks that are normalized after they are computed, and in hybrid models
//! positions in layers with a window alone.

use super::Family;
use crate::spec::{AttentionSpec, DecoderSpec, HeadNormSpec, Placement};
use crate::weights::{FamilyConfig, ModelConfig, Switch, WindowRule};
use rsgen_core::error::Result;

/// The family.
pub(super) const EXAONE4: Family = Family {
    config: FamilyConfig {
        architecture: "Exaone4ForCausalLM",
        model_type: "exaone4",
        defaults: r#"{
            "vocab_size": 102400, "intermediate_size": 16384, "num_key_value_heads": 32, "rms_norm_eps": 1e-5,
            "sliding_window": 4096, "sliding_window_pattern": 4, "bos_token_id": 0, "eos_token_id": 2
        }"#,
        attention_bias: Switch::Off,
        mlp_bias: Switch::Off,
        window: WindowRule::AllBut { field: "sliding_window_pattern", first: false },
        ..FamilyConfig::LLAMA
    },
    spec,
};

fn spec(config: &ModelConfig) -> Result<DecoderSpec> {
    let llama = DecoderSpec::llama(config);
    let is_hybrid = config.fields().get("sliding_window").is_some();
    Ok(DecoderSpec {
        placement: Placement::after("post_attention_layernorm", "post_feedforward_layernorm"),
        rotary: llama.rotary.only(|layer| !is_hybrid || config.window.is_sliding(layer)),
        attention: AttentionSpec { head_norms: Some(HeadNormSpec::each(llama.norm)), ..llama.attention },
        ..llama
    })
}
