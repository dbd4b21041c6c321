//! Granite 3's mixtures of experts (IBM, 2024).

use super::Family;
use crate::spec::{DecoderSpec, ExpertLayout, ExpertsSpec};
use crate::weights::{FamilyConfig, ModelConfig, Switch};
use rsgen_core::error::Result;
use rsgen_kernels::Routing;

/// The family.
pub(super) const GRANITE_MOE: Family = Family {
    config: FamilyConfig {
        architecture: "GraniteMoeForCausalLM",
        model_type: "granitemoe",
        defaults: r#"{
            "num_experts": 8, "num_experts_per_tok": 2, "embedding_multiplier": 1.0, "residual_multiplier": 1.0, "attention_multiplier": 1.0,
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
    Ok(DecoderSpec { experts: Some(experts(config)?), ..granite })
}

/// Experts in all layers, stored as two stacks.
pub(super) fn experts(config: &ModelConfig) -> Result<ExpertsSpec> {
    Ok(ExpertsSpec {
        scope: "block_sparse_moe",
        router: "router.layer.weight",
        layout: ExpertLayout::Stacked(["input_linear.weight", "output_linear.weight"]),
        ..ExpertsSpec::of(config, Routing::TopKSoftmax, config.intermediate_size)?
    })
}
