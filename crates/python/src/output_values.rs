//! An output as a value: its rows by their numbers, all of it as a dict, and whether two are equal.

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict, PyList, PyTuple};

use super::arrays::numpy;
use super::errors::guarded;
use super::output::{GenerationOutput, list};
use super::signals::look;
use rsgen::engine;

/// The values of an output, by their names.
const VALUES: [&str; 17] = [
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
        for name in VALUES {
            dict.set_item(name, plain(&slf.getattr(name)?)?)?;
        }
        Ok(dict)
    }

    /// The ids of a row or of several, `sequences[key]`, where transformers returns an array; or a value by its name.
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
        let same = (&ours.rows, ours.pad_token_id, &ours.seeds, ours.usage)
            == (&theirs.rows, theirs.pad_token_id, &theirs.seeds, theirs.usage)
            && top_logprobs(ours) == top_logprobs(theirs)
            && same_steps(py, self.scores.as_ref(), other.get().scores.as_ref())?
            && same_steps(py, self.logits.as_ref(), other.get().logits.as_ref())?
            && same_states(py, self.hidden_states.as_ref(), other.get().hidden_states.as_ref())?
            && same_states(py, self.attentions.as_ref(), other.get().attentions.as_ref())?;
        same.into_py_any(py)
    }
}

/// Arrays as lists, and what has attributes as a dict of them.
fn plain<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = value.py();
    look(py)?;
    if value.hasattr("__dataclass_fields__")? {
        return py.import("dataclasses")?.call_method1("asdict", (value,));
    }
    if let Ok(values) = value.cast::<PyTuple>() {
        return list(py, values.iter().map(|value| plain(&value))).map(Bound::into_any);
    }
    if let Ok(values) = value.cast::<PyList>() {
        return list(py, values.iter().map(|value| plain(&value))).map(Bound::into_any);
    }
    if value.hasattr("tolist")? { value.call_method0("tolist") } else { Ok(value.clone()) }
}

/// Whether the arrays of two lists are equal, NaN to NaN.
fn same_steps(py: Python<'_>, ours: Option<&Py<PyList>>, theirs: Option<&Py<PyList>>) -> PyResult<bool> {
    let (Some(ours), Some(theirs)) = (ours, theirs) else { return Ok(ours.is_none() && theirs.is_none()) };
    let (ours, theirs) = (ours.bind(py), theirs.bind(py));
    let equal = [("equal_nan", true)].into_py_dict(py)?;
    for (ours, theirs) in ours.iter().zip(theirs) {
        if !numpy(py)?.call_method("array_equal", (ours, theirs), Some(&equal))?.is_truthy()? {
            return Ok(false);
        }
    }
    Ok(ours.len() == theirs.len())
}

/// [`same_steps`] of arrays by step and layer.
fn same_states(py: Python<'_>, ours: Option<&Py<PyTuple>>, theirs: Option<&Py<PyTuple>>) -> PyResult<bool> {
    let (Some(ours), Some(theirs)) = (ours, theirs) else { return Ok(ours.is_none() && theirs.is_none()) };
    let (ours, theirs) = (ours.bind(py), theirs.bind(py));
    for (ours, theirs) in ours.iter().zip(theirs) {
        let [ours, theirs] =
            [ours, theirs].map(|own| own.cast_into::<PyTuple>().map(|own| own.to_list().unbind()));
        if !same_steps(py, Some(&ours?), Some(&theirs?))? {
            return Ok(false);
        }
    }
    Ok(ours.len() == theirs.len())
}
