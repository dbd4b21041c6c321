//! GPT-J and CodeGen's relative (Wang and Komatsuzaki, 2021): attention and MLP side by side, and rotated pairs of
//! neighbours.

use super::Family;
use crate::spec::{
    AttentionSpec, DecoderSpec, MlpLayout, MlpSpec, Names, NormSpec, Placement, Residual, RotarySpec,
};
use crate::weights::{FamilyConfig, ModelConfig, RopeRule, Switch};
use rsgen_core::error::Result;
use rsgen_kernels::RotaryPairs;

/// The family.
pub(super) const GPTJ: Family = Family {
    config: FamilyConfig {
        architecture: "GPTJForCausalLM",
        model_type: "gptj",
        defaults: r#"{
            "vocab_size": 50400, "hidden_size": 4096, "intermediate_size": null, "num_hidden_layers": 28,
            "num_attention_heads": 16, "max_position_embeddings": 2048, "hidden_act": "gelu_new",
            "rms_norm_eps": 1e-5, "rotary_dim": 64, "bos_token_id": 50256, "eos_token_id": 50256
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
        attention_bias: Switch::Off,
        rope: RopeRule::Dims,
        ..FamilyConfig::LLAMA
    },
    spec,
};

fn spec(config: &ModelConfig) -> Result<DecoderSpec> {
    let llama = DecoderSpec::llama(config);
    Ok(DecoderSpec {
        names: Names {
            base: "transformer",
            embedding: "wte",
            layers: "h",
            norm: Some("ln_f"),
            head_bias: true,
            attention: "attn",
            ..llama.names
        },
        norm: NormSpec::layer(config),
        placement: Placement {
            inputs: [Some("ln_1"), Some("ln_1")],
            outputs: [None, None],
            residual: Residual::ParallelSum,
        },
        rotary: RotarySpec::of(config, RotaryPairs::Interleaved),
        attention: AttentionSpec { output: "out_proj", ..llama.attention },
        mlp: MlpSpec { layout: MlpLayout::Plain { up: "fc_in" }, down: "fc_out", bias: true },
        ..llama
    })
}
