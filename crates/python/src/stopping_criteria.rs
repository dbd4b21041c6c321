//! transformers' stopping criteria as Python objects: functions of arrays, and entries of `stopping_criteria` lists, where
//! they run natively.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pyo3::PyClass;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pyclass::{PyTraverseError, PyVisit};
use pyo3::types::{IntoPyDict, PyDict, PyList, PyTuple};

use super::arrays::array;
use super::callbacks;
use super::config::field_value;
use super::errors::{config_error, guarded, input_error, to_python, undefined};
use super::held::Slot;
use super::processors::{score_rows, token_rows};
use super::prompts::shown;
use super::tokenizer::Tokenizer;
use rsgen::engine::TokenizerVocabulary;
use rsgen_core::error::Result;
use rsgen_core::types::TokenId;
use rsgen_generation::stopping::{
    ConfidenceCriteria as Confidence, EosTokenCriteria as Eos, MaxLengthCriteria as MaxLength,
    MaxTimeCriteria as MaxTime, StopStringCriteria as StopString,
};
use rsgen_generation::{FieldValue, StopContext, StoppingCriterion};

/// The base of all stopping criteria, also of those that you write as classes.
///
/// Any other callable will do as well. A class of yours defines `__call__(self, input_ids, scores)`
/// and returns whether the row ends: see `rsgen.types.StoppingCriterion`.
///
/// Args:
///     *_arguments (Any): Whatever your class takes.
///     **_keywords (Any): Whatever your class takes.
#[pyclass(module = "rsgen.stopping_criteria", name = "StoppingCriteria", subclass, frozen)]
pub(super) struct StoppingCriteria;

/// The base of the criteria of `rsgen.stopping_criteria`, which run without Python.
///
/// Calling one with `input_ids`, `[rows, len]`, returns for each row whether it ends with its newest
/// token, as an array of bool, `[rows]`. `ConfidenceCriteria` alone needs `scores`,
/// `[rows, vocab_size]`, or a tuple of such arrays, of which the last counts.
#[pyclass(
    module = "rsgen.stopping_criteria",
    name = "BuiltInStoppingCriteria",
    extends = StoppingCriteria,
    subclass,
    frozen
)]
pub(super) struct BuiltInStoppingCriteria {
    criterion: Arc<dyn StoppingCriterion>,
    /// What it was made from, by name.
    arguments: Py<PyDict>,
}

/// Stops at a number of tokens, prompt and padding included.
///
/// Args:
///     max_length (int): The number of tokens.
///     max_position_embeddings (int | None): Accepted for transformers' sake, without effect.
#[pyclass(
    module = "rsgen.stopping_criteria",
    name = "MaxLengthCriteria",
    extends = BuiltInStoppingCriteria,
    subclass,
    frozen
)]
pub(super) struct MaxLengthCriteria;

/// Stops after a time.
///
/// Args:
///     max_time (float): Seconds.
///     initial_timestamp (float | None): When they begin, as `time.time()` gives it. None is the
///         moment when the criterion is made.
#[pyclass(
    module = "rsgen.stopping_criteria",
    name = "MaxTimeCriteria",
    extends = BuiltInStoppingCriteria,
    subclass,
    frozen
)]
pub(super) struct MaxTimeCriteria;

/// Stops when one of several texts ends in the newest token. Texts are compared as bytes.
///
/// Args:
///     tokenizer (Tokenizer): The generator's tokenizer.
///     stop_strings (str | Sequence[str]): The text, or texts.
#[pyclass(
    module = "rsgen.stopping_criteria",
    name = "StopStringCriteria",
    extends = BuiltInStoppingCriteria,
    subclass,
    frozen
)]
pub(super) struct StopStringCriteria;

/// Stops after an end-of-sequence token.
///
/// Args:
///     eos_token_id (int | Ids): The token, or tokens.
#[pyclass(
    module = "rsgen.stopping_criteria",
    name = "EosTokenCriteria",
    extends = BuiltInStoppingCriteria,
    subclass,
    frozen
)]
pub(super) struct EosTokenCriteria;

