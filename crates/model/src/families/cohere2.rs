//! Command R7B and Command A (Cohere, 2024): a Command R with a window in three of four layers, and positions in these
//! alone.

use super::Family;
use crate::spec::DecoderSpec;
use crate::weights::{FamilyConfig, ModelConfig, Switch, WindowRule};
use rsgen_core::error::Result;

/// The family.
pub(super) const COHERE2: Family = Family {
    config: FamilyConfig {
        architecture: "Cohere2ForCausalLM",
        model_type: "cohere2",
        defaults: r#"{
            "vocab_size": 256000, "hidden_size": 8192, "intermediate_size": 22528, "num_hidden_layers": 40,
            "num_attention_heads": 64, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0, "logit_scale": 0.0625, "tie_word_embeddings": true, "bos_token_id": 5,
            "eos_token_id": 255001, "pad_token_id": 0,
            "sliding_window": 4096, "sliding_window_pattern": 4
        }"#,
        aliases: &[("rms_norm_eps", "layer_norm_eps"), ("sliding_window_pattern", "_sliding_window_pattern")],
        mlp_bias: Switch::Off,
        window: WindowRule::AllBut { field: "sliding_window_pattern", first: false },
        ..FamilyConfig::LLAMA
    },
    spec,
};

fn spec(config: &ModelConfig) -> Result<DecoderSpec> {
    let cohere = (super::cohere::COHERE.spec)(config)?;
    Ok(DecoderSpec { rotary: cohere.rotary.only(|layer| config.window.is_sliding(layer)), ..cohere })
}
