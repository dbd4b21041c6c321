//! Gemma 2 (Gemma Team, arXiv:2408.00118): a Gemma with norms on both sides of a block, bent scores and logits, and a
//! window in every other layer.

use super::Family;
use crate::spec::{AttentionSpec, DecoderSpec, Placement, Residual, Scalings};
use crate::weights::{FamilyConfig, ModelConfig, Switch, WindowRule};
use rsgen_core::error::{Error, Result};

/// The family.
pub(super) const GEMMA2: Family = Family {
    config: FamilyConfig {
        architecture: "Gemma2ForCausalLM",
        model_type: "gemma2",
        defaults: r#"{
            "vocab_size": 256000, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
            "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
            "hidden_act": "gelu_pytorch_tanh", "max_position_embeddings": 8192, "query_pre_attn_scalar": 256,
            "sliding_window": 4096, "_full_attention_every": 2, "attn_logit_softcapping": 50.0,
            "final_logit_softcapping": 30.0,
            "tie_word_embeddings": true, "bos_token_id": 2, "eos_token_id": 1, "pad_token_id": 0
        }"#,
        aliases: &[("hidden_act", "hidden_activation")],
        mlp_bias: Switch::Off,
        window: WindowRule::AllBut { field: "_full_attention_every", first: false },
        ..FamilyConfig::LLAMA
    },
    spec,
};

fn spec(config: &ModelConfig) -> Result<DecoderSpec> {
    config.fields().refuse("use_bidirectional_attention", "attention to later tokens")?;
    let llama = DecoderSpec::llama(config);
    let number = |name: &str| Ok::<_, Error>(config.fields().positive(name, 1e6)?.map(|value| value as f32));
    Ok(DecoderSpec {
        norm: llama.norm.one_plus(),
        placement: Placement {
            inputs: [Some("input_layernorm"), Some("pre_feedforward_layernorm")],
            outputs: [Some("post_attention_layernorm"), Some("post_feedforward_layernorm")],
            residual: Residual::Sequential,
        },
        attention: AttentionSpec {
            scale: query_scale(config)?,
            softcap: number("attn_logit_softcapping")?,
            ..llama.attention
        },
        scalings: Scalings {
            embedding: (config.hidden_size as f64).sqrt() as f32,
            softcap: number("final_logit_softcapping")?,
            ..llama.scalings
        },
        ..llama
    })
}

/// The factor of scores.
pub(super) fn query_scale(config: &ModelConfig) -> Result<f32> {
    const NAME: &str = "query_pre_attn_scalar";
    let scalar = config.fields().positive(NAME, 1e6)?;
    scalar.map(|scalar| (1.0 / scalar.sqrt()) as f32).ok_or_else(|| config.fields().wrong(NAME, "a number"))
}
