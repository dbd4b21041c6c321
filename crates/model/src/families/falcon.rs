//! Falcon (Almazrouei et al., arXiv:2311.16867): attention and MLP side by side, and few heads of keys and values.

use super::Family;
use crate::spec::{
    AlibiSpec, AttentionSpec, DecoderSpec, MlpLayout, MlpSpec, Names, NormSpec, Placement, Qkv, Residual,
    RotarySpec,
};
use crate::weights::{FamilyConfig, ModelConfig};
use rsgen_core::error::Result;
use serde_json::{Map, Value};

/// The family.
pub(super) const FALCON: Family = Family {
    config: FamilyConfig {
        architecture: "FalconForCausalLM",
        model_type: "falcon",
        defaults: r#"{
            "vocab_size": 65024, "hidden_size": 4544, "intermediate_size": null, "num_attention_heads": 71,
            "hidden_act": "gelu", "rms_norm_eps": 1e-5, "multi_query": true, "parallel_attn": true,
            "attention_bias": false, "mlp_bias": false, "tie_word_embeddings": true, "bos_token_id": 11,
            "eos_token_id": 11
        }"#,
        aliases: &[
            ("hidden_size", "n_embed"),
            ("num_hidden_layers", "n_layer"),
            ("num_attention_heads", "n_head"),
            ("num_key_value_heads", "n_head_kv"),
            ("num_key_value_heads", "num_kv_heads"),
            ("intermediate_size", "ffn_hidden_size"),
            ("hidden_act", "activation"),
            ("rms_norm_eps", "layer_norm_epsilon"),
            ("attention_bias", "bias"),
            ("mlp_bias", "bias"),
        ],
        derive: key_value_heads,
        ..FamilyConfig::LLAMA
    },
    spec,
};

fn spec(config: &ModelConfig) -> Result<DecoderSpec> {
    let fields = config.fields();
    let is_alibi = fields.is_set("alibi")?;
    let llama = DecoderSpec::llama(config);
    let (is_new, is_parallel) = (fields.is_set("new_decoder_architecture")?, fields.is_set("parallel_attn")?);
    let is_multi_query = fields.is_set("multi_query")? && !is_new;
    let num_norms = fields.integer("num_ln_in_parallel_attn", 1..=2)?.unwrap_or(if is_new { 2 } else { 1 });
    let inputs = match (is_parallel, num_norms) {
        (true, 1) => ["input_layernorm", "input_layernorm"],
        (true, _) => ["ln_attn", "ln_mlp"],
        (false, _) => ["input_layernorm", "post_attention_layernorm"],
    };
    let name = "query_key_value";
    Ok(DecoderSpec {
        names: Names {
            base: "transformer",
            embedding: "word_embeddings",
            layers: "h",
            norm: Some("ln_f"),
            attention: "self_attention",
            ..llama.names
        },
        norm: NormSpec::layer(config),
        placement: Placement {
            inputs: inputs.map(Some),
            residual: if is_parallel { Residual::ParallelSum } else { Residual::Sequential },
            ..llama.placement
        },
        attention: AttentionSpec {
            qkv: if is_multi_query { Qkv::Stacked(name) } else { Qkv::Grouped(name) },
            output: "dense",
            alibi: is_alibi.then(|| AlibiSpec {
                rounded: Some(llama.attention.scale),
                ..AlibiSpec::new(config.num_attention_heads)
            }),
            ..llama.attention
        },
        rotary: if is_alibi { RotarySpec::none(config) } else { llama.rotary },
        mlp: MlpSpec {
            layout: MlpLayout::Plain { up: "dense_h_to_4h" },
            down: "dense_4h_to_h",
            bias: config.mlp_bias,
        },
        ..llama
    })
}

/// Only the newer architecture has heads of keys and values of its own number.
fn key_value_heads(fields: &mut Map<String, Value>) {
    let is_set = |name: &str| fields.get(name) == Some(&true.into());
    if !is_set("new_decoder_architecture") {
        let heads = if is_set("multi_query") { 1.into() } else { Value::Null };
        fields.insert("num_key_value_heads".to_owned(), heads);
    }
}
