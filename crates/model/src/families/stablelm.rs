//! StableLM 2 (Bellagente et al., arXiv:2402.17834): a llama with layer norms, whose heads turn in part.

use super::Family;
use crate::spec::{AttentionSpec, DecoderSpec, HeadNormSpec, HeadScope, NormSpec, Placement, Residual};
use crate::weights::{FamilyConfig, ModelConfig, RopeRule, Switch};
use rsgen_core::error::Result;

/// The family.
pub(super) const STABLELM: Family = Family {
    config: FamilyConfig {
        architecture: "StableLmForCausalLM",
        model_type: "stablelm",
        defaults: r#"{
            "vocab_size": 50304, "hidden_size": 2560, "intermediate_size": 6912, "num_key_value_heads": 32,
            "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "partial_rotary_factor": 0.25,
            "bos_token_id": 0, "eos_token_id": 0
        }"#,
        aliases: &[("rms_norm_eps", "layer_norm_eps"), ("attention_bias", "use_qkv_bias")],
        mlp_bias: Switch::Off,
        rope: RopeRule::Part,
        ..FamilyConfig::LLAMA
    },
    spec,
};

fn spec(config: &ModelConfig) -> Result<DecoderSpec> {
    let fields = config.fields();
    let llama = DecoderSpec::llama(config);
    let norm = NormSpec::layer(config);
    let head_norms = HeadNormSpec {
        names: ["q_layernorm", "k_layernorm"],
        scope: HeadScope::EachListed,
        ..HeadNormSpec::each(norm.without_bias())
    };
    let parallel = Placement {
        inputs: [Some("input_layernorm"), Some("input_layernorm")],
        residual: Residual::Parallel,
        ..llama.placement
    };
    Ok(DecoderSpec {
        norm,
        placement: if fields.is_set("use_parallel_residual")? { parallel } else { llama.placement },
        attention: AttentionSpec {
            output_bias: false,
            head_norms: fields.is_set("qk_layernorm")?.then_some(head_norms),
            ..llama.attention
        },
        ..llama
    })
}
