//! Qwen3's mixtures of experts (Yang et al., arXiv:2505.09388), such as Qwen3-30B-A3B.

use super::Family;
use crate::spec::DecoderSpec;
use crate::weights::{FamilyConfig, ModelConfig, Switch, WindowRule};
use rsgen_core::error::Result;

/// The family.
pub(super) const QWEN3_MOE: Family = Family {
    config: FamilyConfig {
        architecture: "Qwen3MoeForCausalLM",
        model_type: "qwen3_moe",
        defaults: r#"{
            "vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 24,
            "num_key_value_heads": 4, "max_position_embeddings": 32768, "moe_intermediate_size": 768,
            "num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": false, "decoder_sparse_step": 1
        }"#,
        aliases: &[("num_experts", "num_local_experts")],
        mlp_bias: Switch::Off,
        window: WindowRule::AllLayersIfUsed,
        ..FamilyConfig::LLAMA
    },
    spec,
};

fn spec(config: &ModelConfig) -> Result<DecoderSpec> {
    let qwen3 = (super::qwen3::QWEN3.spec)(config)?;
    Ok(DecoderSpec { experts: Some(super::qwen2_moe::experts(config)?), ..qwen3 })
}
