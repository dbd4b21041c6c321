//! umT5 (Chung et al., arXiv:2304.09151): mT5 with numbers for distances in each layer, and T5's scale of the outputs.

use super::Family;
use super::mt5::DEFAULTS;
use super::t5::{self, T5};
use crate::weights::FamilyConfig;

/// The family.
pub(super) const UMT5: Family = Family {
    config: FamilyConfig {
        architecture: "UMT5ForConditionalGeneration",
        model_type: "umt5",
        defaults: DEFAULTS,
        ..T5.config
    },
    spec: |config| t5::spec(config, true),
};
