//! numpy arrays out of Rust's vectors.
//!
//! numpy is imported when the first array is made, not with the package: every way to it leads through this
//! file. The vectors become the memory of the arrays; nothing is copied but ids, which are wider in numpy.

use numpy::ndarray::{Array, Dimension, ShapeBuilder, ShapeError};
use numpy::{Element, IntoPyArray};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use super::errors::exception;
use rsgen_core::error::ErrorKind;
use rsgen_core::types::TokenId;

/// The module numpy.
///
/// # Errors
/// Python's own error when it is not installed.
pub(super) fn numpy(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    static NUMPY: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let module = NUMPY.get_or_try_init(py, || {
        // The crate's way to numpy's C interface runs Python code, where a signal handler may raise. Its
        // first use of an array, which comes later, could return no error.
        numpy::get_array_module(py)?;
        py.import("numpy").map(Bound::unbind)
    })?;
    Ok(module.bind(py).clone())
}

/// The array of this shape that holds `values`, row-major.
pub(super) fn array<T: Element, D: Dimension>(
    py: Python<'_>,
    shape: impl ShapeBuilder<Dim = D>,
    values: Vec<T>,
) -> PyResult<Bound<'_, PyAny>> {
    numpy(py)?;
    let array = Array::from_shape_vec(shape, values).map_err(|error: ShapeError| {
        exception(py, ErrorKind::Internal, format!("an array was given values of another shape: {error}"))
    })?;
    Ok(array.into_pyarray(py).into_any())
}

/// Ids as an int64 array, `[len]`.
pub(super) fn ids<'py>(py: Python<'py>, token_ids: &[TokenId]) -> PyResult<Bound<'py, PyAny>> {
    array(py, token_ids.len(), token_ids.iter().copied().map(wide).collect())
}

/// An id as numpy holds it.
pub(super) fn wide(token: TokenId) -> i64 {
    i64::from(token.0)
}
