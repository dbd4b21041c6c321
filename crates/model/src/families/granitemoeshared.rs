//! Granite's mixtures with an expert that all tokens take.

use super::Family;
use crate::spec::{DecoderSpec, ExpertsSpec, MlpLayout, MlpSpec, SharedExpert};
use crate::weights::{FamilyConfig, ModelConfig, Switch};
use rsgen_core::error::Result;

/// The family.
pub(super) const GRANITE_MOE_SHARED: Family = Family {
    config: FamilyConfig {
        architecture: "GraniteMoeSharedForCausalLM",
        model_type: "granitemoeshared",
        defaults: r#"{
            "num_experts": 8, "num_experts_per_tok": 2, "shared_intermediate_size": 0, "embedding_multiplier": 1.0, "residual_multiplier": 1.0, "attention_multiplier": 1.0,
            "logits_scaling": 1.0, "bos_token_id": 1, "eos_token_id": 2
        }"#,
        aliases: &[("num_experts", "num_local_experts")],
        mlp_bias: Switch::Off,
        ..FamilyConfig::LLAMA
    },
    spec,
};

fn spec(config: &ModelConfig) -> Result<DecoderSpec> {
    let granite = (super::granite::GRANITE.spec)(config)?;
    let width = config.fields().integer("shared_intermediate_size", 0..=1 << 20)?.unwrap_or(0);
    let shared = SharedExpert { scope: SHARED, mlp: SHARED_MLP, intermediate_size: width, gate: None };
    let experts =
        ExpertsSpec { shared: (width > 0).then_some(shared), ..super::granitemoe::experts(config)? };
    Ok(DecoderSpec { experts: Some(experts), ..granite })
}

/// The scope of the shared expert.
pub(super) const SHARED: &str = "shared_mlp";

/// The shared expert.
pub(super) const SHARED_MLP: MlpSpec = MlpSpec {
    layout: MlpLayout::GatedStacked { gate_up: "input_linear" },
    down: "output_linear",
    bias: false,
};
