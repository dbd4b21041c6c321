//! T5 (Raffel et al., arXiv:1910.10683), T5 v1.1, Flan-T5, `ByT5`, MADLAD-400, `CodeT5` and `CoEdIT`: RMS norms before the
//! blocks, no positions but the distance of tokens, scores that are not scaled, and no biases.

use serde_json::{Map, Value};

use super::Family;
use crate::encoder_spec::{CrossSpec, DistanceSpec, EncoderSpec};
use crate::spec::{
    AttentionSpec, DecoderSpec, LogitScale, MlpLayout, MlpSpec, Names, Placement, Qkv, RotarySpec, Scalings,
};
use crate::weights::{FamilyConfig, ModelConfig, RopeRule};
use rsgen_core::error::Result;

/// The family.
pub(super) const T5: Family = Family {
    config: FamilyConfig {
        architecture: "T5ForConditionalGeneration",
        model_type: "t5",
        defaults: r#"{
            "vocab_size": 32128, "hidden_size": 512, "head_dim": 64, "intermediate_size": 2048, "num_hidden_layers": 6,
            "num_layers": 6, "num_attention_heads": 8, "rms_norm_eps": 1e-6, "feed_forward_proj": "relu",
            "relative_attention_num_buckets": 32, "relative_attention_max_distance": 128, "tie_word_embeddings": true,
            "bos_token_id": null, "eos_token_id": 1, "pad_token_id": 0
        }"#,
        aliases: &[
            ("hidden_size", "d_model"),
            ("head_dim", "d_kv"),
            ("intermediate_size", "d_ff"),
            ("num_attention_heads", "num_heads"),
            ("rms_norm_eps", "layer_norm_epsilon"),
        ],
        encoder: Some(&[("num_hidden_layers", "num_layers")]),
        rope: RopeRule::None,
        derive,
        ..FamilyConfig::LLAMA
    },
    spec: |config| spec(config, false),
};

/// The longest text, though it has no end for transformers.
const MOST_TOKENS: usize = 1 << 20;

/// The last distance with a number of its own; models have 128.
const MOST_REACH: usize = 1 << 12;

/// Completes what the configuration class does: the decoder's layers are as many as the encoder's unless it says how
/// many, matrices are tied whatever the file says, and that decides the scale of the outputs.
pub(super) fn derive(fields: &mut Map<String, Value>) {
    let get = |name: &str| fields.get(name).filter(|value| !value.is_null()).cloned();
    let layers = get("num_decoder_layers").or_else(|| get("num_layers"));
    let activation = get("feed_forward_proj").unwrap_or_default();
    let activation = activation.as_str().unwrap_or_default();
    let hidden_act = match activation {
        "gated-gelu" => "gelu_new",
        _ => activation.strip_prefix("gated-").unwrap_or(activation),
    }
    .to_owned();
    let is_scaled = fields.get("tie_word_embeddings") != Some(&Value::Bool(false));
    let is_scaled = get("scale_decoder_outputs").unwrap_or(is_scaled.into());
    for (name, value) in [
        ("num_hidden_layers", layers.unwrap_or_default()),
        ("hidden_act", hidden_act.into()),
        ("scale_decoder_outputs", is_scaled),
        ("tie_word_embeddings", true.into()),
        ("max_position_embeddings", MOST_TOKENS.into()),
    ] {
        fields.insert(name.to_owned(), value);
    }
}

/// A T5; `own_tables` says whether each layer has numbers for distances.
pub(super) fn spec(config: &ModelConfig, own_tables: bool) -> Result<DecoderSpec> {
    let fields = config.fields();
    let is_gated = fields.text("feed_forward_proj")?.is_some_and(|name| name.starts_with("gated-"));
    let buckets = fields.count("relative_attention_num_buckets")?;
    let reach = fields.count("relative_attention_max_distance")?;
    if buckets < 4 {
        return Err(fields.wrong("relative_attention_num_buckets", "at least 4"));
    }
    if reach <= buckets / 2 || reach > MOST_REACH {
        let rule = format!("from {} to {MOST_REACH}", buckets / 2 + 1);
        return Err(fields.wrong("relative_attention_max_distance", &rule));
    }
    let stack = |config: &ModelConfig, base: &'static str| {
        let llama = DecoderSpec::llama(config);
        let is_encoder = base == "encoder";
        let (mlp, norm) = if is_encoder {
            ("layer.1.DenseReluDense", "layer.1.layer_norm")
        } else {
            ("layer.2.DenseReluDense", "layer.2.layer_norm")
        };
        DecoderSpec {
            names: Names {
                base,
                layers: "block",
                norm: Some("final_layer_norm"),
                attention: "layer.0.SelfAttention",
                mlp,
                ..llama.names
            },
            placement: Placement::before("layer.0.layer_norm", norm),
            rotary: RotarySpec::none(config),
            attention: AttentionSpec {
                qkv: Qkv::Separate(["q", "k", "v"]),
                output: "o",
                qkv_bias: false,
                output_bias: false,
                scale: 1.0,
                distances: Some(DistanceSpec {
                    name: "relative_attention_bias.weight",
                    buckets,
                    reach,
                    is_bidirectional: is_encoder,
                    each_layer: own_tables,
                }),
                ..llama.attention
            },
            mlp: MlpSpec {
                layout: if is_gated {
                    MlpLayout::Gated { gate: "wi_0", up: "wi_1" }
                } else {
                    MlpLayout::Plain { up: "wi" }
                },
                down: "wo",
                bias: false,
            },
            ..llama
        }
    };
    let decoder = stack(config, "decoder");
    let is_scaled = fields.is_set("scale_decoder_outputs")?;
    let factor = 1.0 / (config.hidden_size as f32).sqrt();
    let logits = if is_scaled { LogitScale::Times(factor) } else { LogitScale::One };
    Ok(DecoderSpec {
        scalings: Scalings { logits, ..decoder.scalings },
        cross: Some(CrossSpec { scope: "layer.1.EncDecAttention", norm: "layer.1.layer_norm" }),
        encoder: Some(Box::new(EncoderSpec {
            stack: stack(config.encoder.as_deref().unwrap_or(config), "encoder"),
            base: "",
            is_shared: true,
            head_bias: None,
        })),
        ..decoder
    })
}
