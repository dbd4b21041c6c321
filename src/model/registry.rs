//! The architectures, by the name that `config.json` gives them.

use super::CausalLm;
use super::llama::Llama;
use crate::error::{Error, Result};
use crate::kernels::Workers;
use crate::weights::{ModelConfig, WeightScope};

type Loader = fn(&ModelConfig, &WeightScope<'_>, &Workers) -> Result<Box<dyn CausalLm>>;

/// One line each.
const ARCHITECTURES: &[(&str, Loader)] =
    &[("LlamaForCausalLM", |config, scope, workers| Ok(Box::new(Llama::load(config, scope, workers)?)))];

/// The names of the architectures that [`load`] knows.
pub const SUPPORTED_ARCHITECTURES: &[&str] = &["LlamaForCausalLM"];

/// Loads the model that the configuration describes: `scope` is the root of its tensors.
///
/// # Errors
/// When the architecture is unknown, or when a tensor is missing, has another shape, or is damaged.
pub fn load(config: &ModelConfig, scope: &WeightScope<'_>, workers: &Workers) -> Result<Box<dyn CausalLm>> {
    let known = ARCHITECTURES.iter().find(|(name, _)| *name == config.architecture);
    let (_, loader) = known.ok_or_else(|| {
        Error::load(format!(
            "`architectures` must name one of {}, got {:?}",
            SUPPORTED_ARCHITECTURES.join(", "),
            config.architecture
        ))
    })?;
    loader(config, scope, workers)
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
