//! OLMo 3 (Team OLMo, 2025): an OLMo 2 with a window in three of four layers.

use super::Family;
use crate::spec::DecoderSpec;
use crate::weights::{FamilyConfig, ModelConfig, RopeRule, Switch, WindowRule};
use rsgen_core::error::Result;

/// The family.
pub(super) const OLMO3: Family = Family {
    config: FamilyConfig {
        architecture: "Olmo3ForCausalLM",
        model_type: "olmo3",
        defaults: r#"{
            "vocab_size": 50304, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "rope_local_base_freq": 500000.0,
            "sliding_window": 4096, "_full_attention_every": 4, "eos_token_id": 50279, "pad_token_id": 1
        }"#,
        mlp_bias: Switch::Off,
        window: WindowRule::AllBut { field: "_full_attention_every", first: false },
        rope: RopeRule::ByLayerType,
        ..FamilyConfig::LLAMA
    },
    spec,
};

fn spec(config: &ModelConfig) -> Result<DecoderSpec> {
    (super::olmo2::OLMO2.spec)(config)
}
