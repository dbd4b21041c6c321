//! OLMoE (Muennighoff et al., arXiv:2409.02060): a mixture of experts whose queries and keys are normalized as a whole.

use super::Family;
use crate::spec::{AttentionSpec, DecoderSpec, ExpertsSpec, HeadNormSpec, HeadScope};
use crate::weights::{FamilyConfig, ModelConfig, Switch};
use rsgen_core::error::Result;
use rsgen_kernels::Routing;

/// The family.
pub(super) const OLMOE: Family = Family {
    config: FamilyConfig {
        architecture: "OlmoeForCausalLM",
        model_type: "olmoe",
        defaults: r#"{
            "vocab_size": 50304, "hidden_size": 2048, "intermediate_size": 2048, "num_hidden_layers": 16,
            "num_attention_heads": 16, "num_key_value_heads": 16, "max_position_embeddings": 4096,
            "rms_norm_eps": 1e-5, "num_experts": 64, "num_experts_per_tok": 8, "norm_topk_prob": false,
            "eos_token_id": 50279, "pad_token_id": 1
        }"#,
        aliases: &[("num_experts", "num_local_experts")],
        mlp_bias: Switch::Off,
        ..FamilyConfig::LLAMA
    },
    spec,
};

fn spec(config: &ModelConfig) -> Result<DecoderSpec> {
    let llama = DecoderSpec::llama(config);
    let renormalize = config.fields().is_set("norm_topk_prob")?;
    let routing = Routing::SoftmaxTopK { renormalize };
    Ok(DecoderSpec {
        attention: AttentionSpec {
            clip: super::olmo::clip(config, true)?,
            head_norms: Some(HeadNormSpec { scope: HeadScope::Whole, ..HeadNormSpec::each(llama.norm) }),
            ..llama.attention
        },
        experts: Some(ExpertsSpec::of(config, routing, config.intermediate_size)?),
        ..llama
    })
}
