//! JSON as Python's dicts, lists and numbers, and back.

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyList, PyString, PyTuple};
use serde_json::{Map, Number, Value};

use super::config::field_value;
use super::errors::{message, replaced};
use super::prompts::shown;
use super::walk::Walk;
use rsgen_generation::FieldValue;

/// The deepest nesting: deeper than any configuration, and far from the end of the stack.
const MAX_DEPTH: usize = 64;

/// The Python object of a JSON value.
pub(super) fn to_python<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    match value {
        Value::Null => Ok(py.None().into_bound(py)),
        Value::Bool(value) => value.into_bound_py_any(py),
        Value::Number(number) => match number.as_i128() {
            Some(integer) => integer.into_bound_py_any(py),
            None => number.as_f64().unwrap_or(f64::NAN).into_bound_py_any(py),
        },
        Value::String(text) => text.into_bound_py_any(py),
        Value::Array(values) => {
            let list = PyList::empty(py);
            for value in values {
                list.append(to_python(py, value)?)?;
            }
            Ok(list.into_any())
        }
        Value::Object(map) => dict(py, map).map(Bound::into_any),
    }
}

/// The dict of a JSON object.
pub(super) fn dict<'py>(py: Python<'py>, map: &Map<String, Value>) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, value) in map {
        dict.set_item(name, to_python(py, value)?)?;
    }
    Ok(dict)
}

/// A JSON schema: a dict, its JSON text, or a pydantic model, whose schema is asked for.
///
/// # Errors
/// `ConfigError` for what JSON cannot hold; what the model raises.
pub(super) fn schema(value: &Bound<'_, PyAny>) -> PyResult<FieldValue> {
    const METHOD: &str = "model_json_schema";
    let py = value.py();
    let model;
    let given = if value.hasattr(METHOD)? {
        model = value.call_method0(METHOD)?;
        &model
    } else {
        value
    };
    if given.cast::<PyDict>().is_err() {
        return field_value(given);
    }
    let rule = "`json_schema` must hold what JSON can hold, nested at most 64 deep";
    let schema = from_python(given)
        .map_err(|error| replaced(py, error, |error| config_error!(py, "{rule}: {}", message(py, error))));
    Ok(schema?.into())
}

/// The JSON value of a Python object.
///
/// # Errors
/// `ConfigError` for what JSON cannot hold.
pub(super) fn from_python(value: &Bound<'_, PyAny>) -> PyResult<Value> {
    nested(&Walk::default(), value, 0)
}

fn nested(walk: &Walk, value: &Bound<'_, PyAny>, depth: usize) -> PyResult<Value> {
    let py = value.py();
    let impossible = || config_error!(py, "a value must be one that JSON can hold, got {}", shown(value));
    if depth > MAX_DEPTH {
        return Err(impossible());
    }
    if value.is_none() {
        return Ok(Value::Null);
    }
    if let Ok(value) = value.cast::<PyBool>() {
        return Ok(Value::Bool(value.is_true()));
    }
    if value.is_instance_of::<PyString>() {
        return walk.text(value).map(Value::String);
    }
    if let Ok(number) = value.cast::<PyFloat>() {
        return Number::from_f64(number.extract()?).map(Value::Number).ok_or_else(impossible);
    }
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        let values = walk.items(value)?.map(|value| nested(walk, &value?, depth + 1));
        return values.collect::<PyResult<_>>().map(Value::Array);
    }
    if let Ok(dict) = value.cast::<PyDict>() {
        let entries = walk.items(&dict.call_method0("items")?)?.map(|entry| {
            let (name, value): (String, Bound<'_, PyAny>) = entry?.extract()?;
            Ok((walk.count_text(py, name)?, nested(walk, &value, depth + 1)?))
        });
        return entries.collect::<PyResult<Map<_, _>>>().map(Value::Object);
    }
    let integer = value.extract().map_err(|error| replaced(py, error, |_| impossible()))?;
    Number::from_i128(integer).map(Value::Number).ok_or_else(impossible)
}
