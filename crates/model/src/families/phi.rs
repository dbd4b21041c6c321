//! Phi-1, 1.5 and 2 (Gunasekar et al., arXiv:2306.11644): attention and MLP side by side, and heads that turn in part.

use super::Family;
use crate::spec::{
    AttentionSpec, DecoderSpec, HeadNormSpec, MlpLayout, MlpSpec, Names, NormSpec, Placement, Residual,
};
use crate::weights::{FamilyConfig, ModelConfig, RopeRule};
use rsgen_core::error::Result;

/// The family.
pub(super) const PHI: Family = Family {
    config: FamilyConfig {
        architecture: "PhiForCausalLM",
        model_type: "phi",
        defaults: r#"{
            "vocab_size": 51200, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 24,
            "max_position_embeddings": 2048, "hidden_act": "gelu_new", "rms_norm_eps": 1e-5,
            "partial_rotary_factor": 0.5, "bos_token_id": 1, "eos_token_id": 2
        }"#,
        aliases: &[("rms_norm_eps", "layer_norm_eps")],
        rope: RopeRule::Part,
        ..FamilyConfig::LLAMA
    },
    spec,
};

fn spec(config: &ModelConfig) -> Result<DecoderSpec> {
    let llama = DecoderSpec::llama(config);
    let norm = NormSpec::layer(config);
    let head_norms = HeadNormSpec { names: ["q_layernorm", "k_layernorm"], ..HeadNormSpec::each(norm) };
    let has_head_norms = config.fields().is_set("qk_layernorm")?;
    Ok(DecoderSpec {
        names: Names { norm: Some("final_layernorm"), head_bias: true, ..llama.names },
        norm,
        placement: Placement {
            inputs: [Some("input_layernorm"), Some("input_layernorm")],
            residual: Residual::ParallelSum,
            ..llama.placement
        },
        attention: AttentionSpec {
            output: "dense",
            qkv_bias: true,
            output_bias: true,
            head_norms: has_head_norms.then_some(head_norms),
            ..llama.attention
        },
        mlp: MlpSpec { layout: MlpLayout::Plain { up: "fc1" }, down: "fc2", bias: true },
        ..llama
    })
}
