//! The tables that classes of the package, stubs and pages are made from.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};

use super::built_in::Class;
use super::config::python_value;
use super::constraints::CONSTRAINTS;
use super::errors::guarded;
use super::stopping_criteria::CRITERIA;
use super::watermarking::WATERMARKS;
use rsgen_generation::logits::PROCESSORS;

/// Returns the fields of a configuration, the strategies, and the classes of processors, criteria,
/// constraints and watermarks.
///
/// The classes themselves, the stubs and the pages of the documentation are made from it.
///
/// Returns:
///     dict[str, list[dict[str, Any]]]: Descriptions by name of the table.
#[guarded]
#[pyfunction]
#[pyo3(name = "_tables")]
pub(super) fn tables(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let fields = PyList::empty(py);
    for info in rsgen_generation::GenerationConfig::FIELDS {
        fields.append(dict(
            py,
            &[
                ("name", info.name),
                ("type", &info.kind.python()),
                ("kind", &info.kind.describe()),
                ("default", info.default),
                ("doc", info.doc.trim()),
            ],
        )?)?;
    }
    let processors = PyList::empty(py);
    for info in PROCESSORS {
        let entry = dict(
            py,
            &[
                ("name", info.name),
                ("class", info.class),
                ("doc", info.doc()),
                ("switch", info.switch),
                ("applies_to", info.applies_to().as_str()),
            ],
        )?;
        entry.set_item("after_callers", info.after_callers)?;
        entry.set_item("has_device", info.has_device)?;
        let arguments = PyList::empty(py);
        for argument in info.arguments {
            let doc = format!("The argument `{}` that it was made from.", argument.name);
            let described =
                dict(py, &[("name", argument.name), ("type", &argument.kind.python()), ("doc", &doc)])?;
            if let Some(default) = argument.default() {
                described.set_item("default", python_value(py, &default)?)?;
            }
            arguments.append(described)?;
        }
        entry.set_item("arguments", arguments)?;
        processors.append(entry)?;
    }
    let strategies = PyList::empty(py);
    for strategy in rsgen_generation::Strategy::ALL {
        let doc: Vec<&str> = strategy.doc.split_whitespace().collect();
        strategies.append(dict(py, &[("name", strategy.name), ("doc", &doc.join(" "))])?)?;
    }
    let tables = PyDict::new(py);
    tables.set_item("strategies", strategies)?;
    tables.set_item("fields", fields)?;
    tables.set_item("processors", processors)?;
    tables.set_item("stopping_criteria", classes(py, &CRITERIA)?)?;
    tables.set_item("constraints", classes(py, &CONSTRAINTS)?)?;
    tables.set_item("watermarks", classes(py, &WATERMARKS)?)?;
    Ok(tables)
}

fn classes<'py, T>(py: Python<'py>, table: &[Class<T>]) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for class in table {
        let doc: Vec<&str> = class.doc.lines().map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
        let entry = dict(py, &[("name", class.name), ("class", class.name), ("doc", &doc.join("\n"))])?;
        let arguments = PyList::empty(py);
        for parameter in class.parameters {
            let described = dict(
                py,
                &[
                    ("name", parameter.name),
                    ("type", parameter.python_type),
                    ("doc", parameter.attribute.trim_start()),
                ],
            )?;
            if let [default] = parameter.default {
                described.set_item("default", python_value(py, &default(parameter.name))?)?;
            }
            arguments.append(described)?;
        }
        entry.set_item("arguments", arguments)?;
        list.append(entry)?;
    }
    Ok(list)
}

fn dict<'py>(py: Python<'py>, entries: &[(&str, &str)]) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, value) in entries {
        dict.set_item(name, PyString::new(py, value))?;
    }
    Ok(dict)
}
