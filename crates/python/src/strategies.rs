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
                    text_signature = "($self, prompt=None, generation_config=None, *, input_ids=None, inputs=None, \
                                      attention_mask=None, inputs_embeds=None, decoder_input_ids=None, decoder_attention_mask=None, logits_processor=None, prefix_allowed_tokens_fn=None, allowed_sequences=None, stopping_criteria=None, \
                                      constraints=None, adapter=None, streamer=None, assistant_model=None, cache=None, past_key_values=None, return_cache=False, output_type=None, describe_output=False, progress=None, **fields)"
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
