//! How a family of models differs from llama: the defaults of its `config.json`, and its layers.

use super::layers::LayerParts;
use crate::weights::{FamilyConfig, ModelConfig};

/// A family of llama-like models.
pub(super) trait Family {
    /// How `config.json` is read.
    const CONFIG: FamilyConfig;

    /// The parts of a layer.
    fn layer_parts(config: &ModelConfig) -> LayerParts;
}
