//! Llama (Touvron et al., arXiv:2302.13971 and 2307.09288), as transformers' `LlamaForCausalLM` computes it.

use super::Family;
use crate::spec::DecoderSpec;
use crate::weights::{FamilyConfig, ModelConfig};
use rsgen_core::error::Result;

/// The family.
pub(super) const LLAMA: Family = Family {
    config: FamilyConfig {
        architecture: "LlamaForCausalLM",
        model_type: "llama",
        defaults: r#"{"bos_token_id": 1, "eos_token_id": 2}"#,
        ..FamilyConfig::LLAMA
    },
    spec,
};

fn spec(config: &ModelConfig) -> Result<DecoderSpec> {
    Ok(DecoderSpec::llama(config))
}
