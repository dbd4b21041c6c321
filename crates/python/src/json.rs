//! JSON as Python's dicts, lists and numbers, and back.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple, PyType};
use serde_json::{Map, Number, Value};

use super::abc::is_mapping;
use super::arrays::numpy;
use super::errors::{message, replaced};
use super::field_values::{field_value, python_value};
use super::prompts::shown;
use super::walk::Walk;
use rsgen_generation::FieldValue;

/// The estimated bytes of an item of a JSON value.
const ITEM_BYTES: usize = 128;

/// The Python object of a JSON value.
pub(super) fn to_python(py: Python<'_>, value: impl Into<Value>) -> PyResult<Bound<'_, PyAny>> {
    python_value(py, &value.into().into())
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
        let class =
            if given.is_instance_of::<PyType>() { given.clone() } else { given.get_type().into_any() };
        if given.is(&class) || class.hasattr("__dataclass_fields__")? {
            let name = class.getattr("__name__")?;
            return Err(config_error!(
                py,
                "`json_schema` must be a JSON schema or a pydantic model, got the class {name}; `output_type` takes \
                 classes, and pydantic.TypeAdapter({name}).json_schema() makes a schema of one; None leaves it unset"
            ));
        }
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
    Form::Strict.value(&Form::walk(), value, 0)
}

/// Which objects have a JSON value.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Form {
    /// The types of Python's own that JSON has. Others are a `ConfigError`.
    Strict,
    /// All: mappings, dataclasses and pydantic models become objects as in transformers, and what has no form
    /// in JSON becomes its type's name in angle brackets, since templates only ask whether it is there.
    Template,
}

impl Form {
    /// The walk of an argument that becomes a JSON value.
    pub(super) fn walk() -> Walk {
        Walk::weighing(ITEM_BYTES)
    }

    /// The value of an object this deep in an argument.
    pub(super) fn value(self, walk: &Walk, value: &Bound<'_, PyAny>, depth: usize) -> PyResult<Value> {
        let py = value.py();
        let impossible = || match self {
            Self::Strict => config_error!(py, "a value must be one that JSON can hold, got {}", shown(value)),
            Self::Template => {
                input_error!(py, "a number of a message must be one of JSON, got {}", shown(value))
            }
        };
        if depth > self.max_depth() {
            let too_deep = || {
                input_error!(
                    py,
                    "messages and tools may be nested {} deep; make them flatter",
                    self.max_depth()
                )
            };
            return Err(if self == Self::Strict { impossible() } else { too_deep() });
        }
        if value.is_none() {
            return Ok(Value::Null);
        }
        if let Ok(flag) = value.cast::<PyBool>() {
            return Ok(Value::Bool(flag.is_true()));
        }
        if let Ok(text) = value.cast::<PyString>() {
            return walk.text(text).map(Value::String);
        }
        if let Ok(number) = value.cast::<PyFloat>() {
            return Number::from_f64(number.value()).map(Value::Number).ok_or_else(impossible);
        }
        if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
            let items = walk.items(value)?.map(|item| self.value(walk, &item?, depth + 1));
            return items.collect::<PyResult<_>>().map(Value::Array);
        }
        if value.is_instance_of::<PyDict>() || self == Self::Template && is_mapping(value)? {
            let entries = walk.items(&value.call_method0("items")?)?.map(|entry| {
                let (key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = entry?.extract()?;
                // Other keys as `json.dumps` writes them.
                let key = match self.value(walk, &key, self.max_depth())? {
                    Value::String(key) => key,
                    other => other.to_string(),
                };
                Ok((key, self.value(walk, &value, depth + 1)?))
            });
            return entries.collect::<PyResult<Map<_, _>>>().map(Value::Object);
        }
        if self == Self::Template && !value.is_instance_of::<PyInt>() {
            return match taken_apart(value)? {
                Some(object) => self.value(walk, &object, depth + 1),
                None => Ok(Value::String(format!("<{}>", value.get_type().name()?))),
            };
        }
        let integer = value.extract().map_err(|error| replaced(py, error, |_| impossible()))?;
        Number::from_i128(integer).map(Value::Number).ok_or_else(impossible)
    }

    /// The deepest nesting: deeper than any configuration or conversation, and far from the end of the stack.
    fn max_depth(self) -> usize {
        if self == Self::Strict { 64 } else { 100 }
    }
}

/// What a numpy scalar, a dataclass or a pydantic model holds.
fn taken_apart<'py>(value: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = value.py();
    let module = value.get_type().module()?;
    if module.to_str()? == "numpy" && value.is_instance(&numpy(py)?.getattr("generic")?)? {
        return value.call_method0("item").map(Some);
    }
    let dataclasses = py.import("dataclasses")?;
    let is_class = value.is_instance_of::<PyType>();
    if !is_class && dataclasses.call_method1("is_dataclass", (value,))?.is_truthy()? {
        let fields = PyDict::new(py);
        for field in dataclasses.call_method1("fields", (value,))?.try_iter()? {
            let name = field?.getattr("name")?;
            fields.set_item(&name, value.getattr(name.cast::<PyString>()?)?)?;
        }
        return Ok(Some(fields.into_any()));
    }
    match value.getattr_opt("model_dump")? {
        Some(dump) if !is_class && dump.is_callable() => dump.call0().map(Some),
        _ => Ok(None),
    }
}
