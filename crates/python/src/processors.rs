//! transformers' logits processors as Python objects that run natively.
//!
//! There is one class for all, which the package gives a subclass for each entry of the registry. Called with
//! arrays, an object is a pure function; in the list of a call it runs as a processor of Rust's, without
//! Python.

use std::sync::Arc;

use numpy::{PyArray2, PyArrayMethods, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::pyclass::{PyTraverseError, PyVisit};
use pyo3::types::{PyDict, PyList, PyTuple, PyType};

use super::arrays::{array, numpy};
use super::built_in::{Made, shown_call};
use super::callbacks;
use super::errors::{guarded, to_python};
use super::field_values::{count, field_value};
use super::held::Held;
use super::prompts::shown;
use super::signals::polled;
use super::walk::to_array;
use rsgen_core::types::TokenId;
use rsgen_generation::logits::{Argument, PROCESSORS, ProcessorInfo};
use rsgen_generation::{Compat, ProcessContext, RowContext, ScoreRows};

/// The base of the processors of `rsgen.processors`.
///
/// Calling one with `input_ids`, `[rows, len]`, and `scores`, `[rows, vocab_size]`, returns the new
/// scores in float32 and leaves those given as they are. `current_tokens` and `beam_group_idx` are
/// for `HammingDiversityLogitsProcessor` alone, as in transformers.
///
/// Args:
///     *arguments (Any): Those of the class.
///     **keywords (Any): Those of the class.
#[pyclass(module = "rsgen.processors", name = "BuiltInLogitsProcessor", subclass, frozen)]
pub(super) struct BuiltInLogitsProcessor {
    processor: Arc<dyn rsgen_generation::LogitsProcessor>,
    made: Made,
    /// The functions that the processor calls.
    held: Held,
}

impl BuiltInLogitsProcessor {
    fn of(entry: &ProcessorInfo, made: Made, py: Python<'_>) -> PyResult<Self> {
        let (processor, held) = construct(entry, made.arguments(py))?;
        Ok(Self { processor, made, held })
    }

    /// The processor itself; `None` for a class of the caller's own, which may do something else when it is
    /// called.
    pub(super) fn native(&self) -> Option<Arc<dyn rsgen_generation::LogitsProcessor>> {
        self.made.is_exact.then(|| Arc::clone(&self.processor))
    }
}

made_by_table!(BuiltInLogitsProcessor, "processors", PROCESSORS);

#[guarded]
#[pymethods]
impl BuiltInLogitsProcessor {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.made.traverse(&visit)?;
        self.held.traverse(visit)
    }

    fn __clear__(&self) {
        self.held.clear();
    }

    #[pyo3(signature = (input_ids, scores, current_tokens=None, beam_group_idx=None))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        input_ids: &Bound<'py, PyAny>,
        scores: &Bound<'py, PyAny>,
        current_tokens: Option<&Bound<'py, PyAny>>,
        beam_group_idx: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let ids = token_rows(input_ids)?;
        let beam_group = beam_group_idx.map_or(Ok(0), |given| count(given, "beam_group_idx"))?;
        let current_tokens = current_tokens.map_or_else(|| Ok(Vec::new()), |tokens| tokens_of(tokens))?;
        let (mut scores, shape) = score_rows(scores)?;
        if ids.len() != shape.0 {
            return Err(input_error!(
                py,
                "`input_ids` must have a row for each row of scores, but has {} for {}",
                ids.len(),
                shape.0
            ));
        }
        let processed = polled(py, |interrupted| {
            let rows = ids.iter().enumerate().map(|(index, ids)| RowContext::numbered(ids, index));
            let mut context = ProcessContext::new(rows.collect());
            context.beam_group = beam_group;
            context.current_tokens = &current_tokens;
            context.interrupted = Some(interrupted);
            self.processor.process(&mut ScoreRows::new(&mut scores, shape.1), &mut context)
        });
        processed?;
        array(py, shape, scores)
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        shown_call(&slf.get_type().name()?.to_string(), slf.get().made.arguments(slf.py()))
    }
}

