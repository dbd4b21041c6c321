//! The classes of `watermarking_config`: `WatermarkingConfig` and `SynthIDTextWatermarkingConfig`.
//!
//! They are values: a call and a detector check ranges.

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

use super::config::{field_value, python_value};
use super::errors::{guarded, to_python};
use rsgen_generation::{FieldValue, SynthIDTextWatermarkDetector, WatermarkDetector, Watermarking};

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
#[pyclass(module = "rsgen", name = "WatermarkingConfig", frozen, eq)]
#[derive(PartialEq)]
pub(super) struct WatermarkingConfig(pub(super) rsgen_generation::WatermarkingConfig);

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
#[pyclass(module = "rsgen", name = "SynthIDTextWatermarkingConfig", frozen, eq)]
#[derive(PartialEq)]
pub(super) struct SynthIDTextWatermarkingConfig(pub(super) rsgen_generation::SynthIDTextWatermarkingConfig);

/// The watermark that these values by name make.
fn parsed(py: Python<'_>, values: &[(&str, Option<&Bound<'_, PyAny>>)]) -> PyResult<Option<Watermarking>> {
    let entry = |(name, value): &(&str, Option<&Bound<'_, PyAny>>)| {
        let value = value.map_or(Ok(FieldValue::Null), field_value)?;
        Ok((FieldValue::from(*name), value))
    };
    let map = values.iter().map(entry).collect::<PyResult<_>>().map(FieldValue::Map)?;
    watermarking(py, &map)
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
    match watermarking {
        Watermarking::GreenList(config) => WatermarkingConfig(config.clone()).into_bound_py_any(py),
        Watermarking::SynthIDText(config) => {
            SynthIDTextWatermarkingConfig(config.clone()).into_bound_py_any(py)
        }
    }
}

/// The values by name.
fn dict(py: Python<'_>, watermarking: impl Into<Watermarking>) -> PyResult<Bound<'_, PyDict>> {
    let config = rsgen_generation::GenerationConfig::new().watermarking_config(watermarking);
    let value = config.get("watermarking_config").unwrap_or(FieldValue::Map(Vec::new()));
    Ok(python_value(py, &value)?.cast_into()?)
}

fn shown(class: &str, values: &Bound<'_, PyDict>) -> PyResult<String> {
    let shown = values.iter().map(|(name, value)| Ok(format!("{name}={}", value.repr()?)));
    Ok(format!("{class}({})", shown.collect::<PyResult<Vec<_>>>()?.join(", ")))
}

#[pymethods]
impl WatermarkingConfig {
    #[new]
    #[pyo3(signature = (greenlist_ratio=None, bias=None, hashing_key=None, seeding_scheme=None, context_width=None))]
    #[pyo3(
        text_signature = "(greenlist_ratio=0.25, bias=2.0, hashing_key=15485863, seeding_scheme=\"lefthash\", context_width=1)"
    )]
    fn new(
        py: Python<'_>,
        greenlist_ratio: Option<&Bound<'_, PyAny>>,
        bias: Option<&Bound<'_, PyAny>>,
        hashing_key: Option<&Bound<'_, PyAny>>,
        seeding_scheme: Option<&Bound<'_, PyAny>>,
        context_width: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        guarded(|| {
            let values = [
                ("greenlist_ratio", greenlist_ratio),
                ("bias", bias),
                ("hashing_key", hashing_key),
                ("seeding_scheme", seeding_scheme),
                ("context_width", context_width),
            ];
            match parsed(py, &values)? {
                Some(Watermarking::GreenList(config)) => Ok(Self(config)),
                _ => Ok(Self(rsgen_generation::WatermarkingConfig::default())),
            }
        })
    }

    /// float: The part of the vocabulary that is green.
    #[getter]
    fn greenlist_ratio(&self) -> PyResult<f64> {
        guarded(|| Ok(self.0.greenlist_ratio))
    }

    /// float: What is added to the scores of green tokens.
    #[getter]
    fn bias(&self) -> PyResult<f64> {
        guarded(|| Ok(self.0.bias))
    }

    /// int: The key that green lists depend on.
    #[getter]
    fn hashing_key(&self) -> PyResult<i128> {
        guarded(|| Ok(self.0.hashing_key))
    }

    /// str: What else green lists depend on.
    #[getter]
    fn seeding_scheme(&self) -> PyResult<&'static str> {
        guarded(|| Ok(self.0.seeding_scheme.as_str()))
    }

    /// int: The tokens before the first marked one.
    #[getter]
    fn context_width(&self) -> PyResult<usize> {
        guarded(|| Ok(self.0.context_width))
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
        guarded(|| class.call((), Some(config_dict)))
    }

    /// Returns the values by name.
    ///
    /// Returns:
    ///     dict[str, Any]: A new dict.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        guarded(|| dict(py, self.0.clone()))
    }

    /// Checks the values, as a call does.
    ///
    /// Raises:
    ///     ConfigError: A value is outside of its range.
    fn validate(&self, py: Python<'_>) -> PyResult<()> {
        guarded(|| WatermarkDetector::new(&self.0, 1, None).map(drop).map_err(|error| to_python(py, error)))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        guarded(|| shown("WatermarkingConfig", &self.to_dict(py)?))
    }

    /// Returns the values, for pickle.
    ///
    /// Returns:
    ///     tuple[Any, tuple[dict[str, Any]]]: For pickle.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyDict>,))> {
        guarded(|| Ok((slf.get_type().getattr("from_dict")?, (slf.get().to_dict(slf.py())?,))))
    }
}

