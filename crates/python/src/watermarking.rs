//! The classes of `watermarking_config`: `WatermarkingConfig` and `SynthIDTextWatermarkingConfig`.
//!
//! They are values: a call and a detector check ranges.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};

use super::built_in::{Class, Made, entry, shown_call};
use super::config::{field_value, python_value};
use super::errors::{guarded, to_python};
use rsgen_generation::{
    FieldValue, SynthIDTextWatermarkDetector, SynthIDTextWatermarkingConfig, WatermarkDetector, Watermarking,
    WatermarkingConfig,
};

/// The base of the classes of `watermarking_config`.
///
/// Args:
///     *arguments (Any): Those of the class.
///     **keywords (Any): Those of the class.
#[pyclass(module = "rsgen", name = "BuiltInWatermark", subclass, frozen, eq)]
#[derive(PartialEq)]
pub(super) struct BuiltInWatermark(Watermarking);

/// The classes of `watermarking_config`.
pub(super) const WATERMARKS: [Class<Watermarking>; 2] = classes! {
    /// The watermark of green lists: a pseudorandom part of the vocabulary gains a bias.
    ///
    /// For `watermarking_config` of a call, and for `WatermarkDetector`.
    ///
    /// Args:
    ///     greenlist_ratio (float): The part of the vocabulary that is green, above 0 and below 1.
    ///     bias (float): What is added to the scores of green tokens.
    ///     hashing_key (int): The key that green lists depend on. Keep one of your own.
    ///     seeding_scheme (Literal["lefthash", "selfhash"]): What else they depend on: the last token,
    ///         or the candidate itself and the tokens before it.
    ///     context_width (int): The tokens before the first marked one; with "selfhash" also how many
    ///         tokens the green list depends on.
    ///
    /// Raises:
    ///     ConfigError: A value has a wrong type.
    ///
    /// Example:
    ///     >>> watermark = rsgen.WatermarkingConfig(bias=2.5)
    ///     >>> out = gen.generate("Once upon a time", max_new_tokens=40, watermarking_config=watermark)
    ///     >>> detector = rsgen.WatermarkDetector(gen, "cpu", watermark)
    ///     >>> detector(out.token_ids)
    WatermarkingConfig(
        /// The part of the vocabulary that is green.
        greenlist_ratio: "float" = green_list,
        /// What is added to the scores of green tokens.
        bias: "float" = green_list,
        /// The key that green lists depend on.
        hashing_key: "int" = green_list,
        /// What else green lists depend on.
        seeding_scheme: "Literal[\"lefthash\", \"selfhash\"]" = green_list,
        /// The tokens before the first marked one.
        context_width: "int" = green_list,
    ) => |given| construct(given, || WatermarkingConfig::default().into());

    /// SynthID's watermark: tokens win tournaments whose outcome depends on keys and the tokens before.
    ///
    /// For `watermarking_config` of a call, and for `SynthIDTextWatermarkDetector`.
    ///
    /// Args:
    ///     ngram_len (int): The length of the n-grams that are hashed: a token and those before it.
    ///     keys (list[int]): A key for each layer of the tournament. Keep your own.
    ///     context_history_size (int): How many of the latest contexts are not used a second time.
    ///     sampling_table_seed (int): The seed of the table that hashes are looked up in.
    ///     sampling_table_size (int): The size of that table, up to 2**24.
    ///     skip_first_ngram_calls (bool): Leaves the first `ngram_len - 1` tokens unmarked.
    ///     debug_mode (bool): Takes all scores as equal, to test detectors.
    ///
    /// Raises:
    ///     ConfigError: A value has a wrong type.
    ///
    /// Example:
    ///     >>> watermark = rsgen.SynthIDTextWatermarkingConfig(ngram_len=5, keys=[654, 400, 836, 123])
    ///     >>> gen.sample("Once upon a time", max_new_tokens=40, watermarking_config=watermark).text
    SynthIDTextWatermarkingConfig(
        /// The length of the n-grams that are hashed.
        ngram_len: "int",
        /// The keys, one for each layer of the tournament.
        keys: "list[int]",
        /// How many of the latest contexts are not used a second time.
        context_history_size: "int" = synth_id,
        /// The seed of the table that hashes are looked up in.
        sampling_table_seed: "int" = synth_id,
        /// The size of that table.
        sampling_table_size: "int" = synth_id,
        /// Whether the first `ngram_len - 1` tokens are left unmarked.
        skip_first_ngram_calls: "bool" = synth_id,
        /// Whether all scores are taken as equal.
        debug_mode: "bool" = synth_id,
    ) => |given| construct(given, || SynthIDTextWatermarkingConfig::new(0, Vec::new()).into());
};

