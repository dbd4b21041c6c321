//! Pegasus (Zhang et al., arXiv:1912.08777): mBART with the positions of Marian, and no norm of the embeddings.

use super::Family;
use super::bart::{BART, Norms, like_bart};
use super::marian::SINUSOIDS;
use crate::spec::DecoderSpec;
use crate::weights::{FamilyConfig, ModelConfig};
use rsgen_core::error::Result;

/// The family.
pub(super) const PEGASUS: Family = Family {
    config: FamilyConfig {
        architecture: "PegasusForConditionalGeneration",
        model_type: "pegasus",
        defaults: r#"{
            "vocab_size": 50265, "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 12,
            "num_attention_heads": 16, "max_position_embeddings": 1024, "hidden_act": "gelu",
            "tie_word_embeddings": true, "scale_embedding": false, "bos_token_id": null, "eos_token_id": 1,
            "pad_token_id": 0
        }"#,
        ..BART.config
    },
    spec,
};

fn spec(config: &ModelConfig) -> Result<DecoderSpec> {
    like_bart(config, Norms::Before, SINUSOIDS, None)
}
