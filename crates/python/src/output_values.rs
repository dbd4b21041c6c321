//! `GenerationOutput` as a value: its rows, its values by their names, conversions, equality.

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyList};

use super::arrays::{array, ids};
use super::errors::guarded;
use super::json;
use super::output::GenerationOutput;
use rsgen::engine;
use rsgen_generation::TrieEntry;

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

    /// Returns the rows as a DataFrame of pandas.
    ///
    /// Its columns are `prompt_index`, `text`, `token_ids`, `finish_reason`, `score` with beams, and `entry` and
    /// `entry_logprob` with a catalogue.
    ///
    /// Returns:
    ///     Any: A `pandas.DataFrame` with a line for each row.
    ///
    /// Raises:
    ///     ImportError: pandas is not installed.
    fn to_pandas<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import(HELPERS)?.call_method1("to_pandas", (slf,))
    }

    /// A row, as what iteration gives; the ids of several, `sequences[key]`; or a value by its name.
    fn __getitem__<'py>(slf: &Bound<'py, Self>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        if let Ok(name) = key.extract::<&str>() {
            let unknown = || Err(PyKeyError::new_err(key.clone().unbind()));
            return if VALUES.contains(&name) { slf.getattr(name) } else { unknown() };
        }
        let (py, this, rows) = (slf.py(), slf.get(), &slf.get().output.rows);
        let ids = this.sequences(py)?.get_item(key)?;
        let index = if key.is_instance_of::<PyBool>() { None } else { key.extract::<isize>().ok() };
        let place = |index: isize| if index < 0 { index.saturating_add_unsigned(rows.len()) } else { index };
        match index.and_then(|index| rows.get(place(index).unsigned_abs())) {
            Some(row) => {
                let entries = this.output.entries.as_ref();
                let entry = entries.and_then(|all| all.get(place(index?).unsigned_abs()));
                generated_row(&ids, row, entry)
            }
            None => Ok(ids),
        }
    }

    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let builtins = slf.py().import("builtins")?;
        let indices = builtins.call_method1("range", (slf.len()?,))?;
        builtins.call_method1("map", (slf.getattr("__getitem__")?, indices))
    }

    /// Whether there is a value of this name.
    fn __contains__(slf: &Bound<'_, Self>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        match key.extract::<&str>() {
            Ok(name) => Ok(VALUES.contains(&name) && !slf.getattr(name)?.is_none()),
            Err(_) => slf.get().sequences(slf.py())?.contains(key),
        }
    }

    /// Returns the names of the values that there are, as `ModelOutput` of transformers does.
    ///
    /// `dict(output)` and `output["sequences"]` work as with a mapping. But iteration gives the rows, and `len()`
    /// is their number.
    ///
    /// Returns:
    ///     list[str]: Names of attributes that are not None.
    fn keys<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(slf.py(), values(slf)?.into_iter().map(|(name, _)| name))
    }

    /// Returns the values of `keys()`.
    ///
    /// Returns:
    ///     list[Any]: The values.
    fn values<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(slf.py(), values(slf)?.into_iter().map(|(_, value)| value))
    }

    /// Returns the names with their values.
    ///
    /// Returns:
    ///     list[tuple[str, Any]]: The pairs.
    fn items<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(slf.py(), values(slf)?)
    }

    /// Returns a value by its name.
    ///
    /// Args:
    ///     key (str): The name.
    ///     default (Any): What is returned where there is no such value.
    ///
    /// Returns:
    ///     Any: The value.
    #[pyo3(signature = (key, default=None, /))]
    fn get<'py>(
        slf: &Bound<'py, Self>,
        key: &str,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let value = if VALUES.contains(&key) { Some(slf.getattr(key)?) } else { None };
        Ok(value.filter(|value| !value.is_none()).or(default))
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

/// The values that there are.
fn values<'py>(output: &Bound<'py, GenerationOutput>) -> PyResult<Vec<(&'static str, Bound<'py, PyAny>)>> {
    let mut values = Vec::with_capacity(VALUES.len());
    for name in VALUES {
        let value = output.getattr(name)?;
        if !value.is_none() {
            values.push((name, value));
        }
    }
    Ok(values)
}

/// A row with its line of `sequences`.
fn generated_row<'py>(
    sequence: &Bound<'py, PyAny>,
    row: &engine::GeneratedRow,
    entry: Option<&Option<TrieEntry>>,
) -> PyResult<Bound<'py, PyAny>> {
    let (py, generated) = (sequence.py(), &row.generated);
    let values = PyDict::new(py);
    values.set_item("prompt_index", generated.prompt_index)?;
    values.set_item("text", row.text.as_deref().unwrap_or_default())?;
    values.set_item("token_ids", ids(py, &generated.token_ids)?)?;
    values.set_item("logprobs", array(py, generated.logprobs.len(), generated.logprobs.clone())?)?;
    values.set_item("score", generated.score)?;
    values.set_item("finish_reason", generated.finish_reason.as_str())?;
    values.set_item("entry", entry_value(py, entry.and_then(Option::as_ref))?)?;
    values.set_item("entry_logprob", entry.map(|_| total_logprob(row)))?;
    py.import("rsgen._generated_row")?.call_method1("_row", (sequence, values))
}

/// What a catalogue has for an entry: its payload, or its index.
pub(super) fn entry_value<'py>(py: Python<'py>, entry: Option<&TrieEntry>) -> PyResult<Bound<'py, PyAny>> {
    match entry {
        None => Ok(py.None().into_bound(py)),
        Some(TrieEntry { payload: Some(payload), .. }) => json::to_python(py, payload.clone()),
        Some(entry) => json::to_python(py, entry.index),
    }
}

/// The log-probability of a row.
pub(super) fn total_logprob(row: &engine::GeneratedRow) -> f32 {
    row.generated.logprobs.iter().map(|&one| f64::from(one)).sum::<f64>() as f32
}
