//! GPTBigCode (Ben Allal et al., arXiv:2301.03988), such as SantaCoder: a GPT-2 with one head of keys and values.

use super::Family;
use crate::spec::{AttentionSpec, DecoderSpec, Names, Qkv};
use crate::weights::{FamilyConfig, ModelConfig, RopeRule};
use rsgen_core::error::Result;
use serde_json::{Map, Value};

/// The family.
pub(super) const GPT_BIGCODE: Family = Family {
    config: FamilyConfig {
        architecture: "GPTBigCodeForCausalLM",
        model_type: "gpt_bigcode",
        defaults: r#"{
            "vocab_size": 50257, "multi_query": true, "hidden_size": 768, "intermediate_size": null, "num_hidden_layers": 12,
            "num_attention_heads": 12, "max_position_embeddings": 1024, "hidden_act": "gelu_pytorch_tanh", "rms_norm_eps": 1e-5,
            "scale_attn_weights": true, "tie_word_embeddings": true, "bos_token_id": 50256, "eos_token_id": 50256
        }"#,
        aliases: &[
            ("hidden_size", "n_embd"),
            ("num_hidden_layers", "n_layer"),
            ("num_attention_heads", "n_head"),
            ("max_position_embeddings", "n_positions"),
            ("intermediate_size", "n_inner"),
            ("hidden_act", "activation_function"),
            ("rms_norm_eps", "layer_norm_epsilon"),
        ],
        rope: RopeRule::None,
        derive: one_head,
        ..FamilyConfig::LLAMA
    },
    spec,
};

fn spec(config: &ModelConfig) -> Result<DecoderSpec> {
    let gpt2 = (super::gpt2::GPT2.spec)(config)?;
    let is_stacked = config.fields().is_set("multi_query")?;
    let qkv = if is_stacked { Qkv::Stacked("c_attn") } else { Qkv::Grouped("c_attn") };
    Ok(DecoderSpec {
        names: Names { conv1d: false, ..gpt2.names },
        attention: AttentionSpec { qkv, ..gpt2.attention },
        ..gpt2
    })
}

fn one_head(fields: &mut Map<String, Value>) {
    let heads = if fields.get("multi_query") == Some(&true.into()) { 1.into() } else { Value::Null };
    fields.insert("num_key_value_heads".to_owned(), heads);
}
