//! BART (Lewis et al., arXiv:1910.13461): an encoder and a decoder with norms after the sums, and learned positions from
//! 2 on. Others differ from it in positions and in the place of norms.

use super::Family;
use crate::encoder_spec::{CrossSpec, EncoderSpec, PositionSpec};
use crate::spec::{
    AttentionSpec, DecoderSpec, MlpLayout, MlpSpec, Names, NormSpec, NormWeight, Placement, Residual,
    Scalings,
};
use crate::weights::{FamilyConfig, ModelConfig, RopeRule};
use rsgen_core::error::Result;
use rsgen_kernels::NormKind;

/// The family.
pub(super) const BART: Family = Family {
    config: FamilyConfig {
        architecture: "BartForConditionalGeneration",
        model_type: "bart",
        defaults: r#"{
            "vocab_size": 50265, "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 12,
            "num_attention_heads": 16, "max_position_embeddings": 1024, "hidden_act": "gelu",
            "tie_word_embeddings": true, "scale_embedding": false, "bos_token_id": 0, "eos_token_id": 2,
            "pad_token_id": 1
        }"#,
        aliases: &[
            ("hidden_size", "d_model"),
            ("intermediate_size", "decoder_ffn_dim"),
            ("num_hidden_layers", "decoder_layers"),
            ("num_attention_heads", "decoder_attention_heads"),
            ("hidden_act", "activation_function"),
        ],
        encoder: Some(&[
            ("intermediate_size", "encoder_ffn_dim"),
            ("num_hidden_layers", "encoder_layers"),
            ("num_attention_heads", "encoder_attention_heads"),
        ]),
        rope: RopeRule::None,
        ..FamilyConfig::LLAMA
    },
    spec,
};

/// Learned positions.
pub(super) const LEARNED: PositionSpec = PositionSpec::Learned { name: "embed_positions", offset: 2 };
/// The norm of embeddings.
pub(super) const EMBEDDING_NORM: Option<&str> = Some("layernorm_embedding");

/// Where the norms of layers are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Norms {
    Before,
    After,
}

fn spec(config: &ModelConfig) -> Result<DecoderSpec> {
    like_bart(config, Norms::After, LEARNED, EMBEDDING_NORM)
}

/// A family with these positions and norms.
pub(super) fn like_bart(
    config: &ModelConfig,
    norms: Norms,
    positions: PositionSpec,
    embedding_norm: Option<&'static str>,
) -> Result<DecoderSpec> {
    let is_shared = config.fields().flag("share_encoder_decoder_embeddings")?.unwrap_or(true);
    let stack = |config: &ModelConfig, base: &'static str| {
        let llama = DecoderSpec::llama(config);
        let (attention, mlp) = ("self_attn_layer_norm", "final_layer_norm");
        let (placement, norm) = match norms {
            Norms::Before => (Placement::before(attention, mlp), Some("layer_norm")),
            Norms::After => {
                let outputs = [Some(attention), Some(mlp)];
                (Placement { inputs: [None, None], outputs, residual: Residual::NormOfSum }, None)
            }
        };
        let is_scaled = config.fields().is_set("scale_embedding")?;
        let embedding = if is_scaled { (config.hidden_size as f32).sqrt() } else { 1.0 };
        Ok(DecoderSpec {
            names: Names { base, norm, mlp: "", ..llama.names },
            // Not that of the configuration, but of torch.
            norm: NormSpec { kind: NormKind::Layer, eps: 1e-5, weight: NormWeight::Stored, bias: true },
            embedding_norm,
            placement,
            positions: Some(positions),
            attention: AttentionSpec {
                output: "out_proj",
                qkv_bias: true,
                output_bias: true,
                ..llama.attention
            },
            mlp: MlpSpec { layout: MlpLayout::Plain { up: "fc1" }, down: "fc2", bias: true },
            scalings: Scalings { embedding, ..llama.scalings },
            ..llama
        })
    };
    let source = config.encoder.as_deref().unwrap_or(config);
    Ok(DecoderSpec {
        cross: Some(CrossSpec { scope: "encoder_attn", norm: "encoder_attn_layer_norm" }),
        encoder: Some(Box::new(EncoderSpec {
            stack: stack(source, "model.encoder")?,
            base: "model",
            is_shared,
            head_bias: Some("final_logits_bias"),
        })),
        ..stack(config, "model.decoder")?
    })
}
