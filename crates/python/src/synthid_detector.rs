//! The classes `BayesianDetectorModel` and `SynthIDTextWatermarkDetector`.

use std::path::PathBuf;

use numpy::Element;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

use super::arrays::array;
use super::errors::{config_error, guarded, input_error, to_python};
use super::prompts::{sequences, shown};
use super::signals::polled;
use super::watermarking;
use rsgen::engine::Interrupt;
use rsgen::generator::BayesianDetector;
use rsgen_core::error::Result;
use rsgen_core::types::TokenId;
use rsgen_generation::{OneOrMany, SynthIDScores, Watermarking};

/// A trained judge of SynthID's watermark: transformers' class of that name.
///
/// `from_pretrained()` opens one.
#[pyclass(module = "rsgen", name = "BayesianDetectorModel", frozen)]
pub(super) struct BayesianDetectorModel(BayesianDetector);

/// Finds SynthID's watermark in texts: transformers' class of that name.
///
/// Args:
///     detector_module (BayesianDetectorModel | None): The trained model. Without one there are no
///         probabilities, but the means of g-values.
///     logits_processor (Any): How the texts were marked: a SynthIDTextWatermarkingConfig, a dict of
///         its fields, or a SynthIDTextWatermarkLogitsProcessor. None takes what the model's folder
///         says.
///     tokenizer (Any): The tokenizer or an id: from the first `eos_token_id` on, tokens do not
///         count. None counts all.
///
/// Raises:
///     ConfigError: A value is outside of its range.
///
/// Example:
///     >>> watermark = rsgen.SynthIDTextWatermarkingConfig(ngram_len=5, keys=[654, 400, 836, 123])
///     >>> out = gen.sample("Once upon a time", max_new_tokens=60, watermarking_config=watermark)
///     >>> detector = rsgen.SynthIDTextWatermarkDetector(None, watermark, gen.tokenizer)
///     >>> detector.weighted_mean_scores(out.token_ids)
#[pyclass(module = "rsgen", name = "SynthIDTextWatermarkDetector", frozen)]
pub(super) struct SynthIDTextWatermarkDetector {
    detector: rsgen_generation::SynthIDTextWatermarkDetector,
    model: Option<Py<BayesianDetectorModel>>,
}

#[guarded]
#[pymethods]
impl BayesianDetectorModel {
    /// Opens a detector that transformers' `save_pretrained` has written.
    ///
    /// Args:
    ///     pretrained_model_name_or_path (str | os.PathLike[str]): The folder, with `config.json` and
    ///         `model.safetensors`, or an id in the local Hub cache.
    ///
    /// Returns:
    ///     Self: The model.
    ///
    /// Raises:
    ///     LoadError: A file is missing or damaged, or is not that of such a model.
    #[classmethod]
    #[pyo3(signature = (pretrained_model_name_or_path))]
    fn from_pretrained(
        _class: &Bound<'_, PyType>,
        py: Python<'_>,
        pretrained_model_name_or_path: PathBuf,
    ) -> PyResult<Self> {
        let opened = BayesianDetector::from_pretrained(&pretrained_model_name_or_path.to_string_lossy());
        opened.map(Self).map_err(|error| to_python(py, error))
    }

    /// int: The layers of the tournament: the number of keys.
    #[getter]
    fn watermarking_depth(&self) -> usize {
        self.0.model.watermarking_depth()
    }

    /// str | None: The model whose texts it was trained for, if its folder says so.
    #[getter]
    fn model_name(&self) -> Option<&str> {
        self.0.model_name.as_deref()
    }

    /// SynthIDTextWatermarkingConfig | None: How those texts are marked, if its folder says so.
    #[getter]
    fn watermarking_config<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.0.watermarking_config.as_ref().map(|config| watermarking::object(py, config)).transpose()
    }

    fn __repr__(&self) -> String {
        format!("<rsgen.BayesianDetectorModel of watermarking_depth {}>", self.0.model.watermarking_depth())
    }
}

