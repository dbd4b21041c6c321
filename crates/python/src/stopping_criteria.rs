//! transformers' stopping criteria as Python objects: functions of arrays, and entries of `stopping_criteria`
//! lists, where they run natively.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::pyclass::{PyTraverseError, PyVisit};
use pyo3::types::{PyDict, PyList, PyTuple, PyType};

use super::arrays::array;
use super::built_in::{Class, Made, argument, required, value};
use super::callbacks;
use super::constraints::token;
use super::errors::{guarded, to_python};
use super::field_values::{count, field_value};
use super::held::Slot;
use super::processors::{score_rows, token_rows};
use super::prompts::shown;
use super::signals::polled;
use super::tokenizer::Tokenizer;
use rsgen::engine::TokenizerVocabulary;
use rsgen_core::error::{Error, Result};
use rsgen_core::types::TokenId;
use rsgen_generation::stopping::{
    ConfidenceCriteria as Confidence, EosTokenCriteria as Eos, MaxLengthCriteria as MaxLength,
    MaxTimeCriteria as MaxTime, StopStringCriteria as StopString,
};
use rsgen_generation::{FieldValue, StopContext, StoppingCriterion};

/// The base of the criteria of `rsgen.stopping_criteria`, which run without Python.
///
/// Calling one with `input_ids`, `[rows, len]`, returns for each row whether it ends with its newest
/// token, as an array of bool, `[rows]`. `ConfidenceCriteria` alone needs `scores`,
/// `[rows, vocab_size]`, or a tuple of such arrays, of which the last counts.
///
/// Args:
///     *arguments (Any): Those of the class.
///     **keywords (Any): Those of the class.
#[pyclass(module = "rsgen.stopping_criteria", name = "BuiltInStoppingCriteria", subclass, frozen)]
pub(super) struct BuiltInStoppingCriteria {
    criterion: Arc<dyn StoppingCriterion>,
    made: Made,
}

/// The classes of `rsgen.stopping_criteria`.
pub(super) const CRITERIA: [Class<Arc<dyn StoppingCriterion>>; 5] = classes! {
    /// Stops at a number of tokens, prompt and padding included.
    ///
    /// Args:
    ///     max_length (int): The number of tokens.
    ///     max_position_embeddings (int | None): Accepted for transformers' sake, without effect.
    MaxLengthCriteria(
        /// The most ids of a row, prompt and padding included.
        max_length: "int",
        /// The positions of the model, which transformers warns of; it has no effect.
        max_position_embeddings: "int | None" = null,
    ) => max_length;

    /// Stops after a time.
    ///
    /// Args:
    ///     max_time (float): Seconds.
    ///     initial_timestamp (float | None): When they begin, as `time.time()` gives it. None is the
    ///         moment when the criterion is made.
    MaxTimeCriteria(
        /// The seconds after which rows end.
        max_time: "float",
        /// When the seconds began, as `time.time()` gives it.
        initial_timestamp: "float | None" = null,
    ) => max_time;

    /// Stops when one of several texts ends in the newest token. Texts are compared as bytes.
    ///
    /// Args:
    ///     tokenizer (Tokenizer): The generator's tokenizer.
    ///     stop_strings (str | Sequence[str]): The text, or texts.
    StopStringCriteria(
        tokenizer: "Tokenizer",
        /// The texts that end a row.
        stop_strings: "str | Sequence[str]",
    ) => stop_strings;

    /// Stops after an end-of-sequence token.
    ///
    /// Args:
    ///     eos_token_id (int | Ids): The token, or tokens.
    EosTokenCriteria(
        /// The token id, or ids, that end a row.
        eos_token_id: "int | Ids",
    ) => eos_token;

    /// Stops after a token that was less probable than a threshold.
    ///
    /// Args:
    ///     assistant_confidence_threshold (float): The least probability, by the softmax of the
    ///         processed scores.
    ConfidenceCriteria(
        /// The probability below which a token ends its row.
        assistant_confidence_threshold: "float",
    ) => confidence;
};

/// The native criterion of an object of exactly one of these classes; `None` for a caller's subclass.
fn native(object: &Bound<'_, PyAny>) -> Option<Arc<dyn StoppingCriterion>> {
    let built_in = object.cast::<BuiltInStoppingCriteria>().ok()?.get();
    built_in.made.is_exact.then(|| Arc::clone(&built_in.criterion))
}

/// The criteria of an argument: a criterion, a callable, a list of them, or nothing. Their Python objects go
/// to `slots`.
pub(super) fn criteria(
    given: Option<&Bound<'_, PyAny>>,
    slots: &mut Vec<Arc<Slot>>,
) -> PyResult<Vec<Arc<dyn StoppingCriterion>>> {
    let objects = callbacks::each("stopping_criteria", given)?;
    let criterion = |object: &Bound<'_, PyAny>| {
        let own = callbacks::own_class(object)?;
        native(&own).map_or_else(|| callbacks::criterion(&own, slots), Ok)
    };
    objects.iter().map(criterion).collect()
}

made_by_table!(BuiltInStoppingCriteria, "stopping_criteria", &CRITERIA);

impl BuiltInStoppingCriteria {
    fn of(class: &Class<Arc<dyn StoppingCriterion>>, made: Made, py: Python<'_>) -> PyResult<Self> {
        Ok(Self { criterion: (class.construct)(made.arguments(py))?, made })
    }
}