fn construct(
    entry: &ProcessorInfo,
    arguments: &Bound<'_, PyDict>,
) -> PyResult<(Arc<dyn rsgen_generation::LogitsProcessor>, Held)> {
    let py = arguments.py();
    let mut compat = None;
    let (mut given, mut slots) = (Vec::new(), Vec::new());
    for (name, value) in arguments {
        let name: String = name.extract()?;
        if name == "compat" {
            compat = self::compat(&value)?;
        } else if value.is_callable() {
            given.push((name, Argument::AllowedTokens(callbacks::allowed_tokens(&value, &mut slots)?)));
        } else {
            given.push((name, Argument::from(field_value(&value)?)));
        }
    }
    let processor = entry.construct(given, compat).map_err(|error| to_python(py, error))?;
    Ok((processor, Held::new(slots)))
}

/// The older transformers that an argument names.
fn compat(value: &Bound<'_, PyAny>) -> PyResult<Option<Compat>> {
    let mut config = rsgen_generation::GenerationConfig::new();
    config.set("compat", &field_value(value)?).map_err(|error| to_python(value.py(), error))?;
    Ok(config.compat)
}

/// Ids as an array of two dimensions.
pub(super) fn token_rows(ids: &Bound<'_, PyAny>) -> PyResult<Vec<Vec<TokenId>>> {
    let rows = generation_rows(ids)?;
    rows.ok_or_else(|| {
        input_error!(ids.py(), "`input_ids` must be an array of token ids, [rows, len], got {}", shown(ids))
    })
}

fn generation_rows(ids: &Bound<'_, PyAny>) -> PyResult<Option<Vec<Vec<TokenId>>>> {
    let py = ids.py();
    let array = to_array(ids)?;
    let kind: String = array.getattr("dtype")?.getattr("kind")?.extract()?;
    let empty = array.getattr("size")?.extract::<usize>()? == 0;
    if array.getattr("ndim")?.extract::<usize>()? != 2 || !(empty || ["i", "u"].contains(&kind.as_str())) {
        return Ok(None);
    }
    let array = numpy(py)?.call_method1("ascontiguousarray", (array, "int64"))?;
    let array = array.cast_into::<PyArray2<i64>>()?.try_readonly()?;
    let len = array.shape()[1];
    if len == 0 {
        return Ok(Some(vec![Vec::new(); array.shape()[0]]));
    }
    let row = |row: &[i64]| row.iter().map(|&id| u32::try_from(id).ok().map(TokenId)).collect();
    Ok(array.as_slice()?.chunks_exact(len).map(row).collect())
}

/// Ids as an array of one dimension.
fn tokens_of(ids: &Bound<'_, PyAny>) -> PyResult<Vec<TokenId>> {
    let row = PyList::new(ids.py(), [ids])?;
    Ok(token_rows(row.as_any())?.into_iter().flatten().collect())
}

/// A copy of scores, `[rows, vocab_size]`, in float32.
pub(super) fn score_rows(scores: &Bound<'_, PyAny>) -> PyResult<(Vec<f32>, (usize, usize))> {
    let py = scores.py();
    let array = to_array(scores)?;
    let kind: String = array.getattr("dtype")?.getattr("kind")?.extract()?;
    let shape: Vec<usize> = array.getattr("shape")?.extract()?;
    match shape[..] {
        [rows, vocab_size] if vocab_size > 0 && ["f", "i", "u"].contains(&kind.as_str()) => {
            let array = numpy(py)?.call_method1("ascontiguousarray", (array, "float32"))?;
            let array = array.cast_into::<PyArray2<f32>>()?.try_readonly()?;
            Ok((array.as_slice()?.to_vec(), (rows, vocab_size)))
        }
        _ => Err(input_error!(
            py,
            "`scores` must be an array of numbers, [rows, vocab_size], got {}",
            shown(scores)
        )),
    }
}