#[guarded]
#[pymethods]
impl SynthIDTextWatermarkDetector {
    #[new]
    #[pyo3(signature = (detector_module=None, logits_processor=None, tokenizer=None))]
    fn new(
        py: Python<'_>,
        detector_module: Option<&Bound<'_, PyAny>>,
        logits_processor: Option<&Bound<'_, PyAny>>,
        tokenizer: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let model = match detector_module {
            None => None,
            Some(given) => Some(given.cast::<BayesianDetectorModel>().map_err(|_| {
                config_error!(
                    py,
                    "`detector_module` must be an rsgen.BayesianDetectorModel, got {}; open one with \
                             rsgen.BayesianDetectorModel.from_pretrained(folder)",
                    shown(given)
                )
            })?),
        };
        let of_model = || model.and_then(|model| model.get().0.watermarking_config.clone());
        let watermarking = match logits_processor {
            Some(given) => settings(given)?,
            None => of_model(),
        };
        let Some(Watermarking::SynthIDText(config)) = watermarking else {
            return Err(config_error(
                py,
                "`logits_processor` must be a SynthIDTextWatermarkingConfig, a dict of its fields, or a \
                     SynthIDTextWatermarkLogitsProcessor; rsgen.WatermarkDetector is for green lists",
            ));
        };
        if let Some(depth) = model.map(|model| model.get().0.model.watermarking_depth())
            && depth != config.keys.len()
        {
            return Err(config_error!(
                py,
                "`keys` must be as many as the model was trained for, {depth}, but are {}",
                config.keys.len()
            ));
        }
        let eos = tokenizer.map(end_tokens).transpose()?.unwrap_or_default();
        let detector = rsgen_generation::SynthIDTextWatermarkDetector::new(config, eos);
        let detector = detector.map_err(|error| to_python(py, error))?;
        Ok(Self { detector, model: model.map(|model| model.clone().unbind()) })
    }

    /// Judges texts with the trained model.
    ///
    /// Args:
    ///     tokenized_outputs (Ids | Sequence[Ids]): Token ids: of one text, of several of any
    ///         lengths, or a two-dimensional array. Best without the prompt.
    ///
    /// Returns:
    ///     NDArray[np.float32]: The probability that each text is marked, `[rows]`.
    ///
    /// Raises:
    ///     InputError: A text has fewer than `ngram_len` tokens.
    ///     ConfigError: The detector was made without a model.
    #[pyo3(signature = (tokenized_outputs))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        tokenized_outputs: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let Some(model) = &self.model else {
            return Err(config_error(
                py,
                "`detector_module` must be given for probabilities; `mean_scores` and `weighted_mean_scores` need none",
            ));
        };
        let model = &model.get().0.model;
        self.scores(tokenized_outputs, |scores, interrupted| {
            scores.posterior_interruptible(model, interrupted)
        })
    }

    /// Returns the mean of the g-values that count, about 0.5 without a mark.
    ///
    /// Args:
    ///     input_ids (Ids | Sequence[Ids]): Token ids of one text or several. Best without the prompt.
    ///
    /// Returns:
    ///     NDArray[np.float64]: A score for each text, `[rows]`; NaN where no g-value counts.
    #[pyo3(signature = (input_ids))]
    fn mean_scores<'py>(&self, input_ids: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.scores(input_ids, |scores, _| Ok(scores.mean()))
    }

    /// Returns the mean of the g-values that count, the first layers weighing more.
    ///
    /// Args:
    ///     input_ids (Ids | Sequence[Ids]): Token ids of one text or several. Best without the prompt.
    ///
    /// Returns:
    ///     NDArray[np.float64]: A score for each text, `[rows]`; NaN where no g-value counts.
    #[pyo3(signature = (input_ids))]
    fn weighted_mean_scores<'py>(&self, input_ids: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.scores(input_ids, |scores, _| Ok(scores.weighted_mean()))
    }

    /// Returns the g-values of the n-grams of texts.
    ///
    /// Args:
    ///     input_ids (Ids | Sequence[Ids]): Token ids of one text, or of several of one length.
    ///
    /// Returns:
    ///     NDArray[np.int64]: 0 or 1, `[rows, len - (ngram_len - 1), depth]`.
    #[pyo3(signature = (input_ids))]
    fn compute_g_values<'py>(&self, input_ids: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let rows =
            Self::rows(input_ids, |row, interrupted| self.detector.detect_interruptible(row, interrupted))?;
        let (ngrams, depth) = rows.first().map_or((0, 0), |row| (row.mask.len(), row.depth));
        let values = rows.iter().flat_map(|row| row.g_values.iter().copied().map(i64::from)).collect();
        array(input_ids.py(), (rows.len(), ngrams, depth), values)
    }

    /// Returns which n-grams of texts have a context that has not come before.
    ///
    /// Args:
    ///     input_ids (Ids | Sequence[Ids]): Token ids of one text, or of several of one length.
    ///
    /// Returns:
    ///     NDArray[np.bool_]: `[rows, len - (ngram_len - 1)]`
    #[pyo3(signature = (input_ids))]
    fn compute_context_repetition_mask<'py>(
        &self,
        input_ids: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        Self::mask(input_ids, |row, interrupted| {
            self.detector.compute_context_repetition_mask_interruptible(row, interrupted)
        })
    }

    /// Returns which tokens of texts come before the end.
    ///
    /// Args:
    ///     input_ids (Ids | Sequence[Ids]): Token ids of one text, or of several of one length.
    ///
    /// Returns:
    ///     NDArray[np.bool_]: `[rows, len]`
    #[pyo3(signature = (input_ids))]
    fn compute_eos_token_mask<'py>(&self, input_ids: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        Self::mask(input_ids, |row, _| Ok(self.detector.compute_eos_token_mask(row)))
    }
}

