//! OLMo (Groeneveld et al., arXiv:2402.00838): a llama with layer norms that have no weights.

use super::Family;
use crate::spec::{AttentionSpec, Clip, DecoderSpec, NormSpec, NormWeight};
use crate::weights::{FamilyConfig, ModelConfig, Switch};
use rsgen_core::error::Result;

/// The family.
pub(super) const OLMO: Family = Family {
    config: FamilyConfig {
        architecture: "OlmoForCausalLM",
        model_type: "olmo",
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
    let norm = NormSpec::layer(config).without_bias();
    Ok(DecoderSpec {
        norm: NormSpec { weight: NormWeight::Ones, eps: 1e-5, ..norm },
        attention: AttentionSpec { clip: clip(config, false)?, ..llama.attention },
        ..llama
    })
}

/// The limits of queries, keys and values.
pub(super) fn clip(config: &ModelConfig, after_norms: bool) -> Result<Option<Clip>> {
    let limit = config.fields().positive("clip_qkv", 1e6)?;
    Ok(limit.map(|limit| Clip { limit: limit as f32, after_norms }))
}
