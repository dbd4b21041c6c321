//! The extension module `rsgen._rsgen`: the façade as Python classes.
//!
//! Conversion and nothing else: arguments in, results out, errors to exceptions, the interpreter released
//! while the model computes. One file per class, and one per thing that classes share.
//!
//! The documentation comments of classes, methods and properties are docstrings of Python, in Google's form:
//! `help()` shows them, and `make stubs` reads the types of `Args:`, `Returns:` and properties (`type: What
//! it is.`) for the stub.
#![allow(
    clippy::doc_markdown,
    clippy::doc_link_with_quotes,
    reason = "docstrings name types and values as Python does"
)]

#[macro_use]
mod errors;
#[macro_use]
mod built_in;

mod abc;
mod adapters;
mod arrays;
mod astream;
mod batch;
mod callbacks;
mod caller_constraint;
mod calls;
mod chat;
mod chat_methods;
mod chat_template;
mod closing;
mod command;
mod config;
mod constraints;
mod drop_detached;
mod embeddings;
mod events;
mod executor;
mod exit;
mod field_values;
mod generator;
mod held;
mod in_memory;
mod json;
mod kept_cache;
mod languages;
mod large_arguments;
mod layer_states;
mod logging;
mod map;
mod opening;
mod options;
mod output;
mod output_type;
mod output_values;
mod pack;
mod panics;
mod pickle;
mod processors;
mod progress;
mod prompts;
mod rank;
mod reasoning;
mod results;
mod row_file;
mod scores;
mod seed;
mod serve;
mod signals;
mod stopping_criteria;
mod strategies;
mod stream;
mod streamer;
mod submit;
mod synthid_detector;
mod tables;
mod token_trie;
mod tokenizer;
mod tokenizer_files;
mod tool_calls;
mod translate;
mod vocabulary;
mod walk;
mod watermark_detector;
mod watermarking;

use pyo3::prelude::*;

#[cfg(not(panic = "unwind"))]
compile_error!("a panic must become an exception, so it has to unwind");

/// The extension module.
#[pymodule]
mod _rsgen {
    use pyo3::prelude::*;
    use pyo3::types::PyDict;

    #[pymodule_export]
    use super::command::run;
    #[pymodule_export]
    use super::config::GenerationConfig;
    #[pymodule_export]
    use super::constraints::{BuiltInConstraint, check_constraint};
    #[pymodule_export]
    use super::events::EventStream;
    #[pymodule_export]
    use super::generator::Generator;
    #[pymodule_export]
    use super::in_memory::read_file;
    #[pymodule_export]
    use super::in_memory::replace_file;
    #[pymodule_export]
    use super::kept_cache::KeptCache;
    #[pymodule_export]
    use super::output::GenerationOutput;
    #[pymodule_export]
    use super::pack::pack;
    #[pymodule_export]
    use super::processors::BuiltInLogitsProcessor;
    #[pymodule_export]
    use super::row_file::FinishedRows;
    #[pymodule_export]
    use super::seed::Seed;
    #[pymodule_export]
    use super::serve::serve;
    #[pymodule_export]
    use super::stopping_criteria::BuiltInStoppingCriteria;
    #[pymodule_export]
    use super::stream::TokenStream;
    #[pymodule_export]
    use super::synthid_detector::{BayesianDetectorModel, SynthIDTextWatermarkDetector};
    #[pymodule_export]
    use super::tables::tables;
    #[pymodule_export]
    use super::token_trie::TokenTrie;
    #[pymodule_export]
    use super::tokenizer::Tokenizer;
    #[pymodule_export]
    use super::watermark_detector::WatermarkDetector;
    #[pymodule_export]
    use super::watermarking::check;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let py = module.py();
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        super::panics::install();
        #[cfg(debug_assertions)]
        super::panics::on_purpose::add_to(module)?;
        super::exit::prepare(module)?;
        super::config::add_fields_to(&py.get_type::<GenerationConfig>())?;
        let strategies = PyDict::new(py);
        for strategy in rsgen_generation::Strategy::ALL {
            strategies.set_item(strategy.name, strategy.doc)?;
        }
        let name_fields = py.import("rsgen._signatures")?.getattr("name_fields")?;
        name_fields.call1((py.get_type::<GenerationConfig>(), &strategies))?;
        name_fields.call1((py.get_type::<Generator>(), strategies)).map(drop)
    }
}
