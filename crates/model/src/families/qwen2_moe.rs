//! Qwen2's mixtures of experts (Yang et al., arXiv:2407.10671), such as Qwen1.5-MoE-A2.7B: with an expert that all
//! tokens take.

use super::Family;
use crate::spec::{DecoderSpec, ExpertsSpec, SharedExpert};
use crate::weights::{FamilyConfig, ModelConfig, Switch, WindowRule};
use rsgen_core::error::Result;
use rsgen_kernels::Routing;

/// The family.
pub(super) const QWEN2_MOE: Family = Family {
    config: FamilyConfig {
        architecture: "Qwen2MoeForCausalLM",
        model_type: "qwen2_moe",
        defaults: r#"{
            "vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 24,
            "num_attention_heads": 16, "num_key_value_heads": 16, "max_position_embeddings": 32768,
            "attention_bias": true, "sliding_window": 0, "max_window_layers": 28, "moe_intermediate_size": 1408,
            "shared_expert_intermediate_size": 5632, "num_experts": 60, "num_experts_per_tok": 4,
            "norm_topk_prob": false, "decoder_sparse_step": 1
        }"#,
        aliases: &[("attention_bias", "qkv_bias"), ("num_experts", "num_local_experts")],
        mlp_bias: Switch::Off,
        window: WindowRule::EvenBelowLayer,
        ..FamilyConfig::LLAMA
    },
    spec,
};

fn spec(config: &ModelConfig) -> Result<DecoderSpec> {
    let qwen2 = (super::qwen2::QWEN2.spec)(config)?;
    let shared = SharedExpert {
        scope: "mlp.shared_expert",
        mlp: qwen2.mlp,
        intermediate_size: config.fields().count("shared_expert_intermediate_size")?,
        gate: Some("shared_expert_gate"),
    };
    Ok(DecoderSpec { experts: Some(ExpertsSpec { shared: Some(shared), ..experts(config)? }), ..qwen2 })
}

/// Experts in some layers: not in `mlp_only_layers`, and in the last of each `decoder_sparse_step`.
pub(super) fn experts(config: &ModelConfig) -> Result<ExpertsSpec> {
    let fields = config.fields();
    let renormalize = fields.is_set("norm_topk_prob")?;
    let (every, dense) = (fields.count("decoder_sparse_step")?, fields.indices("mlp_only_layers")?);
    let is_sparse = |layer: usize| !dense.contains(&layer) && (layer + 1).is_multiple_of(every);
    let width = fields.count("moe_intermediate_size")?;
    let experts = ExpertsSpec::of(config, Routing::SoftmaxTopK { renormalize }, width)?;
    Ok(ExpertsSpec { layers: (0..config.num_hidden_layers).map(is_sparse).collect(), ..experts })
}