impl SynthIDTextWatermarkDetector {
    /// A number for each text.
    fn scores<'py, T: Element + Send>(
        &self,
        input_ids: &Bound<'py, PyAny>,
        score: impl Fn(&SynthIDScores, &mut Interrupt<'_>) -> Result<T> + Send + Sync,
    ) -> PyResult<Bound<'py, PyAny>> {
        let rows = sequences(input_ids)?;
        let scores = polled(input_ids.py(), |interrupted| {
            let each = |row: &Vec<TokenId>| {
                let scores = self.detector.detect_interruptible(row, interrupted)?;
                score(&scores, interrupted)
            };
            rows.iter().map(each).collect::<Result<Vec<_>>>()
        })?;
        array(input_ids.py(), scores.len(), scores)
    }

    /// A value for each of several texts of one length.
    fn rows<T: Send>(
        input_ids: &Bound<'_, PyAny>,
        value: impl Fn(&[TokenId], &mut Interrupt<'_>) -> Result<T> + Send + Sync,
    ) -> PyResult<Vec<T>> {
        let py = input_ids.py();
        let rows = sequences(input_ids)?;
        if rows.windows(2).any(|pair| pair[0].len() != pair[1].len()) {
            return Err(input_error(py, "`input_ids` must be texts of one length; give them one by one"));
        }
        polled(py, |interrupted| rows.iter().map(|row| value(row, interrupted)).collect())
    }

    fn mask<'py>(
        input_ids: &Bound<'py, PyAny>,
        mask: impl Fn(&[TokenId], &mut Interrupt<'_>) -> Result<Vec<bool>> + Send + Sync,
    ) -> PyResult<Bound<'py, PyAny>> {
        let rows = Self::rows(input_ids, mask)?;
        let width = rows.first().map_or(0, Vec::len);
        array(input_ids.py(), (rows.len(), width), rows.into_iter().flatten().collect())
    }
}

/// The settings that an argument stands for: a configuration, or what a processor was made from.
fn settings(given: &Bound<'_, PyAny>) -> PyResult<Option<Watermarking>> {
    let Some(arguments) =
        given.getattr_opt("__getnewargs_ex__")?.filter(|_| !given.hasattr("to_dict").unwrap_or(false))
    else {
        return watermarking::given(given);
    };
    let arguments = arguments.call0()?.get_item(1)?.cast_into::<PyDict>()?.copy()?;
    for name in ["device", "compat"] {
        arguments.call_method1("pop", (name, given.py().None()))?;
    }
    watermarking::given(arguments.as_any())
}

/// The end tokens of a tokenizer, or ids.
fn end_tokens(tokenizer: &Bound<'_, PyAny>) -> PyResult<Vec<TokenId>> {
    let ids = tokenizer.getattr_opt("eos_token_id")?.unwrap_or_else(|| tokenizer.clone());
    if ids.is_none() {
        return Ok(Vec::new());
    }
    let mut config = rsgen_generation::GenerationConfig::new();
    let value = super::field_values::field_value(&ids)?;
    if config.set("eos_token_id", &value).is_err() {
        return Err(config_error!(
            tokenizer.py(),
            "`tokenizer` must have an `eos_token_id`, or be such an id or a list of them, got {}",
            shown(tokenizer)
        ));
    }
    Ok(config.eos_token_id.as_ref().map(OneOrMany::as_slice).unwrap_or_default().to_vec())
}
