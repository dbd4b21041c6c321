//! Granite 3 (IBM, 2024): a llama with factors for embeddings, scores, residuals and logits.

use super::Family;
use crate::spec::{AttentionSpec, DecoderSpec, LogitScale, Scalings};
use crate::weights::{FamilyConfig, ModelConfig};
use rsgen_core::error::{Error, Result};

/// The family.
pub(super) const GRANITE: Family = Family {
    config: FamilyConfig {
        architecture: "GraniteForCausalLM",
        model_type: "granite",
        defaults: r#"{
            "embedding_multiplier": 1.0, "residual_multiplier": 1.0, "attention_multiplier": 1.0,
            "logits_scaling": 1.0, "bos_token_id": 1, "eos_token_id": 2
        }"#,
        ..FamilyConfig::LLAMA
    },
    spec,
};

fn spec(config: &ModelConfig) -> Result<DecoderSpec> {
    let llama = DecoderSpec::llama(config);
    let factor = |name: &str| Ok::<_, Error>(config.fields().positive(name, 1e6)?.unwrap_or(1.0) as f32);
    Ok(DecoderSpec {
        attention: AttentionSpec { scale: factor("attention_multiplier")?, ..llama.attention },
        scalings: Scalings {
            input: factor("embedding_multiplier")?,
            residual: factor("residual_multiplier")?,
            logits: LogitScale::Over(factor("logits_scaling")?),
            ..llama.scalings
        },
        ..llama
    })
}
