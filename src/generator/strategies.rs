//! The methods that are named after a strategy.

use super::{Generator, Prompts};
use crate::engine::GenerationOutput;
use crate::error::Result;
use crate::generation::{GenerationConfig, GenerationMode, Strategy, for_each_search};

macro_rules! methods {
    ($( $file:ident { $(
        $(#[doc = $doc:literal])* $name:ident $mode:ident when $condition:ident $entry:tt
    )* } )*) => {
        impl Generator {
            $($(
                $(#[doc = $doc])*
                ///
                /// # Errors
                /// As for [`Generator::generate`]; and when a field is set that makes it another strategy.
                pub fn $name(
                    &self,
                    prompts: impl Into<Prompts>,
                    config: &GenerationConfig,
                ) -> Result<GenerationOutput> {
                    let strategy = Strategy::of(GenerationMode::$mode);
                    self.generate(prompts, &strategy.apply(config, &GenerationConfig::new())?)
                }
            )*)*
        }
    };
}

for_each_search!(methods);
