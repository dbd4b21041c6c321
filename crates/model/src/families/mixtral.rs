//! Mixtral (Jiang et al., arXiv:2401.04088): a Mistral with experts in all layers.

use super::Family;
use crate::spec::{DecoderSpec, ExpertLayout, ExpertsSpec};
use crate::weights::{FamilyConfig, ModelConfig, Switch, WindowRule};
use rsgen_core::error::Result;
use rsgen_kernels::Routing;

/// The family.
pub(super) const MIXTRAL: Family = Family {
    config: FamilyConfig {
        architecture: "MixtralForCausalLM",
        model_type: "mixtral",
        defaults: r#"{
            "intermediate_size": 14336, "num_key_value_heads": 8, "max_position_embeddings": 131072,
            "rms_norm_eps": 1e-5, "rope_theta": 1000000.0, "num_experts": 8, "num_experts_per_tok": 2,
            "bos_token_id": 1, "eos_token_id": 2
        }"#,
        aliases: &[("num_experts", "num_local_experts")],
        attention_bias: Switch::Off,
        mlp_bias: Switch::Off,
        window: WindowRule::AllLayers,
        ..FamilyConfig::LLAMA
    },
    spec,
};

fn spec(config: &ModelConfig) -> Result<DecoderSpec> {
    let experts = ExpertsSpec {
        scope: "block_sparse_moe",
        layout: ExpertLayout::Listed(["w1", "w3", "w2"]),
        ..ExpertsSpec::of(config, Routing::SoftmaxTopK { renormalize: true }, config.intermediate_size)?
    };
    Ok(DecoderSpec { experts: Some(experts), ..DecoderSpec::llama(config) })
}
