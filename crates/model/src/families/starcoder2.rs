//! StarCoder2 (Lozhkov et al., arXiv:2402.19173): a llama with layer norms and an MLP without gates.

use super::Family;
use crate::spec::{DecoderSpec, MlpLayout, MlpSpec, NormSpec};
use crate::weights::{FamilyConfig, ModelConfig, WindowRule};
use rsgen_core::error::Result;

/// The family.
pub(super) const STARCODER2: Family = Family {
    config: FamilyConfig {
        architecture: "Starcoder2ForCausalLM",
        model_type: "starcoder2",
        defaults: r#"{
            "vocab_size": 49152, "hidden_size": 3072, "intermediate_size": 12288, "num_hidden_layers": 30,
            "num_attention_heads": 24, "num_key_value_heads": 2, "max_position_embeddings": 4096,
            "hidden_act": "gelu_pytorch_tanh", "rms_norm_eps": 1e-5, "attention_bias": true, "mlp_bias": true,
            "tie_word_embeddings": true, "bos_token_id": 50256, "eos_token_id": 50256
        }"#,
        aliases: &[
            ("rms_norm_eps", "norm_epsilon"),
            ("attention_bias", "use_bias"),
            ("mlp_bias", "use_bias"),
        ],
        window: WindowRule::AllLayers,
        ..FamilyConfig::LLAMA
    },
    spec,
};

fn spec(config: &ModelConfig) -> Result<DecoderSpec> {
    let llama = DecoderSpec::llama(config);
    Ok(DecoderSpec {
        norm: NormSpec::layer(config),
        mlp: MlpSpec { layout: MlpLayout::Plain { up: "c_fc" }, down: "c_proj", bias: config.mlp_bias },
        ..llama
    })
}
