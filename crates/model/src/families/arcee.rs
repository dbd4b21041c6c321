//! AFM (Arcee, 2025): a llama with ReLU² in place of gates.

use super::Family;
use crate::spec::{DecoderSpec, MlpLayout, MlpSpec};
use crate::weights::{FamilyConfig, ModelConfig};
use rsgen_core::error::Result;

/// The family.
pub(super) const ARCEE: Family = Family {
    config: FamilyConfig {
        architecture: "ArceeForCausalLM",
        model_type: "arcee",
        defaults: r#"{
            "hidden_size": 2560, "intermediate_size": 18432, "max_position_embeddings": 4096,
            "hidden_act": "relu2", "rms_norm_eps": 1e-5, "bos_token_id": 128000, "eos_token_id": 128001
        }"#,
        ..FamilyConfig::LLAMA
    },
    spec,
};

fn spec(config: &ModelConfig) -> Result<DecoderSpec> {
    let llama = DecoderSpec::llama(config);
    let layout = MlpLayout::Plain { up: "up_proj" };
    Ok(DecoderSpec { mlp: MlpSpec { layout, ..llama.mlp }, ..llama })
}
