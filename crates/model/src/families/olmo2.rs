//! OLMo 2 (Team OLMo, arXiv:2501.00656): a llama whose blocks are normalized after they are computed, and whose queries
//! and keys are normalized as a whole.

use super::Family;
use crate::spec::{AttentionSpec, DecoderSpec, HeadNormSpec, HeadScope, Placement};
use crate::weights::{FamilyConfig, ModelConfig, Switch};
use rsgen_core::error::Result;

/// The family.
pub(super) const OLMO2: Family = Family {
    config: FamilyConfig {
        architecture: "Olmo2ForCausalLM",
        model_type: "olmo2",
        defaults: r#"{
            "vocab_size": 50304, "rms_norm_eps": 1e-5, "eos_token_id": 50279, "pad_token_id": 1
        }"#,
        mlp_bias: Switch::Off,
        ..FamilyConfig::LLAMA
    },
    spec,
};

fn spec(config: &ModelConfig) -> Result<DecoderSpec> {
    let llama = DecoderSpec::llama(config);
    let head_norms = Some(HeadNormSpec { scope: HeadScope::Whole, ..HeadNormSpec::each(llama.norm) });
    Ok(DecoderSpec {
        placement: Placement::after("post_attention_layernorm", "post_feedforward_layernorm"),
        attention: AttentionSpec { head_norms, ..llama.attention },
        ..llama
    })
}
