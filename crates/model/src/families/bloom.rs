//! BLOOM (Scao et al., arXiv:2211.05100): no positions but the distance of tokens, which scores sink with.

use super::Family;
use crate::spec::{AlibiSpec, AttentionSpec, DecoderSpec, MlpLayout, MlpSpec, Names, NormSpec, Qkv};
use crate::weights::{FamilyConfig, ModelConfig, RopeRule};
use rsgen_core::error::Result;

/// The family.
pub(super) const BLOOM: Family = Family {
    config: FamilyConfig {
        architecture: "BloomForCausalLM",
        model_type: "bloom",
        defaults: r#"{
            "vocab_size": 250880, "hidden_size": 64, "intermediate_size": null, "num_hidden_layers": 2,
            "num_attention_heads": 8, "hidden_act": "gelu_new", "rms_norm_eps": 1e-5,
            "tie_word_embeddings": true, "bos_token_id": 1, "eos_token_id": 2
        }"#,
        aliases: &[
            ("hidden_size", "n_embed"),
            ("num_hidden_layers", "n_layer"),
            ("num_attention_heads", "n_head"),
            ("rms_norm_eps", "layer_norm_epsilon"),
            ("max_position_embeddings", "seq_length"),
        ],
        rope: RopeRule::None,
        ..FamilyConfig::LLAMA
    },
    spec,
};

fn spec(config: &ModelConfig) -> Result<DecoderSpec> {
    config
        .fields()
        .refuse("apply_residual_connection_post_layernorm", "a residual stream of normalized rows")?;
    let llama = DecoderSpec::llama(config);
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
        embedding_norm: Some("word_embeddings_layernorm"),
        attention: AttentionSpec {
            qkv: Qkv::Grouped("query_key_value"),
            output: "dense",
            qkv_bias: true,
            output_bias: true,
            alibi: Some(AlibiSpec::new(config.num_attention_heads)),
            ..llama.attention
        },
        mlp: MlpSpec { layout: MlpLayout::Plain { up: "dense_h_to_4h" }, down: "dense_4h_to_h", bias: true },
        ..llama
    })
}
