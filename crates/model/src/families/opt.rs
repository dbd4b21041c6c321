//! OPT (Zhang et al., arXiv:2205.01068): learned positions from 2 on, `ReLU`, and in one size norms after the sums and
//! projections around the layers.

use super::Family;
use crate::encoder_spec::PositionSpec;
use crate::spec::{
    AttentionSpec, DecoderSpec, MlpLayout, MlpSpec, Names, NormSpec, NormWeight, Placement, Residual,
};
use crate::weights::{FamilyConfig, ModelConfig, RopeRule};
use rsgen_core::error::Result;

/// The family.
pub(super) const OPT: Family = Family {
    config: FamilyConfig {
        architecture: "OPTForCausalLM",
        model_type: "opt",
        defaults: r#"{
            "vocab_size": 50272, "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
            "num_attention_heads": 12, "max_position_embeddings": 2048, "hidden_act": "relu",
            "rms_norm_eps": 1e-5, "do_layer_norm_before": true, "enable_bias": true,
            "layer_norm_elementwise_affine": true, "tie_word_embeddings": true, "bos_token_id": 2,
            "eos_token_id": 2, "pad_token_id": 1
        }"#,
        aliases: &[("intermediate_size", "ffn_dim"), ("hidden_act", "activation_function")],
        rope: RopeRule::None,
        ..FamilyConfig::LLAMA
    },
    spec,
};

fn spec(config: &ModelConfig) -> Result<DecoderSpec> {
    let fields = config.fields();
    let llama = DecoderSpec::llama(config);
    let bias = fields.is_set("enable_bias")?;
    let width = fields.integer("word_embed_proj_dim", 1..=1 << 16)?;
    let (attention, mlp) = ("self_attn_layer_norm", "final_layer_norm");
    let is_before = fields.is_set("do_layer_norm_before")?;
    let after_sums = Placement {
        inputs: [None, None],
        outputs: [Some(attention), Some(mlp)],
        residual: Residual::NormOfSum,
    };
    let has_norm = is_before && !fields.is_set("_remove_final_layer_norm")?;
    let norm = NormSpec::layer(config);
    let is_affine = fields.is_set("layer_norm_elementwise_affine")?;
    Ok(DecoderSpec {
        names: Names {
            base: "model.decoder",
            norm: has_norm.then_some("final_layer_norm"),
            mlp: "",
            embedding_width: width.filter(|&width| width != config.hidden_size),
            ..llama.names
        },
        norm: if is_affine { norm } else { NormSpec { weight: NormWeight::Ones, bias: false, ..norm } },
        placement: if is_before { Placement::before(attention, mlp) } else { after_sums },
        positions: Some(PositionSpec::Learned { name: "embed_positions", offset: 2 }),
        attention: AttentionSpec { output: "out_proj", qkv_bias: bias, output_bias: bias, ..llama.attention },
        mlp: MlpSpec { layout: MlpLayout::Plain { up: "fc1" }, down: "fc2", bias },
        ..llama
    })
}
