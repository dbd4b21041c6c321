//! M2M100 (Fan et al., arXiv:2010.11125) and NLLB: norms before the blocks, and positions without end that skip padding.

use super::Family;
use super::bart::{BART, Norms, like_bart};
use crate::encoder_spec::PositionSpec;
use crate::spec::DecoderSpec;
use crate::weights::{FamilyConfig, ModelConfig};
use rsgen_core::error::Result;

/// The family.
pub(super) const M2M_100: Family = Family {
    config: FamilyConfig {
        architecture: "M2M100ForConditionalGeneration",
        model_type: "m2m_100",
        defaults: r#"{
            "vocab_size": 128112, "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 12,
            "num_attention_heads": 16, "max_position_embeddings": 1024, "hidden_act": "relu",
            "tie_word_embeddings": true, "scale_embedding": true, "bos_token_id": 0, "eos_token_id": 2,
            "pad_token_id": 1
        }"#,
        ..BART.config
    },
    spec,
};

fn spec(config: &ModelConfig) -> Result<DecoderSpec> {
    let fields = config.fields();
    let pad = config
        .pad_token_id
        .ok_or_else(|| fields.wrong("pad_token_id", "a token id: positions begin after it"))?;
    if config.hidden_size < 4 {
        return Err(fields.wrong("d_model", "at least 4: positions have two waves or more"));
    }
    like_bart(config, Norms::Before, PositionSpec::SkippingPad(pad), None)
}
