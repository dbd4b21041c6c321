//! Command R (Cohere, 2024): attention and MLP side by side after one norm, and rotated pairs of neighbours.

use super::Family;
use crate::spec::{
    AttentionSpec, DecoderSpec, HeadNormSpec, HeadScope, LogitScale, NormSpec, Placement, Residual,
    RotarySpec, Scalings,
};
use crate::weights::{FamilyConfig, ModelConfig, Switch};
use rsgen_core::error::Result;
use rsgen_kernels::RotaryPairs;

/// The family.
pub(super) const COHERE: Family = Family {
    config: FamilyConfig {
        architecture: "CohereForCausalLM",
        model_type: "cohere",
        defaults: r#"{
            "vocab_size": 256000, "hidden_size": 8192, "intermediate_size": 22528, "num_hidden_layers": 40,
            "num_attention_heads": 64, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
            "rope_theta": 500000.0, "logit_scale": 0.0625, "tie_word_embeddings": true, "bos_token_id": 5,
            "eos_token_id": 255001, "pad_token_id": 0
        }"#,
        aliases: &[("rms_norm_eps", "layer_norm_eps")],
        mlp_bias: Switch::Off,
        ..FamilyConfig::LLAMA
    },
    spec,
};

fn spec(config: &ModelConfig) -> Result<DecoderSpec> {
    let llama = DecoderSpec::llama(config);
    let norm = NormSpec::layer(config).without_bias();
    let head_norms = HeadNormSpec { scope: HeadScope::EachOwn, ..HeadNormSpec::each(norm) };
    let has_head_norms = config.fields().is_set("use_qk_norm")?;
    let logits = config.fields().number("logit_scale", -1e6, 1e6)?.unwrap_or(1.0) as f32;
    Ok(DecoderSpec {
        norm,
        placement: Placement {
            inputs: [Some("input_layernorm"), Some("input_layernorm")],
            residual: Residual::Parallel,
            ..llama.placement
        },
        rotary: RotarySpec::of(config, RotaryPairs::Interleaved),
        attention: AttentionSpec { head_norms: has_head_norms.then_some(head_norms), ..llama.attention },
        scalings: Scalings { logits: LogitScale::Times(logits), ..llama.scalings },
        ..llama
    })
}
