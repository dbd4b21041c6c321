//! GPT-Neo (Black et al., 2021): a GPT-2 whose scores have no factor, with a window in every other layer.

use super::Family;
use crate::spec::{AttentionSpec, DecoderSpec, Names, Qkv};
use crate::weights::{FamilyConfig, ModelConfig, RopeRule, WindowRule};
use rsgen_core::error::Result;

/// The family.
pub(super) const GPT_NEO: Family = Family {
    config: FamilyConfig {
        architecture: "GPTNeoForCausalLM",
        model_type: "gpt_neo",
        defaults: r#"{
            "vocab_size": 50257, "hidden_size": 2048, "intermediate_size": null, "num_hidden_layers": 24,
            "num_attention_heads": 16, "attention_types": [[["global", "local"], 12]], "window_size": 256,
            "max_position_embeddings": 2048, "hidden_act": "gelu_new", "rms_norm_eps": 1e-5,
            "scale_attn_weights": false, "tie_word_embeddings": true, "bos_token_id": 50256, "eos_token_id": 50256
        }"#,
        aliases: &[
            ("num_hidden_layers", "num_layers"),
            ("num_attention_heads", "num_heads"),
            ("hidden_act", "activation_function"),
            ("rms_norm_eps", "layer_norm_epsilon"),
        ],
        window: WindowRule::Local,
        rope: RopeRule::None,
        ..FamilyConfig::LLAMA
    },
    spec,
};

fn spec(config: &ModelConfig) -> Result<DecoderSpec> {
    let gpt2 = (super::gpt2::GPT2.spec)(config)?;
    Ok(DecoderSpec {
        names: Names { attention: "attn.attention", conv1d: false, ..gpt2.names },
        attention: AttentionSpec {
            qkv: Qkv::Separate(["q_proj", "k_proj", "v_proj"]),
            output: "out_proj",
            qkv_bias: false,
            ..gpt2.attention
        },
        ..gpt2
    })
}
