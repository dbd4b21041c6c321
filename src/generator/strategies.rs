//! The methods of [`Generator`] that are named after a strategy.

use super::{Generator, Prompts};
use crate::engine::GenerationOutput;
use rsgen_core::Result;
use rsgen_generation::{GenerationConfig, GenerationMode, Strategy, strategies};

/// Writes a method for each strategy: its name, and the mode that it selects.
macro_rules! methods {
    ($( $name:ident $mode:ident $doc:literal; )*) => {
        impl Generator {
            $(
                #[doc = $doc]
                ///
                /// # Errors
                /// As for [`Generator::generate`]; and when a field is set that makes it another strategy.
                pub fn $name(
                    &self,
                    prompts: impl Into<Prompts>,
                    config: &GenerationConfig,
                ) -> Result<GenerationOutput> {
                    self.by_strategy(GenerationMode::$mode, prompts.into(), config)
                }
            )*
        }
    };
}

strategies!(methods);

impl Generator {
    /// Generates with the fields of a call, completed with those of the strategy that selects `mode`.
    fn by_strategy(
        &self,
        mode: GenerationMode,
        prompts: Prompts,
        config: &GenerationConfig,
    ) -> Result<GenerationOutput> {
        let config = Strategy::of(mode).apply(config, &GenerationConfig::new())?;
        self.call(prompts).config(&config).mode(mode).run()
    }
}
