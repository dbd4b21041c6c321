//! Nemotron-4 and Minitron (NVIDIA, arXiv:2407.14679): layer norms around 1, ReLU², and heads that turn in part.

use super::Family;
use crate::spec::{DecoderSpec, MlpLayout, MlpSpec, NormSpec};
use crate::weights::{FamilyConfig, ModelConfig, RopeRule};
use rsgen_core::error::Result;

/// The family.
pub(super) const NEMOTRON: Family = Family {
    config: FamilyConfig {
        architecture: "NemotronForCausalLM",
        model_type: "nemotron",
        defaults: r#"{
            "vocab_size": 256000, "hidden_size": 6144, "intermediate_size": 24576, "num_attention_heads": 48,
            "max_position_embeddings": 4096, "hidden_act": "relu2", "rms_norm_eps": 1e-5,
            "partial_rotary_factor": 0.5, "bos_token_id": 2, "eos_token_id": 3
        }"#,
        aliases: &[("rms_norm_eps", "norm_eps")],
        rope: RopeRule::Part,
        ..FamilyConfig::LLAMA
    },
    spec,
};

fn spec(config: &ModelConfig) -> Result<DecoderSpec> {
    let llama = DecoderSpec::llama(config);
    let layout = MlpLayout::Plain { up: "up_proj" };
    Ok(DecoderSpec {
        norm: NormSpec::layer(config).one_plus(),
        mlp: MlpSpec { layout, ..llama.mlp },
        ..llama
    })
}
