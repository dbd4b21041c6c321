//! Gemma 3 (Gemma Team, arXiv:2503.19786): a Gemma 2 with normalized heads in place of bent scores, and a rotary
//! embedding of its own for layers with a window.

use super::Family;
use crate::spec::{AttentionSpec, DecoderSpec, HeadNormSpec};
use crate::weights::{FamilyConfig, ModelConfig, RopeRule, Switch, WindowRule};
use rsgen_core::error::Result;

/// The family.
pub(super) const GEMMA3: Family = Family {
    config: FamilyConfig {
        architecture: "Gemma3ForCausalLM",
        model_type: "gemma3_text",
        defaults: r#"{
            "vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
            "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
            "hidden_act": "gelu_pytorch_tanh", "max_position_embeddings": 131072, "query_pre_attn_scalar": 256,
            "sliding_window": 4096, "sliding_window_pattern": 6, "rope_theta": 1000000.0,
            "rope_local_base_freq": 10000.0,
            "tie_word_embeddings": true, "bos_token_id": 2, "eos_token_id": 1, "pad_token_id": 0
        }"#,
        aliases: &[
            ("hidden_act", "hidden_activation"),
            ("sliding_window_pattern", "_sliding_window_pattern"),
        ],
        mlp_bias: Switch::Off,
        window: WindowRule::AllBut { field: "sliding_window_pattern", first: false },
        rope: RopeRule::ByLayerType,
        ..FamilyConfig::LLAMA
    },
    spec,
};

fn spec(config: &ModelConfig) -> Result<DecoderSpec> {
    // Its files may have `attn_logit_softcapping`, which transformers does not use.
    let gemma2 = (super::gemma2::GEMMA2.spec)(config)?;
    let head_norms = Some(HeadNormSpec::each(gemma2.norm));
    Ok(DecoderSpec { attention: AttentionSpec { softcap: None, head_norms, ..gemma2.attention }, ..gemma2 })
}
