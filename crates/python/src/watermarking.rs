//! The field `watermarking_config`, and the check of its classes `WatermarkingConfig` and
//! `SynthIDTextWatermarkingConfig` in `rsgen._watermarks`.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

use super::errors::{guarded, to_python};
use super::field_values::{field_value, python_value};
use rsgen_generation::{FieldValue, SynthIDTextWatermarkDetector, WatermarkDetector, Watermarking};

/// Checks the types of the values of a watermark, and returns them as Python's own.
///
/// Args:
///     values (dict[str, Any]): Values by name.
///     validate (bool): Checks their ranges as well.
///
/// Returns:
///     dict[str, Any]: A new dict.
///
/// Raises:
///     ConfigError: A value has a wrong type, or is outside of its range.
#[guarded]
#[pyfunction]
#[pyo3(name = "_watermark", signature = (values, validate=false))]
pub(super) fn check<'py>(values: &Bound<'py, PyDict>, validate: bool) -> PyResult<Bound<'py, PyDict>> {
    let py = values.py();
    let Some(watermark) = watermarking(py, &field_value(values)?)? else { return Ok(values.clone()) };
    if validate {
        let checked = match &watermark {
            Watermarking::GreenList(config) => WatermarkDetector::new(config, 1, None).map(drop),
            Watermarking::SynthIDText(config) => {
                SynthIDTextWatermarkDetector::new(config.clone(), []).map(drop)
            }
        };
        checked.map_err(|error| to_python(py, error))?;
    }
    dict(py, &watermark)
}

/// The watermark that a value describes.
fn watermarking(py: Python<'_>, value: &FieldValue) -> PyResult<Option<Watermarking>> {
    let mut config = rsgen_generation::GenerationConfig::new();
    config.set("watermarking_config", value).map_err(|error| to_python(py, error))?;
    Ok(config.watermarking_config)
}

/// The watermark of an argument: an object of this file's, a dict, or transformers' object.
pub(super) fn given(value: &Bound<'_, PyAny>) -> PyResult<Option<Watermarking>> {
    watermarking(value.py(), &value_of(value)?)
}

/// Such an argument as fields take it.
pub(super) fn value_of(value: &Bound<'_, PyAny>) -> PyResult<FieldValue> {
    match value.getattr_opt("to_dict")? {
        Some(to_dict) if !value.is_none() && !value.is_instance_of::<PyType>() => {
            field_value(&to_dict.call0()?)
        }
        _ => field_value(value),
    }
}

/// A watermark as Python has it.
pub(super) fn object<'py>(py: Python<'py>, watermarking: &Watermarking) -> PyResult<Bound<'py, PyAny>> {
    let class = match watermarking {
        Watermarking::GreenList(_) => "WatermarkingConfig",
        Watermarking::SynthIDText(_) => "SynthIDTextWatermarkingConfig",
    };
    let class = py.import("rsgen._watermarks")?.getattr(class)?;
    class.call((), Some(&dict(py, watermarking)?))
}

/// The values by name.
fn dict<'py>(py: Python<'py>, watermarking: &Watermarking) -> PyResult<Bound<'py, PyDict>> {
    let config = rsgen_generation::GenerationConfig::new().watermarking_config(watermarking.clone());
    let values = config.get("watermarking_config").unwrap_or(FieldValue::Map(Vec::new()));
    Ok(python_value(py, &values)?.cast_into()?)
}
