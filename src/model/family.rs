//! What a family of models says of itself: how its `config.json` is read, and what its layers are put together from.

use super::layers::LayerParts;
use crate::weights::{FamilyConfig, ModelConfig};

/// A family of models that are llamas but for what is said here.
pub(super) trait Family {
    /// How `config.json` is read.
    const CONFIG: FamilyConfig;

    /// What the layers of a model are put together from.
    fn layer_parts(config: &ModelConfig) -> LayerParts;
}