/// Stops after a token that was less probable than a threshold.
///
/// Args:
///     assistant_confidence_threshold (float): The least probability, by the softmax of the
///         processed scores.
#[pyclass(
    module = "rsgen.stopping_criteria",
    name = "ConfidenceCriteria",
    extends = BuiltInStoppingCriteria,
    subclass,
    frozen
)]
pub(super) struct ConfidenceCriteria;

/// The layers of an object of the class `class` that was made from these arguments.
fn of<'py, T: PyClass<BaseType = BuiltInStoppingCriteria>>(
    class: T,
    criterion: impl StoppingCriterion + 'static,
    arguments: impl IntoPyDict<'py>,
    py: Python<'py>,
) -> PyResult<PyClassInitializer<T>> {
    let arguments = arguments.into_py_dict(py)?.unbind();
    let built_in = BuiltInStoppingCriteria { criterion: Arc::new(criterion), arguments };
    Ok(PyClassInitializer::from(StoppingCriteria).add_subclass(built_in).add_subclass(class))
}

/// The criterion of an object whose class is one of these, and none that a caller has derived from it.
fn native(object: &Bound<'_, PyAny>) -> Option<Arc<dyn StoppingCriterion>> {
    let is_exact = object.is_exact_instance_of::<MaxLengthCriteria>()
        || object.is_exact_instance_of::<MaxTimeCriteria>()
        || object.is_exact_instance_of::<StopStringCriteria>()
        || object.is_exact_instance_of::<EosTokenCriteria>()
        || object.is_exact_instance_of::<ConfidenceCriteria>();
    let built_in = is_exact.then(|| object.cast::<BuiltInStoppingCriteria>().ok())??;
    Some(Arc::clone(&built_in.get().criterion))
}

/// The criteria of an argument: one of these, a callable, a list of them, or nothing. What they hold of Python goes to
/// `slots`.
pub(super) fn criteria(
    given: Option<&Bound<'_, PyAny>>,
    slots: &mut Vec<Arc<Slot>>,
) -> PyResult<Vec<Arc<dyn StoppingCriterion>>> {
    let objects = callbacks::each(given)?;
    let criterion = |object: &Bound<'_, PyAny>| {
        let own = callbacks::own_class(object)?;
        native(&own).map_or_else(|| callbacks::criterion(&own, slots), Ok)
    };
    objects.iter().map(criterion).collect()
}

#[pymethods]
impl StoppingCriteria {
    #[new]
    #[pyo3(signature = (*_arguments, **_keywords))]
    fn new(_arguments: &Bound<'_, PyTuple>, _keywords: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        guarded(|| Ok(Self))
    }

    #[pyo3(signature = (input_ids, scores))]
    fn __call__(
        slf: &Bound<'_, Self>,
        input_ids: &Bound<'_, PyAny>,
        scores: &Bound<'_, PyAny>,
    ) -> PyResult<Py<PyAny>> {
        let _ = (input_ids, scores);
        guarded(|| Err(undefined(slf.as_any(), "__call__(self, input_ids, scores)")))
    }
}

#[pymethods]
impl BuiltInStoppingCriteria {
    fn __traverse__(&self, visit: PyVisit<'_>) -> std::result::Result<(), PyTraverseError> {
        visit.call(&self.arguments)
    }

