//! GPT-NeoX (Black et al., arXiv:2204.06745) and Pythia: attention and MLP side by side, each with its norm, and heads
//! that turn in part.

use super::Family;
use crate::spec::{
    AttentionSpec, DecoderSpec, MlpLayout, MlpSpec, Names, NormSpec, Placement, Qkv, Residual,
};
use crate::weights::{FamilyConfig, ModelConfig, RopeRule};
use rsgen_core::error::Result;

/// The family.
pub(super) const GPT_NEOX: Family = Family {
    config: FamilyConfig {
        architecture: "GPTNeoXForCausalLM",
        model_type: "gpt_neox",
        defaults: r#"{
            "vocab_size": 50432, "hidden_size": 6144, "intermediate_size": 24576, "num_hidden_layers": 44,
            "num_attention_heads": 64, "max_position_embeddings": 2048, "hidden_act": "gelu",
            "rms_norm_eps": 1e-5, "attention_bias": true, "use_parallel_residual": true,
            "partial_rotary_factor": 0.25, "bos_token_id": 0, "eos_token_id": 2
        }"#,
        aliases: &[
            ("partial_rotary_factor", "rotary_pct"),
            ("rope_theta", "rotary_emb_base"),
            ("rms_norm_eps", "layer_norm_eps"),
        ],
        rope: RopeRule::Part,
        ..FamilyConfig::LLAMA
    },
    spec,
};

fn spec(config: &ModelConfig) -> Result<DecoderSpec> {
    let llama = DecoderSpec::llama(config);
    let is_parallel = config.fields().is_set("use_parallel_residual")?;
    Ok(DecoderSpec {
        names: Names {
            base: "gpt_neox",
            embedding: "embed_in",
            norm: Some("final_layer_norm"),
            head: "embed_out",
            attention: "attention",
            ..llama.names
        },
        norm: NormSpec::layer(config),
        placement: Placement {
            residual: if is_parallel { Residual::ParallelSum } else { Residual::Sequential },
            ..llama.placement
        },
        attention: AttentionSpec { qkv: Qkv::Grouped("query_key_value"), output: "dense", ..llama.attention },
        mlp: MlpSpec { layout: MlpLayout::Plain { up: "dense_h_to_4h" }, down: "dense_4h_to_h", bias: true },
        ..llama
    })
}
