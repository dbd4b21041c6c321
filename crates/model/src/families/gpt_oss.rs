//! gpt-oss (OpenAI, arXiv:2508.10925): a mixture of experts with biases, attention sinks, and a window in every other
//! layer.

use super::Family;
use crate::spec::{AttentionSpec, DecoderSpec, ExpertLayout, ExpertsSpec};
use crate::weights::{FamilyConfig, ModelConfig, Switch, WindowRule};
use rsgen_core::error::Result;
use rsgen_kernels::{GatedActivation, Routing};

/// The family.
pub(super) const GPT_OSS: Family = Family {
    config: FamilyConfig {
        architecture: "GptOssForCausalLM",
        model_type: "gpt_oss",
        defaults: r#"{
            "vocab_size": 201088, "hidden_size": 2880, "intermediate_size": 2880, "num_hidden_layers": 36,
            "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "attention_bias": true,
            "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 150000.0,
            "rope_parameters": {
                "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": false,
                "original_max_position_embeddings": 4096
            },
            "sliding_window": 128, "_full_attention_every": 2, "num_experts": 128, "num_experts_per_tok": 4,
            "swiglu_alpha": 1.702, "swiglu_limit": 7.0
        }"#,
        aliases: &[("num_experts", "num_local_experts")],
        mlp_bias: Switch::Off,
        window: WindowRule::AllBut { field: "_full_attention_every", first: false },
        ..FamilyConfig::LLAMA
    },
    spec,
};

fn spec(config: &ModelConfig) -> Result<DecoderSpec> {
    let llama = DecoderSpec::llama(config);
    let number = |name: &str| {
        let missing = || config.fields().wrong(name, "a number above 0");
        config.fields().positive(name, 1e6)?.map(|value| value as f32).ok_or_else(missing)
    };
    let (alpha, limit) = (number("swiglu_alpha")?, number("swiglu_limit")?);
    let experts = ExpertsSpec {
        router: "router.weight",
        router_bias: Some("router.bias"),
        layout: ExpertLayout::Alternating(["experts.gate_up_proj", "experts.down_proj"]),
        activation: GatedActivation::SwigluOai { alpha, limit },
        ..ExpertsSpec::of(config, Routing::TopKSoftmax, config.intermediate_size)?
    };
    Ok(DecoderSpec {
        attention: AttentionSpec { sinks: Some("sinks"), ..llama.attention },
        experts: Some(experts),
        ..llama
    })
}
