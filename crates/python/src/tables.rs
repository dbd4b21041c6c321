//! The tables that classes of the package, stubs and pages are made from.

use pyo3::prelude::*;

use super::built_in::Class;
use super::constraints::CONSTRAINTS;
use super::errors::guarded;
use super::field_values::python_value;
use super::stopping_criteria::CRITERIA;
use rsgen_generation::FieldValue;
use rsgen_generation::logits::PROCESSORS;

/// Returns the fields of a configuration, the strategies, and the classes of processors, criteria
/// and constraints.
///
/// The classes themselves, the stubs and the pages of the documentation are made from it.
///
/// Returns:
///     dict[str, list[dict[str, Any]]]: Descriptions by name of the table.
#[guarded]
#[pyfunction]
#[pyo3(name = "_tables")]
pub(super) fn tables(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let fields = rsgen_generation::GenerationConfig::FIELDS.iter().map(|info| {
        map([
            ("name", info.name.into()),
            ("type", info.kind.python().into()),
            ("kind", info.kind.describe().into()),
            ("default", info.default.into()),
            ("doc", info.doc.trim().into()),
        ])
    });
    let processors = PROCESSORS.iter().map(|info| {
        let arguments = info.arguments.iter().map(|argument| {
            let doc = format!("The argument `{}` that it was made from.", argument.name);
            parameter(argument.name, argument.kind.python(), doc, argument.default())
        });
        map([
            ("name", info.name.into()),
            ("class", info.class.into()),
            ("doc", info.doc().into()),
            ("switch", info.switch.into()),
            ("applies_to", info.applies_to().as_str().into()),
            ("after_callers", info.after_callers.into()),
            ("has_device", info.has_device.into()),
            ("arguments", arguments.collect()),
        ])
    });
    let strategies = rsgen_generation::Strategy::ALL.iter().map(|strategy| {
        let doc: Vec<&str> = strategy.doc.split_whitespace().collect();
        map([("name", strategy.name.into()), ("doc", doc.join(" ").into())])
    });
    let tables = map([
        ("strategies", strategies.collect()),
        ("fields", fields.collect()),
        ("processors", processors.collect()),
        ("stopping_criteria", classes(&CRITERIA)),
        ("constraints", classes(&CONSTRAINTS)),
    ]);
    python_value(py, &tables)
}

fn classes<T>(table: &[Class<T>]) -> FieldValue {
    let class = |class: &Class<T>| {
        let doc: Vec<&str> = class.doc.lines().map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
        let arguments = class.parameters.iter().map(|given| {
            let default = given.is_optional.then_some(FieldValue::Null);
            parameter(
                given.name,
                given.python_type.to_owned(),
                given.attribute.trim_start().to_owned(),
                default,
            )
        });
        map([
            ("name", class.name.into()),
            ("class", class.name.into()),
            ("doc", doc.join("\n").into()),
            ("arguments", arguments.collect()),
        ])
    };
    table.iter().map(class).collect()
}

fn parameter(name: &str, python_type: String, doc: String, default: Option<FieldValue>) -> FieldValue {
    let described = [("name", name.into()), ("type", python_type.into()), ("doc", doc.into())];
    map(described.into_iter().chain(default.map(|default| ("default", default))))
}

fn map<'a>(entries: impl IntoIterator<Item = (&'a str, FieldValue)>) -> FieldValue {
    FieldValue::Map(entries.into_iter().map(|(name, value)| (name.into(), value)).collect())
}
