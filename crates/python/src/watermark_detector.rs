//! The class `WatermarkDetector`, which counts green tokens.

use pyo3::prelude::*;

use super::arrays::array;
use super::errors::{config_error, guarded, to_python};
use super::field_values::count;
use super::generator::Generator;
use super::prompts::{sequences, shown};
use super::signals::polled;
use super::{results, watermarking};
use rsgen_core::types::TokenId;
use rsgen_generation::{WatermarkDetection, Watermarking};

/// Finds the watermark of green lists in texts: transformers' class of that name.
///
/// It needs the settings that the texts were marked with, and the size of the vocabulary.
///
/// Args:
///     model_config (Any): The generator, its `config`, or transformers' configuration of the
///         model: `vocab_size` counts, and `bos_token_id`, which is left out in front of a text.
///     device (Any): Accepted for transformers' sake, without effect.
///     watermarking_config (WatermarkingConfig | dict[str, Any] | None): The settings. None is
///         `WatermarkingConfig()`.
///     ignore_repeated_ngrams (bool): Counts n-grams that come again once.
///     max_cache_size (int): Accepted for transformers' sake, without effect.
///
/// Raises:
///     ConfigError: A value is outside of its range.
///
/// Example:
///     >>> watermark = rsgen.WatermarkingConfig(bias=4.0)
///     >>> out = gen.sample("Once upon a time", max_new_tokens=60, watermarking_config=watermark)
///     >>> detector = rsgen.WatermarkDetector(gen, "cpu", watermark)
///     >>> detector(out.token_ids, return_dict=True).z_score
#[pyclass(module = "rsgen", name = "WatermarkDetector", frozen)]
pub(super) struct WatermarkDetector(rsgen_generation::WatermarkDetector);

#[guarded]
#[pymethods]
impl WatermarkDetector {
    #[new]
    #[pyo3(signature = (
        model_config,
        device=None,
        watermarking_config=None,
        ignore_repeated_ngrams=false,
        max_cache_size=None,
    ), text_signature = "(model_config, device=None, watermarking_config=None, ignore_repeated_ngrams=False, max_cache_size=128)")]
    fn new(
        model_config: &Bound<'_, PyAny>,
        device: Option<&Bound<'_, PyAny>>,
        watermarking_config: Option<&Bound<'_, PyAny>>,
        ignore_repeated_ngrams: bool,
        max_cache_size: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let _ = device;
        max_cache_size.map(|given| count(given, "max_cache_size")).transpose()?;
        let py = model_config.py();
        let config = match watermarking_config.map(watermarking::given).transpose()?.flatten() {
            None => rsgen_generation::WatermarkingConfig::default(),
            Some(Watermarking::GreenList(config)) => config,
            Some(Watermarking::SynthIDText(_)) => {
                return Err(config_error(
                    py,
                    "`watermarking_config` must be a WatermarkingConfig, but is a SynthIDTextWatermarkingConfig; its \
                         detector is rsgen.SynthIDTextWatermarkDetector",
                ));
            }
        };
        let (vocab_size, bos_token_id) = vocabulary(model_config)?;
        let detector = rsgen_generation::WatermarkDetector::new(&config, vocab_size, bos_token_id);
        let detector = detector.map_err(|error| to_python(py, error))?;
        Ok(Self(detector.ignore_repeated_ngrams(ignore_repeated_ngrams)))
    }

    /// Looks at texts.
    ///
    /// Args:
    ///     input_ids (Ids | Sequence[Ids]): Token ids: of one text, of several of any lengths, or a
    ///         two-dimensional array. Best without the prompt.
    ///     z_threshold (float): The z-score above which a text counts as marked.
    ///     return_dict (bool): Returns all that is found, not the predictions alone.
    ///
    /// Returns:
    ///     WatermarkDetectorOutput | NDArray[np.bool_]: Whether each text is marked, `[rows]`, or more.
    ///
    /// Raises:
    ///     InputError: A text has no more tokens than `context_width`.
    #[pyo3(signature = (input_ids, z_threshold=3.0, return_dict=false))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        input_ids: &Bound<'py, PyAny>,
        z_threshold: f64,
        return_dict: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let rows = sequences(input_ids)?;
        let found = polled(py, |interrupted| {
            rows.iter()
                .map(|row| self.0.detect_interruptible(row, interrupted))
                .collect::<Result<Vec<_>, _>>()
        })?;
        let found = Found(found);
        let prediction = found.array(py, |found| found.prediction(z_threshold))?;
        if return_dict { found.to_python(py, &prediction) } else { Ok(prediction) }
    }
}

/// The size of a vocabulary and the token that begins texts.
fn vocabulary(model_config: &Bound<'_, PyAny>) -> PyResult<(usize, Option<TokenId>)> {
    let config = match model_config.cast::<Generator>() {
        Ok(generator) => generator.getattr("config")?,
        Err(_) => model_config.clone(),
    };
    let value = |name: &str| match config.call_method1("get", (name,)) {
        Ok(value) => Ok(Some(value)),
        Err(_) => config.getattr_opt(name),
    };
    let vocab_size = value("vocab_size")?.and_then(|size| size.extract().ok()).ok_or_else(|| {
        type_error!(
            "`model_config` must be a Generator, or a model's configuration with `vocab_size`, got {}",
            shown(model_config)
        )
    })?;
    let bos_token_id = value("bos_token_id")?.and_then(|id| id.extract().ok()).map(TokenId);
    Ok((vocab_size, bos_token_id))
}

/// What was found in the rows, as arrays.
struct Found(Vec<WatermarkDetection>);

impl Found {
    fn array<'py, T: numpy::Element>(
        &self,
        py: Python<'py>,
        value: impl Fn(&WatermarkDetection) -> T,
    ) -> PyResult<Bound<'py, PyAny>> {
        array(py, self.0.len(), self.0.iter().map(value).collect())
    }

    fn to_python<'py>(&self, py: Python<'py>, prediction: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let values = (
            self.array(py, |found| found.num_tokens_scored as f64)?,
            self.array(py, |found| found.num_green_tokens as f64)?,
            self.array(py, |found| found.green_fraction)?,
            self.array(py, |found| found.z_score)?,
            self.array(py, |found| found.p_value)?,
            prediction,
            self.array(py, |found| found.confidence)?,
        );
        results::made(py, "WatermarkDetectorOutput", values)
    }
}
