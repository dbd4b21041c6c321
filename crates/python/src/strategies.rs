//! The methods of `Generator` that are named after a strategy.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::calls::{Arguments, Given, Method};
use super::errors::guarded;
use super::generator::Generator;
use super::output::GenerationOutput;
use rsgen_generation::{GenerationMode, Strategy, strategies};

/// Writes a method for each strategy: its name, and the mode that it selects.
macro_rules! methods {
    ($( $name:ident $mode:ident $doc:literal; )*) => {
        #[guarded]
        #[pymethods]
        impl Generator {
            $(
                #[pyo3(
                    signature = (prompt=None, generation_config=None, **keywords),
                    text_signature = "($self, prompt=None, generation_config=None, **fields)"
                )]
                fn $name<'py>(
                    &self,
                    py: Python<'py>,
                    prompt: Option<&Bound<'py, PyAny>>,
                    generation_config: Option<&Bound<'py, PyAny>>,
                    keywords: Option<&Bound<'py, PyDict>>,
                ) -> PyResult<GenerationOutput> {
                    let strategy = Strategy::of(GenerationMode::$mode);
                    let method = Method { name: strategy.name, strategy: Some(strategy), to_the_end: false };
                    self.run(py, &method, &Arguments { given: Given::Prompt(prompt), generation_config, keywords })
                }
            )*
        }
    };
}

strategies!(methods);