/// The defaults.
fn green_list(name: &str) -> FieldValue {
    default_of(WatermarkingConfig::default(), name)
}

fn synth_id(name: &str) -> FieldValue {
    default_of(SynthIDTextWatermarkingConfig::new(0, Vec::new()), name)
}

fn default_of(watermarking: impl Into<Watermarking>, name: &str) -> FieldValue {
    let FieldValue::Map(values) = value(&watermarking.into()) else { return FieldValue::Null };
    let found = values.into_iter().find(|(known, _)| *known == FieldValue::from(name));
    found.map_or(FieldValue::Null, |(_, value)| value)
}

/// The watermark of arguments, which may all be left out.
fn construct(given: &Bound<'_, PyDict>, default: fn() -> Watermarking) -> PyResult<Watermarking> {
    let made = if given.is_empty() { None } else { watermarking(given.py(), &field_value(given.as_any())?)? };
    Ok(made.unwrap_or_else(default))
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
        Some(to_dict) if !value.is_none() => field_value(&to_dict.call0()?),
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
fn value(watermarking: &Watermarking) -> FieldValue {
    let config = rsgen_generation::GenerationConfig::new().watermarking_config(watermarking.clone());
    config.get("watermarking_config").unwrap_or(FieldValue::Map(Vec::new()))
}

fn dict<'py>(py: Python<'py>, watermarking: &Watermarking) -> PyResult<Bound<'py, PyDict>> {
    Ok(python_value(py, &value(watermarking))?.cast_into()?)
}

#[guarded]
#[pymethods]
impl BuiltInWatermark {
    #[new]
    #[classmethod]
    #[pyo3(signature = (*arguments, **keywords))]
    fn new(
        class: &Bound<'_, PyType>,
        arguments: &Bound<'_, PyTuple>,
        keywords: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let entry = entry(class, "_watermarks", &WATERMARKS, |entry| entry.name)?;
        let made = Made::new(class, arguments, keywords)?;
        (entry.construct)(made.arguments(class.py())).map(Self)
    }

    /// Makes a configuration of a dict, as `to_dict()` returns it.
    ///
    /// Args:
    ///     config_dict (dict[str, Any]): Values by name.
    ///
    /// Returns:
    ///     Self: The configuration.
    #[classmethod]
    #[pyo3(signature = (config_dict))]
    fn from_dict<'py>(
        class: &Bound<'py, PyType>,
        config_dict: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        class.call((), Some(config_dict))
    }

    /// Returns the values by name.
    ///
    /// Returns:
    ///     dict[str, Any]: A new dict.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        dict(py, &self.0)
    }

    /// Checks the values, as a call does.
    ///
    /// Raises:
    ///     ConfigError: A value is outside of its range.
    fn validate(&self, py: Python<'_>) -> PyResult<()> {
        let checked = match &self.0 {
            Watermarking::GreenList(config) => WatermarkDetector::new(config, 1, None).map(drop),
            Watermarking::SynthIDText(config) => {
                SynthIDTextWatermarkDetector::new(config.clone(), []).map(drop)
            }
        };
        checked.map_err(|error| to_python(py, error))
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        shown_call(&slf.get_type().name()?.to_string(), &dict(slf.py(), &slf.get().0)?)
    }

    /// Returns the arguments that make an equal one.
    ///
    /// Returns:
    ///     tuple[tuple[()], dict[str, Any]]: None by position, all by name.
    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyDict>)> {
        Ok((PyTuple::empty(py), dict(py, &self.0)?))
    }

    /// Returns the values, for pickle.
    ///
    /// Returns:
    ///     tuple[Any, tuple[dict[str, Any]]]: For pickle.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyDict>,))> {
        Ok((slf.get_type().getattr("from_dict")?, (dict(slf.py(), &slf.get().0)?,)))
    }
}
