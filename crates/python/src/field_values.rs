//! Values of fields: Python objects to [`FieldValue`] and back.

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyException, PyTypeError, PyUnicodeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

use super::errors::config_error;
use super::prompts::shown;
use super::walk::Walk;
use rsgen_generation::FieldValue;

/// Lists in lists, and lists as keys, are no deeper than this in any field.
const DEEPEST: usize = 4;
/// The estimated bytes of a listed item: as it is given, in the field, and in the copies of the
/// configuration.
const ITEM_BYTES: usize = 128;

/// Converts a Python object, or a scalar or array of numpy, to a field's value.
pub(super) fn field_value(value: &Bound<'_, PyAny>) -> PyResult<FieldValue> {
    nested_value(&Walk::weighing(ITEM_BYTES), value, 0)
}

fn nested_value(walk: &Walk, value: &Bound<'_, PyAny>, depth: usize) -> PyResult<FieldValue> {
    if depth > DEEPEST {
        return Ok(FieldValue::Other(shown(value)));
    }
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        // Weighed before there is room for them.
        let items = walk.items(value)?;
        // Most lists in lists hold one or two items: room for those alone.
        let mut values = Vec::with_capacity(value.len()?);
        for value in items {
            values.push(nested_value(walk, &value?, depth + 1)?);
        }
        return Ok(FieldValue::List(values));
    }
    if let Ok(map) = value.cast::<PyDict>() {
        let entry = |key: PyResult<Bound<'_, PyAny>>| {
            let key = key?;
            let value = map.get_item(&key)?.unwrap_or_else(|| map.py().None().into_bound(map.py()));
            Ok((nested_value(walk, &key, depth + 1)?, nested_value(walk, &value, depth + 1)?))
        };
        return walk.items(map)?.map(entry).collect::<PyResult<_>>().map(FieldValue::Map);
    }
    // Most items are numbers of Python's own, which are no arrays: an attribute that is missing costs as much
    // as all else.
    let is_plain = value.is_exact_instance_of::<PyInt>() || value.is_exact_instance_of::<PyFloat>();
    if !is_plain && value.hasattr("__array__")? && value.hasattr("tolist")? {
        return nested_value(walk, &walk.array_as_list(value)?, depth + 1);
    }
    single_value(walk, value)
}

/// A number of things in an argument.
///
/// # Errors
/// `TypeError` for what is no integer; `ConfigError` for one that is negative or too large.
pub(super) fn count(given: &Bound<'_, PyAny>, name: &str) -> PyResult<usize> {
    let rule = format!("`{name}` must be an integer of 0 or more, and below 2^64, got {}", shown(given));
    match field_value(given)? {
        FieldValue::Int(number) => number.try_into().map_err(|_| config_error(given.py(), rule)),
        _ if given.is_instance_of::<PyInt>() && !given.is_instance_of::<PyBool>() => {
            Err(config_error(given.py(), rule))
        }
        _ => Err(PyTypeError::new_err(rule)),
    }
}

/// Converts a scalar.
fn single_value(walk: &Walk, value: &Bound<'_, PyAny>) -> PyResult<FieldValue> {
    let py = value.py();
    if value.is_none() {
        return Ok(FieldValue::Null);
    }
    if let Ok(value) = value.cast::<PyBool>() {
        return Ok(FieldValue::Bool(value.is_true()));
    }
    if let Ok(value) = value.cast::<PyString>() {
        return match walk.copy_text(value) {
            Err(error) if error.is_instance_of::<PyUnicodeError>(py) => {
                Ok(FieldValue::Other(format!("{}, which is no Unicode", shown(value))))
            }
            text => text.map(FieldValue::Text),
        };
    }
    if let Ok(value) = value.cast::<PyFloat>() {
        return Ok(FieldValue::Float(value.extract()?));
    }
    if value.hasattr("__index__")? {
        match value.extract() {
            Ok(value) => return Ok(FieldValue::Int(value)),
            // Larger than any field takes, or wrong in itself.
            Err(error) if error.is_instance_of::<PyException>(py) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(FieldValue::Other(shown(value)))
}

/// Converts a field's value to a Python object: lists as keys become tuples.
pub(super) fn python_value<'py>(py: Python<'py>, value: &FieldValue) -> PyResult<Bound<'py, PyAny>> {
    match value {
        FieldValue::Bool(value) => value.into_bound_py_any(py),
        FieldValue::Int(value) => value.into_bound_py_any(py),
        FieldValue::Float(value) => value.into_bound_py_any(py),
        FieldValue::Text(value) | FieldValue::Other(value) => value.into_bound_py_any(py),
        FieldValue::List(values) => {
            let values = values.iter().map(|value| python_value(py, value)).collect::<PyResult<Vec<_>>>()?;
            Ok(PyList::new(py, values)?.into_any())
        }
        FieldValue::Map(entries) => {
            let dict = PyDict::new(py);
            for (key, value) in entries {
                let key = match python_value(py, key)?.cast_into::<PyList>() {
                    Ok(list) => list.to_tuple().into_any(),
                    Err(other) => other.into_inner(),
                };
                dict.set_item(key, python_value(py, value)?)?;
            }
            Ok(dict.into_any())
        }
        _ => Ok(py.None().into_bound(py)),
    }
}
