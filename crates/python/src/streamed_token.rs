//! The class `StreamedToken`: what a stream gives.

use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

use super::errors::guarded;
use super::pickle::{self, Restored};
use rsgen::engine;

/// A generated token. `str()` is its text.
#[pyclass(module = "rsgen", name = "StreamedToken", frozen, eq, get_all)]
#[derive(PartialEq)]
pub(super) struct StreamedToken {
    /// int: The token id.
    id: u32,
    /// str: The text that it adds: empty while a character is incomplete, and for special tokens.
    ///
    /// The texts of a row, joined, are the text of its output.
    text: String,
    /// int: The row that it belongs to. Several return sequences take turns; with beams, those
    /// after the best one come at the end.
    index: usize,
    /// float: Its log-probability under the model's own logits, in nats.
    ///
    /// NaN for an end-of-sequence token that a beam search has appended without choosing it.
    logprob: f32,
    /// float: Its score after all processors, as in `GenerationOutput.scores`. Not normalized.
    score: f32,
    /// FinishReason | None: Why the row ends with this token, if it does.
    finish_reason: Option<&'static str>,
}

/// The fields of a token, in their order.
type TokenValues = (u32, String, usize, f32, f32, Option<String>);

impl From<engine::StreamedToken> for StreamedToken {
    fn from(token: engine::StreamedToken) -> Self {
        Self {
            id: token.id.0,
            text: token.text,
            index: token.index,
            logprob: token.logprob,
            score: token.score,
            finish_reason: token.finish_reason.map(rsgen_core::types::FinishReason::as_str),
        }
    }
}

#[guarded]
#[pymethods]
impl StreamedToken {
    fn __str__(&self) -> &str {
        self.text.as_str()
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let Self { id, text, index, logprob, score, finish_reason } = self;
        let (text, finish_reason) = (PyString::new(py, text), finish_reason.into_pyobject(py)?);
        Ok(format!(
            "StreamedToken(id={id}, text={}, index={index}, logprob={logprob:.4}, score={score:.4}, finish_reason={})",
            text.repr()?,
            finish_reason.repr()?
        ))
    }

    /// Returns the values, for pickle.
    ///
    /// Returns:
    ///     tuple[Any, tuple[Any]]: For pickle.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Restored<'py, TokenValues>> {
        let Self { id, text, index, logprob, score, finish_reason } = slf.get();
        let finish_reason = finish_reason.map(str::to_owned);
        Ok((pickle::restorer(slf)?, ((*id, text.clone(), *index, *logprob, *score, finish_reason),)))
    }

    #[classmethod]
    fn _restore(_class: &Bound<'_, PyType>, values: TokenValues) -> PyResult<Self> {
        let (id, text, index, logprob, score, finish_reason) = values;
        let finish_reason = finish_reason.as_deref().map(pickle::finish_reason).transpose()?;
        Ok(Self { id, text, index, logprob, score, finish_reason })
    }
}
