//! Gemma (Gemma Team, arXiv:2403.08295): a llama with scaled embeddings, GELU and norms around 1.

use super::Family;
use crate::spec::{DecoderSpec, Scalings};
use crate::weights::{FamilyConfig, ModelConfig, Switch};
use rsgen_core::error::Result;
use serde_json::{Map, Value};

/// The family.
pub(super) const GEMMA: Family = Family {
    config: FamilyConfig {
        architecture: "GemmaForCausalLM",
        model_type: "gemma",
        defaults: r#"{
            "vocab_size": 256000, "hidden_size": 3072, "intermediate_size": 24576, "num_hidden_layers": 28,
            "num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 256,
            "hidden_act": "gelu_pytorch_tanh", "max_position_embeddings": 8192, "tie_word_embeddings": true,
            "bos_token_id": 2, "eos_token_id": 1, "pad_token_id": 0
        }"#,
        mlp_bias: Switch::Off,
        derive: tanh,
        ..FamilyConfig::LLAMA
    },
    spec,
};

fn spec(config: &ModelConfig) -> Result<DecoderSpec> {
    config.fields().refuse("use_bidirectional_attention", "attention to later tokens")?;
    let llama = DecoderSpec::llama(config);
    Ok(DecoderSpec {
        norm: llama.norm.one_plus(),
        scalings: Scalings { embedding: (config.hidden_size as f64).sqrt() as f32, ..llama.scalings },
        ..llama
    })
}

/// The official files say `gelu`, and mean its approximation.
fn tanh(fields: &mut Map<String, Value>) {
    if fields.get("hidden_act").and_then(Value::as_str) == Some("gelu") {
        fields.insert("hidden_act".to_owned(), "gelu_pytorch_tanh".into());
    }
}
