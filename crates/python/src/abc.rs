//! Python's abstract sequences and mappings.
//!
//! pyo3's casts to them run Python code and swallow what a signal handler raises meanwhile. These checks pass
//! it on.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyList, PyString, PyTuple, PyType};

static SEQUENCE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static MAPPING: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// Whether a value is a sequence, and neither a text nor bytes.
///
/// # Errors
/// What Python raises while it decides.
pub(super) fn is_sequence(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    let is_text = value.is_instance_of::<PyString>();
    if is_text || value.is_instance_of::<PyBytes>() || value.is_instance_of::<PyByteArray>() {
        return Ok(false);
    }
    let is_plain = value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>();
    Ok(is_plain || value.is_instance(SEQUENCE.import(value.py(), "collections.abc", "Sequence")?)?)
}

/// Whether a value is a mapping.
///
/// # Errors
/// What Python raises while it decides.
pub(super) fn is_mapping(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    let is_dict = value.is_instance_of::<PyDict>();
    Ok(is_dict || value.is_instance(MAPPING.import(value.py(), "collections.abc", "Mapping")?)?)
}
