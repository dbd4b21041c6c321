//! The architectures, by the name that `config.json` gives them.

use super::CausalLm;
use super::llama::Llama;
use super::loader::Loader;
use crate::error::{Error, Result};
use crate::weights::ModelConfig;

type Load = fn(&ModelConfig, &Loader<'_>) -> Result<Box<dyn CausalLm>>;

/// One line each.
const ARCHITECTURES: &[(&str, Load)] =
    &[("LlamaForCausalLM", |config, loader| Ok(Box::new(Llama::load(config, loader)?)))];

/// The names of the architectures that [`load`] knows.
pub const SUPPORTED_ARCHITECTURES: &[&str] = &["LlamaForCausalLM"];

/// Loads the model that the configuration describes: `loader` is the root of its tensors.
///
/// # Errors
/// When the architecture is unknown, or when a tensor is missing, has another shape, or is damaged.
pub fn load(config: &ModelConfig, loader: &Loader<'_>) -> Result<Box<dyn CausalLm>> {
    let known = ARCHITECTURES.iter().find(|(name, _)| *name == config.architecture);
    let (_, load) = known.ok_or_else(|| {
        Error::load(format!(
            "`architectures` must name one of {}, got {:?}",
            SUPPORTED_ARCHITECTURES.join(", "),
            config.architecture
        ))
    })?;
    load(config, loader)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_names_is_that_of_the_table() {
        let names: Vec<_> = ARCHITECTURES.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, SUPPORTED_ARCHITECTURES);
    }
}