#[guarded]
#[pymethods]
impl BuiltInStoppingCriteria {
    fn __traverse__(&self, visit: PyVisit<'_>) -> std::result::Result<(), PyTraverseError> {
        self.made.traverse(&visit)
    }

    #[pyo3(signature = (input_ids, scores=None))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        input_ids: &Bound<'py, PyAny>,
        scores: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let ids = token_rows(input_ids)?;
        let (scores, vocab_size) = newest(scores)?.map_or_else(
            || Ok((Vec::new(), 0)),
            |scores| {
                let (scores, shape) = score_rows(&scores)?;
                if shape.0 == ids.len() {
                    return Ok((scores, shape.1));
                }
                Err(input_error!(
                    py,
                    "`scores` must have a row for each of {} rows of ids, but has {}",
                    ids.len(),
                    shape.0
                ))
            },
        )?;
        let stops = polled(py, |interrupted| {
            let row = |(index, ids): (usize, &Vec<TokenId>)| {
                if interrupted() {
                    return Err(Error::cancelled());
                }
                let mut row = StopContext::of_row(ids, 0);
                row.scores = scores.get(index * vocab_size..(index + 1) * vocab_size).unwrap_or_default();
                row.row_index = index;
                Ok(self.criterion.should_stop(&row)?.is_some())
            };
            ids.iter().enumerate().map(row).collect::<Result<Vec<_>>>()
        })?;
        array(py, stops.len(), stops)
    }
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

fn max_length(given: &Bound<'_, PyDict>) -> PyResult<Arc<dyn StoppingCriterion>> {
    // transformers writes a line to its log beyond the positions. Calls warn of it by themselves.
    let positions = argument::<Bound<'_, PyAny>>(given, "max_position_embeddings")?;
    positions.map(|positions| count(&positions, "max_position_embeddings")).transpose()?;
    Ok(Arc::new(MaxLength::new(count(&value(given, "max_length")?, "max_length")?)))
}

fn max_time(given: &Bound<'_, PyDict>) -> PyResult<Arc<dyn StoppingCriterion>> {
    let py = given.py();
    let initial_timestamp: Option<f64> = argument(given, "initial_timestamp")?;
    let now: f64 = py.import("time")?.call_method0("time")?.extract()?;
    let mut start = Some(Instant::now());
    if let Some(timestamp) = initial_timestamp {
        let before = Duration::try_from_secs_f64((now - timestamp).abs()).ok();
        start = start.zip(before).and_then(|(start, by)| {
            if timestamp <= now { start.checked_sub(by) } else { start.checked_add(by) }
        });
    }
    let start = start.ok_or_else(|| {
        let rule =
            "`initial_timestamp` must be a time as time.time() gives it, since this machine has started";
        config_error!(py, "{rule}, got {initial_timestamp:?}; None is now")
    })?;
    let criterion = MaxTime::since(required(given, "max_time")?, start);
    given.set_item("initial_timestamp", initial_timestamp.unwrap_or(now))?;
    Ok(Arc::new(criterion.map_err(|error| to_python(py, error))?))
}

fn stop_strings(given: &Bound<'_, PyDict>) -> PyResult<Arc<dyn StoppingCriterion>> {
    let py = given.py();
    let (tokenizer, stop_strings) = (value(given, "tokenizer")?, value(given, "stop_strings")?);
    let Ok(own) = tokenizer.cast::<Tokenizer>() else {
        return Err(type_error!(
            "`tokenizer` must be a generator's tokenizer, got {}; or an rsgen.Tokenizer",
            shown(&tokenizer)
        ));
    };
    let texts = match field_value(&stop_strings)? {
        FieldValue::Text(text) => Some(vec![text]),
        FieldValue::List(texts) => {
            let text = |text| if let FieldValue::Text(text) = text { Some(text) } else { None };
            texts.into_iter().map(text).collect()
        }
        _ => None,
    };
    let rule = "`stop_strings` must be a text or a list of texts";
    let wrong = || config_error!(py, "{rule}, got {}", shown(&stop_strings));
    let vocabulary = Arc::new(TokenizerVocabulary(own.get().inner.clone()));
    let criterion = StopString::new(vocabulary, &texts.ok_or_else(wrong)?);
    Ok(Arc::new(criterion.map_err(|error| to_python(py, error))?))
}

fn eos_token(given: &Bound<'_, PyDict>) -> PyResult<Arc<dyn StoppingCriterion>> {
    let eos_token_id = value(given, "eos_token_id")?;
    let ids = match field_value(&eos_token_id)? {
        FieldValue::List(ids) => ids.iter().map(token).collect(),
        single => token(&single).map(|id| vec![id]),
    };
    let rule = "`eos_token_id` must be a token id or a list of them";
    let wrong = || config_error!(given.py(), "{rule}, got {}", shown(&eos_token_id));
    Ok(Arc::new(Eos::new(ids.ok_or_else(wrong)?)))
}

fn confidence(given: &Bound<'_, PyDict>) -> PyResult<Arc<dyn StoppingCriterion>> {
    let criterion = Confidence::new(required(given, "assistant_confidence_threshold")?);
    Ok(Arc::new(criterion.map_err(|error| to_python(given.py(), error))?))
}
