//! GPT-2 (Radford et al., 2019), as transformers' `GPT2LMHeadModel` computes it: learned positions, layer norms, one
//! projection for queries, keys and values, and an MLP without gates.

use super::Family;
use crate::encoder_spec::PositionSpec;
use crate::spec::{AttentionSpec, DecoderSpec, MlpLayout, MlpSpec, Names, NormSpec, Placement, Qkv};
use crate::weights::{FamilyConfig, ModelConfig, RopeRule};
use rsgen_core::error::Result;

/// The family.
pub(super) const GPT2: Family = Family {
    config: FamilyConfig {
        architecture: "GPT2LMHeadModel",
        model_type: "gpt2",
        defaults: r#"{
            "vocab_size": 50257, "hidden_size": 768, "intermediate_size": null, "num_hidden_layers": 12,
            "num_attention_heads": 12, "max_position_embeddings": 1024, "hidden_act": "gelu_new", "rms_norm_eps": 1e-5,
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
        ..FamilyConfig::LLAMA
    },
    spec,
};

fn spec(config: &ModelConfig) -> Result<DecoderSpec> {
    let fields = config.fields();
    fields.refuse("add_cross_attention", "attention to an encoder")?;
    let llama = DecoderSpec::llama(config);
    let scale = if config.fields().is_set("scale_attn_weights")? { llama.attention.scale } else { 1.0 };
    Ok(DecoderSpec {
        names: Names {
            base: "transformer",
            embedding: "wte",
            layers: "h",
            norm: Some("ln_f"),
            attention: "attn",
            conv1d: true,
            ..llama.names
        },
        norm: NormSpec::layer(config),
        placement: Placement::before("ln_1", "ln_2"),
        positions: Some(PositionSpec::Learned { name: "wpe", offset: 0 }),
        attention: AttentionSpec {
            qkv: Qkv::Stacked("c_attn"),
            output: "c_proj",
            qkv_bias: true,
            output_bias: true,
            scale,
            inverse_layer_scale: fields.is_set("scale_attn_by_inverse_layer_idx")?,
            ..llama.attention
        },
        mlp: MlpSpec { layout: MlpLayout::Plain { up: "c_fc" }, down: "c_proj", bias: true },
        ..llama
    })
}
