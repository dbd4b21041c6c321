//! Ministral 3: a Mistral whose queries grow with their position.

use super::Family;
use crate::spec::{AttentionSpec, DecoderSpec, QueryScale};
use crate::weights::{FamilyConfig, ModelConfig, Switch, WindowRule};
use rsgen_core::error::Result;

/// The family.
pub(super) const MINISTRAL3: Family = Family {
    config: FamilyConfig {
        architecture: "Ministral3ForCausalLM",
        model_type: "ministral3",
        defaults: r#"{
            "vocab_size": 131072, "intermediate_size": 14336, "num_hidden_layers": 34, "num_key_value_heads": 8,
            "head_dim": 128, "max_position_embeddings": 262144, "rms_norm_eps": 1e-5, "rope_theta": 1000000.0,
            "rope_parameters": {
                "rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 16384,
                "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
                "llama_4_scaling_beta": 0.1
            },
            "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 11
        }"#,
        attention_bias: Switch::Off,
        mlp_bias: Switch::Off,
        window: WindowRule::AllLayers,
        ..FamilyConfig::LLAMA
    },
    spec,
};

fn spec(config: &ModelConfig) -> Result<DecoderSpec> {
    let llama = DecoderSpec::llama(config);
    let rope = config.fields().object("rope_parameters").or_else(|| config.fields().object("rope_scaling"));
    let factor = |name: &str| {
        let rope = rope.ok_or_else(|| config.fields().wrong("rope_parameters", "an object"))?;
        let missing = || rope.wrong(name, "a number above 0");
        rope.positive(name, 1e9)?.map(|factor| factor as f32).ok_or_else(missing)
    };
    let query_scale = QueryScale {
        beta: factor("llama_4_scaling_beta")?,
        original: factor("original_max_position_embeddings")?,
    };
    let attention = AttentionSpec { query_scale: Some(query_scale), ..llama.attention };
    Ok(DecoderSpec { attention, ..llama })
}
