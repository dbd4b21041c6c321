//! The supported architectures, by their name in `config.json`.

use super::CausalLm;
use super::decoder::Decoder;
use super::family::Family;
use super::loader::Loader;
use crate::weights::{FamilyConfig, ModelConfig};
use rsgen_core::error::{Error, Result};

/// The registry: a line for each architecture.
const ARCHITECTURES: &[Architecture] = &[
    Architecture::of::<super::llama::Llama>(),
    Architecture::of::<super::mistral::Mistral>(),
    Architecture::of::<super::phi3::Phi3>(),
    Architecture::of::<super::qwen2::Qwen2>(),
    Architecture::of::<super::qwen3::Qwen3>(),
];

/// How an architecture's models are described and loaded.
struct Architecture {
    config: FamilyConfig,
    load: fn(&ModelConfig, &Loader<'_>) -> Result<Box<dyn CausalLm>>,
}

impl Architecture {
    const fn of<F: Family>() -> Self {
        Self { config: F::CONFIG, load: |config, loader| Ok(Box::new(Decoder::load::<F>(config, loader)?)) }
    }
}

/// The families that [`load`] supports, for [`ModelConfig::from_json`].
pub const SUPPORTED_ARCHITECTURES: &[FamilyConfig] = &{
    let mut configs = [ARCHITECTURES[0].config; ARCHITECTURES.len()];
    let mut index = 0;
    while index < configs.len() {
        configs[index] = ARCHITECTURES[index].config;
        index += 1;
    }
    configs
};

/// Loads the model of a configuration; `loader` is the root scope of its tensors.
///
/// # Errors
/// When the architecture is unknown, or when a tensor is missing, has another shape, or is damaged.
pub fn load(config: &ModelConfig, loader: &Loader<'_>) -> Result<Box<dyn CausalLm>> {
    let known = ARCHITECTURES.iter().find(|known| known.config.architecture == config.architecture);
    let known = known.ok_or_else(|| {
        let names: Vec<_> = SUPPORTED_ARCHITECTURES.iter().map(|family| family.architecture).collect();
        let (names, found) = (names.join(", "), &config.architecture);
        Error::load(format!("`architectures` must name one of {names}, got {found:?}"))
    })?;
    (known.load)(config, loader)
}