#[pymethods]
impl SynthIDTextWatermarkingConfig {
    #[new]
    #[pyo3(signature = (
        ngram_len,
        keys,
        context_history_size=None,
        sampling_table_seed=None,
        sampling_table_size=None,
        skip_first_ngram_calls=None,
        debug_mode=None,
    ))]
    #[pyo3(
        text_signature = "(ngram_len, keys, context_history_size=1024, sampling_table_seed=0, sampling_table_size=65536, skip_first_ngram_calls=False, debug_mode=False)"
    )]
    #[expect(clippy::too_many_arguments, reason = "those of transformers")]
    fn new(
        py: Python<'_>,
        ngram_len: &Bound<'_, PyAny>,
        keys: &Bound<'_, PyAny>,
        context_history_size: Option<&Bound<'_, PyAny>>,
        sampling_table_seed: Option<&Bound<'_, PyAny>>,
        sampling_table_size: Option<&Bound<'_, PyAny>>,
        skip_first_ngram_calls: Option<&Bound<'_, PyAny>>,
        debug_mode: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        guarded(|| {
            let values = [
                ("ngram_len", Some(ngram_len)),
                ("keys", Some(keys)),
                ("context_history_size", context_history_size),
                ("sampling_table_seed", sampling_table_seed),
                ("sampling_table_size", sampling_table_size),
                ("skip_first_ngram_calls", skip_first_ngram_calls),
                ("debug_mode", debug_mode),
            ];
            match parsed(py, &values)? {
                Some(Watermarking::SynthIDText(config)) => Ok(Self(config)),
                _ => Ok(Self(rsgen_generation::SynthIDTextWatermarkingConfig::new(0, Vec::new()))),
            }
        })
    }

    /// int: The length of the n-grams that are hashed.
    #[getter]
    fn ngram_len(&self) -> PyResult<usize> {
        guarded(|| Ok(self.0.ngram_len))
    }

    /// list[int]: The keys, one for each layer of the tournament.
    #[getter]
    fn keys(&self) -> PyResult<Vec<i64>> {
        guarded(|| Ok(self.0.keys.clone()))
    }

    /// int: How many of the latest contexts are not used a second time.
    #[getter]
    fn context_history_size(&self) -> PyResult<usize> {
        guarded(|| Ok(self.0.context_history_size))
    }

    /// int: The seed of the table that hashes are looked up in.
    #[getter]
    fn sampling_table_seed(&self) -> PyResult<u64> {
        guarded(|| Ok(self.0.sampling_table_seed))
    }

    /// int: The size of that table.
    #[getter]
    fn sampling_table_size(&self) -> PyResult<usize> {
        guarded(|| Ok(self.0.sampling_table_size))
    }

    /// bool: Whether the first `ngram_len - 1` tokens are left unmarked.
    #[getter]
    fn skip_first_ngram_calls(&self) -> PyResult<bool> {
        guarded(|| Ok(self.0.skip_first_ngram_calls))
    }

    /// bool: Whether all scores are taken as equal.
    #[getter]
    fn debug_mode(&self) -> PyResult<bool> {
        guarded(|| Ok(self.0.debug_mode))
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
        guarded(|| class.call((), Some(config_dict)))
    }

    /// Returns the values by name.
    ///
    /// Returns:
    ///     dict[str, Any]: A new dict.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        guarded(|| dict(py, self.0.clone()))
    }

    /// Checks the values, as a call does.
    ///
    /// Raises:
    ///     ConfigError: A value is outside of its range.
    fn validate(&self, py: Python<'_>) -> PyResult<()> {
        guarded(|| {
            let checked = SynthIDTextWatermarkDetector::new(self.0.clone(), []);
            checked.map(drop).map_err(|error| to_python(py, error))
        })
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        guarded(|| shown("SynthIDTextWatermarkingConfig", &self.to_dict(py)?))
    }

    /// Returns the values, for pickle.
    ///
    /// Returns:
    ///     tuple[Any, tuple[dict[str, Any]]]: For pickle.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyDict>,))> {
        guarded(|| Ok((slf.get_type().getattr("from_dict")?, (slf.get().to_dict(slf.py())?,))))
    }
}