    #[pyo3(signature = (input_ids, scores=None))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        input_ids: &Bound<'py, PyAny>,
        scores: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        guarded(|| {
            let ids = token_rows(input_ids)?;
            let (scores, vocab_size) = newest(scores)?.map_or_else(
                || Ok((Vec::new(), 0)),
                |scores| {
                    let (scores, shape) = score_rows(&scores)?;
                    if shape.0 == ids.len() {
                        return Ok((scores, shape.1));
                    }
                    Err(input_error(
                        py,
                        format!(
                            "`scores` must have a row for each of {} rows of ids, but has {}",
                            ids.len(),
                            shape.0
                        ),
                    ))
                },
            )?;
            let stops = py.detach(|| {
                let row = |(index, ids): (usize, &Vec<TokenId>)| {
                    let mut row = StopContext::of_row(ids, 0);
                    row.scores = scores.get(index * vocab_size..(index + 1) * vocab_size).unwrap_or_default();
                    row.row_index = index;
                    self.criterion.should_stop(&row)
                };
                ids.iter().enumerate().map(|entry| Ok(row(entry)?.is_some())).collect::<Result<Vec<_>>>()
            });
            let stops = stops.map_err(|error| to_python(py, error))?;
            array(py, stops.len(), stops)
        })
    }

    /// Returns the arguments that it was made from, for pickle.
    ///
    /// Returns:
    ///     tuple[tuple[()], dict[str, Any]]: The arguments.
    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyDict>)> {
        guarded(|| Ok((PyTuple::empty(py), self.arguments.bind(py).copy()?)))
    }
}

/// The argument of that name which a criterion was made from.
fn argument<'py>(criterion: &Bound<'py, impl PyClass>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    let py = criterion.py();
    let built_in = criterion.as_any().cast::<BuiltInStoppingCriteria>()?;
    guarded(|| {
        Ok(built_in.get().arguments.bind(py).get_item(name)?.unwrap_or_else(|| py.None().into_bound(py)))
    })
}

/// The scores of the newest step: transformers gives criteria those of all steps.
fn newest<'py>(scores: Option<&Bound<'py, PyAny>>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Some(scores) = scores else { return Ok(None) };
    let steps = match (scores.cast::<PyTuple>(), scores.cast::<PyList>()) {
        (Ok(steps), _) => steps.to_list(),
        (_, Ok(steps)) => steps.clone(),
        _ => return Ok(Some(scores.clone())),
    };
    match steps.iter().last() {
        // A list may also be the rows themselves.
        Some(step) if step.hasattr("shape")? => Ok(Some(step)),
        _ => Ok(Some(scores.clone())),
    }
}

#[pymethods]
impl MaxLengthCriteria {
    #[new]
    #[pyo3(signature = (max_length, max_position_embeddings=None))]
    fn new(
        py: Python<'_>,
        max_length: usize,
        max_position_embeddings: Option<usize>,
    ) -> PyResult<PyClassInitializer<Self>> {
        // transformers writes a line to its log beyond the positions. Calls warn of it by themselves.
        let arguments =
            [("max_length", Some(max_length)), ("max_position_embeddings", max_position_embeddings)];
        guarded(|| of(Self, MaxLength::new(max_length), arguments, py))
    }

    /// int: The most ids of a row, prompt and padding included.
    #[getter]
    fn max_length<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        guarded(|| argument(slf, "max_length"))
    }

    /// int | None: The positions of the model, which transformers warns of; it has no effect.
    #[getter]
    fn max_position_embeddings<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        guarded(|| argument(slf, "max_position_embeddings"))
    }
}

#[pymethods]
impl MaxTimeCriteria {
    #[new]
    #[pyo3(signature = (max_time, initial_timestamp=None))]
    fn new(
        py: Python<'_>,
        max_time: f64,
        initial_timestamp: Option<f64>,
    ) -> PyResult<PyClassInitializer<Self>> {
        guarded(|| {
            let now: f64 = py.import("time")?.call_method0("time")?.extract()?;
            let mut start = Some(Instant::now());
            if let Some(timestamp) = initial_timestamp {
                let before = Duration::try_from_secs_f64((now - timestamp).abs()).ok();
                start = start.zip(before).and_then(|(start, by)| {
                    if timestamp <= now { start.checked_sub(by) } else { start.checked_add(by) }
                });
            }
            let start = start.ok_or_else(|| {
                let rule = "`initial_timestamp` must be a time as time.time() gives it, since this machine has started";
                config_error(py, format!("{rule}, got {initial_timestamp:?}; None is now"))
            })?;
            let criterion = MaxTime::since(max_time, start).map_err(|error| to_python(py, error))?;
            let timestamp = initial_timestamp.unwrap_or(now);
            of(Self, criterion, [("max_time", max_time), ("initial_timestamp", timestamp)], py)
        })
    }

