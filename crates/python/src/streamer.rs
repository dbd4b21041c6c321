//! Streamers: a caller's objects that receive the ids of a running call, by transformers' protocol.
//!
//! They run attached to Python, on the caller's thread and between passes. An exception ends the call.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::arrays::{array, ids, wide};
use super::callbacks::no_class;
use super::errors::to_python;
use super::logging;
use super::prompts::shown;
use super::signals::interruptible;
use rsgen::engine::GenerationOutput;
use rsgen::generator::Prepared;
use rsgen_core::types::TokenId;

/// An object with the methods `put` and `end`.
pub(super) struct Streamer<'py>(Bound<'py, PyAny>);

impl<'py> Streamer<'py> {
    /// Takes the argument out of the keywords of a call, which are that call's own.
    ///
    /// # Errors
    /// `TypeError` for an object without these methods.
    pub(super) fn take(keywords: Option<&Bound<'py, PyDict>>) -> PyResult<Option<Self>> {
        let Some(keywords) = keywords else { return Ok(None) };
        let Some(object) = keywords.get_item("streamer")? else { return Ok(None) };
        keywords.del_item("streamer")?;
        if object.is_none() {
            return Ok(None);
        }
        no_class("streamer", &object)?;
        for method in ["put", "end"] {
            if !object.getattr_opt(method)?.is_some_and(|method| method.is_callable()) {
                return Err(type_error!(
                    "`streamer` must be an object with the methods put(ids) and end(), got {}, which has no {method}; \
                     rsgen.TextStreamer(tokenizer) prints, and `gen.stream(...)` needs no streamer",
                    shown(&object)
                ));
            }
        }
        Ok(Some(Self(object)))
    }

    /// Runs a call. Puts the prompt, `[1, len]`, then each new token, `[1]`.
    ///
    /// # Errors
    /// `ConfigError` when there is more than one row; the errors of the call; what the object raises.
    pub(super) fn run(&self, prepared: Prepared<'_>) -> PyResult<GenerationOutput> {
        let py = self.0.py();
        let (requests, rows) = (prepared.num_requests(), prepared.num_rows());
        if rows > 1 {
            let got = if requests > 1 { format!("{requests} prompts") } else { format!("{rows} rows") };
            return Err(config_error!(
                py,
                "`streamer` takes one prompt and one returned row, got {got}; set num_return_sequences=1 and give one \
                     prompt, or use `stream`, whose tokens say their row"
            ));
        }
        let put = |ids: Bound<'py, PyAny>| self.0.call_method1("put", (ids,));
        let put_prompt = |prompt: &[TokenId]| -> PyResult<_> {
            let prompt: Vec<i64> = prompt.iter().copied().map(wide).collect();
            put(array(py, (1, prompt.len()), prompt)?)
        };
        // A prompt that is healed is known with the first token.
        let mut is_put = !prepared.heals_prompts();
        if is_put {
            put_prompt(prepared.prompt_ids())?;
        }
        let mut stream = prepared.stream().map_err(|error| to_python(py, error))?;
        loop {
            // Loops in C, such as those of a streamer that is fast, run no handlers between the tokens.
            py.check_signals()?;
            let next = interruptible(py, |interrupted| stream.next_token(interrupted));
            logging::flush(py);
            let Some(token) = next? else { break };
            if !std::mem::replace(&mut is_put, true) {
                put_prompt(stream.prompt_ids())?;
            }
            put(ids(py, &[token.id])?)?;
        }
        self.0.call_method0("end")?;
        stream.into_output().map_err(|error| to_python(py, error))
    }
}
