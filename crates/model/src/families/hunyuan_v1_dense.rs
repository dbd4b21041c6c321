//! Hunyuan's dense models (Tencent, 2025): heads that are normalized after they are rotated.

use super::Family;
use crate::spec::{AttentionSpec, DecoderSpec, HeadNormSpec};
use crate::weights::{FamilyConfig, ModelConfig, RopeRule, Switch};
use rsgen_core::error::Result;

/// The family.
pub(super) const HUNYUAN_V1_DENSE: Family = Family {
    config: FamilyConfig {
        architecture: "HunYuanDenseV1ForCausalLM",
        model_type: "hunyuan_v1_dense",
        defaults: r#"{
            "vocab_size": 290943, "rms_norm_eps": 1e-5, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0
        }"#,
        mlp_bias: Switch::Off,
        rope: RopeRule::Alpha,
        ..FamilyConfig::LLAMA
    },
    spec,
};

fn spec(config: &ModelConfig) -> Result<DecoderSpec> {
    let llama = DecoderSpec::llama(config);
    let head_norms = HeadNormSpec {
        names: ["query_layernorm", "key_layernorm"],
        after_rotation: true,
        ..HeadNormSpec::each(llama.norm)
    };
    Ok(DecoderSpec { attention: AttentionSpec { head_norms: Some(head_norms), ..llama.attention }, ..llama })
}