    /// float: The seconds after which rows end.
    #[getter]
    fn max_time<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        guarded(|| argument(slf, "max_time"))
    }

    /// float: When the seconds began, as `time.time()` gives it.
    #[getter]
    fn initial_timestamp<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        guarded(|| argument(slf, "initial_timestamp"))
    }
}

#[pymethods]
impl StopStringCriteria {
    #[new]
    #[pyo3(signature = (tokenizer, stop_strings))]
    fn new(
        tokenizer: &Bound<'_, PyAny>,
        stop_strings: &Bound<'_, PyAny>,
    ) -> PyResult<PyClassInitializer<Self>> {
        guarded(|| {
            let py = tokenizer.py();
            let Ok(own) = tokenizer.cast::<Tokenizer>() else {
                return Err(PyTypeError::new_err(format!(
                    "`tokenizer` must be a generator's tokenizer, got {}; or an rsgen.Tokenizer",
                    shown(tokenizer)
                )));
            };
            let texts = match field_value(stop_strings)? {
                FieldValue::Text(text) => Some(vec![text]),
                FieldValue::List(texts) => {
                    let text = |text| if let FieldValue::Text(text) = text { Some(text) } else { None };
                    texts.into_iter().map(text).collect()
                }
                _ => None,
            };
            let texts = texts.ok_or_else(|| {
                config_error(
                    py,
                    format!("`stop_strings` must be a text or a list of texts, got {}", shown(stop_strings)),
                )
            })?;
            let vocabulary = Arc::new(TokenizerVocabulary(own.get().inner.clone()));
            let criterion = StopString::new(vocabulary, &texts).map_err(|error| to_python(py, error))?;
            of(Self, criterion, [("tokenizer", tokenizer), ("stop_strings", stop_strings)], py)
        })
    }

    /// str | Sequence[str]: The texts that end a row.
    #[getter]
    fn stop_strings<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        guarded(|| argument(slf, "stop_strings"))
    }
}

#[pymethods]
impl EosTokenCriteria {
    #[new]
    #[pyo3(signature = (eos_token_id))]
    fn new(eos_token_id: &Bound<'_, PyAny>) -> PyResult<PyClassInitializer<Self>> {
        guarded(|| {
            let id = |id: &FieldValue| match id {
                FieldValue::Int(id) => u32::try_from(*id).ok().map(TokenId),
                _ => None,
            };
            let ids = match field_value(eos_token_id)? {
                FieldValue::List(ids) => ids.iter().map(id).collect(),
                single => id(&single).map(|id| vec![id]),
            };
            let rule = "`eos_token_id` must be a token id or a list of them";
            let wrong = || config_error(eos_token_id.py(), format!("{rule}, got {}", shown(eos_token_id)));
            of(Self, Eos::new(ids.ok_or_else(wrong)?), [("eos_token_id", eos_token_id)], eos_token_id.py())
        })
    }

    /// int | Ids: The token id, or ids, that end a row.
    #[getter]
    fn eos_token_id<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        guarded(|| argument(slf, "eos_token_id"))
    }
}

#[pymethods]
impl ConfidenceCriteria {
    #[new]
    #[pyo3(signature = (assistant_confidence_threshold))]
    fn new(py: Python<'_>, assistant_confidence_threshold: f64) -> PyResult<PyClassInitializer<Self>> {
        guarded(|| {
            let criterion = Confidence::new(assistant_confidence_threshold);
            let criterion = criterion.map_err(|error| to_python(py, error))?;
            of(Self, criterion, [("assistant_confidence_threshold", assistant_confidence_threshold)], py)
        })
    }

    /// float: The probability below which a token ends its row.
    #[getter]
    fn assistant_confidence_threshold<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        guarded(|| argument(slf, "assistant_confidence_threshold"))
    }
}
