//! The methods that are named after a strategy.

use super::{Generator, Prompts};
use crate::engine::GenerationOutput;
use crate::error::Result;
use crate::generation::{GenerationConfig, Strategy, for_each_strategy};

macro_rules! methods {
    ($( $(#[doc = $doc:literal])* $name:ident $constant:ident $preset:tt )*) => {
        impl Generator {
            $(
                $(#[doc = $doc])*
                ///
                /// # Errors
                /// As for [`Generator::generate`]; and when a field is set that makes it another strategy.
                pub fn $name(
                    &self,
                    prompts: impl Into<Prompts>,
                    config: &GenerationConfig,
                ) -> Result<GenerationOutput> {
                    self.generate(prompts, &Strategy::$constant.apply(config, &GenerationConfig::new())?)
                }
            )*
        }
    };
}

for_each_strategy!(methods);
