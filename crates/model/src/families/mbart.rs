//! mBART (Liu et al., arXiv:2001.08210), of 25 and of 50 languages: BART with norms before the blocks, and a last one.

use super::Family;
use super::bart::{BART, EMBEDDING_NORM, LEARNED, Norms, like_bart};
use crate::spec::DecoderSpec;
use crate::weights::{FamilyConfig, ModelConfig};
use rsgen_core::error::Result;

/// The family.
pub(super) const MBART: Family = Family {
    config: FamilyConfig {
        architecture: "MBartForConditionalGeneration",
        model_type: "mbart",
        ..BART.config
    },
    spec,
};

fn spec(config: &ModelConfig) -> Result<DecoderSpec> {
    like_bart(config, Norms::Before, LEARNED, EMBEDDING_NORM)
}
