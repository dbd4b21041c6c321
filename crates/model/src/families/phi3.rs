//! Phi-3 and Phi-4 (Abdin et al., arXiv:2404.14219 and 2412.08905): llamas whose projections are stored fused,
//! whose heads may turn in part, and whose longer contexts are longrope's.

use super::Family;
use crate::spec::{AttentionSpec, DecoderSpec, MlpLayout, MlpSpec, Qkv};
use crate::weights::{FamilyConfig, ModelConfig, RopeRule, Switch, WindowRule};
use rsgen_core::error::Result;

/// The family.
pub(super) const PHI3: Family = Family {
    config: FamilyConfig {
        architecture: "Phi3ForCausalLM",
        model_type: "phi3",
        defaults: r#"{
            "vocab_size": 32064, "hidden_size": 3072, "intermediate_size": 8192, "max_position_embeddings": 4096,
            "original_max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "bos_token_id": 1,
            "eos_token_id": 32000, "pad_token_id": 32000
        }"#,
        attention_bias: Switch::Off,
        mlp_bias: Switch::Off,
        window: WindowRule::AllLayers,
        rope: RopeRule::Phi3,
        ..FamilyConfig::LLAMA
    },
    spec,
};

fn spec(config: &ModelConfig) -> Result<DecoderSpec> {
    let llama = DecoderSpec::llama(config);
    let layout = MlpLayout::GatedStacked { gate_up: "gate_up_proj" };
    Ok(DecoderSpec {
        attention: AttentionSpec { qkv: Qkv::Stacked("qkv_proj"), ..llama.attention },
        mlp: MlpSpec { layout, ..llama.mlp },
        ..llama
    })
}
