//! `GenerationOutput` as a value: indexing, conversion to a dict and an array, equality.

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::errors::guarded;
use super::output::GenerationOutput;
use rsgen::engine;

/// The module of its Python helpers.
const HELPERS: &str = "rsgen._output";

/// The values of an output, by their names.
const VALUES: [&str; 23] = [
    "sequences",
    "text",
    "texts",
    "token_ids",
    "logprobs",
    "top_logprobs",
    "sequences_scores",
    "beam_indices",
    "finish_reasons",
    "prompt_indices",
    "scores",
    "logits",
    "hidden_states",
    "attentions",
    "decoder_hidden_states",
    "decoder_attentions",
    "cross_attentions",
    "encoder_hidden_states",
    "encoder_attentions",
    "alignments",
    "seeds",
    "usage",
    "draft_stats",
];

#[guarded]
#[pymethods]
impl GenerationOutput {
    /// Returns all of it as plain Python: numbers, texts, lists and dicts, arrays as lists.
    ///
    /// Returns:
    ///     dict[str, Any]: The values by their names.
    fn to_dict<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(slf.py());
        let plain = slf.py().import(HELPERS)?.getattr("plain")?;
        for name in VALUES {
            dict.set_item(name, plain.call1((slf.getattr(name)?,))?)?;
        }
        Ok(dict)
    }

    /// The ids of a row or of several, `sequences[key]`, where transformers returns an array; or a value by
    /// its name.
    fn __getitem__<'py>(slf: &Bound<'py, Self>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        match key.extract::<&str>() {
            Ok(name) if VALUES.contains(&name) => slf.getattr(name),
            Ok(_) => Err(PyKeyError::new_err(key.clone().unbind())),
            Err(_) => slf.get().sequences(slf.py())?.get_item(key),
        }
    }

    /// Returns `sequences`, for `numpy.asarray(output)` and the tokenizer's `batch_decode(output)`.
    ///
    /// Args:
    ///     dtype (Any): A type to convert to.
    ///     copy (bool | None): Whether to copy.
    ///
    /// Returns:
    ///     NDArray[Any]: The ids, `[rows, width]`.
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<&Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let sequences = self.sequences(py)?;
        match (dtype, copy) {
            (None, None | Some(false)) => Ok(sequences),
            (None, Some(true)) => sequences.call_method0("copy"),
            (Some(dtype), _) => sequences.call_method1("astype", (dtype,)),
        }
    }

    /// Whether two outputs hold the same; how long they took is left out.
    fn __eq__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let Ok(other) = other.cast::<Self>() else { return Ok(py.NotImplemented()) };
        let (ours, theirs) = (&self.output, &other.get().output);
        let top_logprobs = |output: &engine::GenerationOutput| {
            output.sequences.iter().map(|sequence| sequence.top_logprobs.clone()).collect::<Vec<_>>()
        };
        let mut same = (&ours.rows, ours.pad_token_id, &ours.seeds, ours.usage)
            == (&theirs.rows, theirs.pad_token_id, &theirs.seeds, theirs.usage)
            && top_logprobs(ours) == top_logprobs(theirs);
        if same {
            let arrays = |own: &Self| -> PyResult<_> {
                let of_encoder = [own.encoder_hidden_states(py)?, own.encoder_attentions(py)?];
                let of_decoder = [own.hidden_states(py)?, own.attentions(py)?, own.cross_attentions(py)?];
                Ok((own.scores(py)?, own.logits(py)?, of_decoder, of_encoder))
            };
            let both = (arrays(self)?, arrays(other.get())?);
            same = py.import(HELPERS)?.call_method1("same_arrays", both)?.extract()?;
        }
        same.into_py_any(py)
    }
}
