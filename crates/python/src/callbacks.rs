//! Logits processors, stopping criteria and prefix functions that are Python callables.
//!
//! They run attached to Python, between passes, without blocking other requests, and may use the generator
//! themselves. An exception ends the request and comes out of the call; return values are checked before they
//! are used.

use std::sync::Arc;

use numpy::{PyArray2, PyArrayMethods, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyList, PyTuple, PyType};

use super::arrays::{self, array, numpy, wide};
use super::config::FOREIGN;
use super::errors::exception;
use super::exit::attached;
use super::field_values::field_value;
use super::held::Slot;
use super::processors::BuiltInLogitsProcessor;
use super::prompts::{shown, string};
use super::walk::Walk;
use rsgen_core::error::{Error, ErrorKind, Result};
use rsgen_core::types::{FinishReason, TokenId};
use rsgen_generation::{
    FieldValue, LogitsProcessor, PrefixAllowedTokens, ProcessContext, RowContext, ScoreRows, StopContext,
    StoppingCriterion,
};

/// The most objects of one list.
const MAX_CALLBACKS: usize = 1024;

/// The processors of an argument: a callable, a list of them, or nothing. Their Python objects go to `slots`.
pub(super) fn processors(
    given: Option<&Bound<'_, PyAny>>,
    slots: &mut Vec<Arc<Slot>>,
) -> PyResult<Vec<Arc<dyn LogitsProcessor>>> {
    let mut processors: Vec<(Bound<'_, PyAny>, Arc<dyn LogitsProcessor>)> = Vec::new();
    for object in each("logits_processor", given)? {
        // The same object twice is one processor.
        let known =
            processors.iter().find(|(known, _)| known.is(&object)).map(|(_, known)| Arc::clone(known));
        let processor = if let Some(processor) = known {
            processor
        } else {
            let own = own_class(&object)?;
            let native = own.cast::<BuiltInLogitsProcessor>().ok().and_then(|own| own.get().native());
            if let Some(native) = native {
                // The object traverses the processor's callbacks.
                slots.push(Slot::new(&own));
                native
            } else {
                Arc::new(Processor(Code::callable("logits_processor", &own, slots)?))
            }
        };
        processors.push((object, processor));
    }
    Ok(processors.into_iter().map(|(_, processor)| processor).collect())
}

/// The `prefix_allowed_tokens_fn` of a call.
pub(super) fn allowed_tokens(
    given: &Bound<'_, PyAny>,
    slots: &mut Vec<Arc<Slot>>,
) -> PyResult<Arc<dyn PrefixAllowedTokens>> {
    Ok(Arc::new(AllowedTokens(Code::callable("prefix_allowed_tokens_fn", given, slots)?)))
}

/// A criterion that is a callable.
pub(super) fn criterion(
    given: &Bound<'_, PyAny>,
    slots: &mut Vec<Arc<Slot>>,
) -> PyResult<Arc<dyn StoppingCriterion>> {
    Ok(Arc::new(Criterion(Code::callable("stopping_criteria", given, slots)?)))
}

/// A caller's callback: a function, or an object with methods.
pub(super) struct Code {
    object: Arc<Slot>,
    /// A function's own name, or that of an object's class.
    pub(super) name: String,
}

struct Processor(Code);

struct Criterion(Code);

struct AllowedTokens(Code);

/// Refuses a class where an object of it is meant.
pub(super) fn no_class(argument: &str, given: &Bound<'_, PyAny>) -> PyResult<()> {
    let Ok(class) = given.cast::<PyType>() else { return Ok(()) };
    let name = string(class.name()?.as_any())?;
    Err(type_error!("`{argument}` must be an object, got the class {name}; make an object of it: {name}(…)"))
}

/// The elements of a list argument, or a single object; no classes.
pub(super) fn each<'py>(
    argument: &str,
    given: Option<&Bound<'py, PyAny>>,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let objects = elements(given)?;
    objects.iter().try_for_each(|object| no_class(argument, object))?;
    Ok(objects)
}

fn elements<'py>(given: Option<&Bound<'py, PyAny>>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let Some(given) = given else { return Ok(Vec::new()) };
    let list = given.is_instance_of::<PyList>() || given.is_instance_of::<PyTuple>();
    if !list {
        return Ok(vec![given.clone()]);
    }
    if given.len()? > MAX_CALLBACKS {
        let rule =
            format!("a call takes at most {MAX_CALLBACKS} processors, criteria or constraints in a list");
        return Err(config_error!(given.py(), "{rule}, got {}", given.len()?));
    }
    given.try_iter()?.collect()
}

/// rsgen's counterpart of an object of transformers, whose classes compute on torch's tensors; other objects
/// unchanged.
///
/// # Errors
/// `TypeError` for an object of transformers' that has no counterpart here, with what to do.
pub(super) fn own_class<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    for class in object.get_type().mro() {
        let module = class.getattr("__module__")?;
        if module.extract::<&str>().is_ok_and(|module| module.starts_with("transformers.")) {
            return object.py().import(FOREIGN)?.call_method1("counterpart", (object,));
        }
    }
    Ok(object.clone())
}

impl Code {
    pub(super) fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        // As transformers has it, an object counts by its class.
        let name = object
            .getattr_opt("__name__")?
            .map_or_else(|| object.get_type().name().map(Bound::into_any), Ok)?;
        Ok(Self { name: string(&name)?, object: Slot::new(object) })
    }

    /// The slot of the object, for Python's garbage collector.
    pub(super) fn slot(&self) -> Arc<Slot> {
        Arc::clone(&self.object)
    }

    /// The function of an argument.
    fn callable(argument: &str, function: &Bound<'_, PyAny>, slots: &mut Vec<Arc<Slot>>) -> PyResult<Self> {
        if !function.is_callable() {
            return Err(type_error!(
                "`{argument}` must be a callable{}, got {}",
                if argument == "prefix_allowed_tokens_fn" { "" } else { " or a list of callables" },
                shown(function)
            ));
        }
        let code = Self::new(function)?;
        slots.push(code.slot());
        Ok(code)
    }

    /// Runs code with the object, attached to Python. An exception becomes the source of the error, and comes
    /// out of the call unchanged.
    pub(super) fn attached<T>(&self, call: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>) -> Result<T> {
        let called = attached(|py| {
            let object = self.object.get(py).ok_or_else(Error::cancelled)?;
            call(&object)
                .map_err(|exception| Error::callback(format!("{} failed", self.name)).with_source(exception))
        });
        called.unwrap_or_else(|| Err(Error::cancelled()))
    }

    /// The error for a return value of the callback, or of its `method`.
    pub(super) fn returned(&self, py: Python<'_>, method: &str, rule: &str, value: &str) -> PyErr {
        exception(py, ErrorKind::Callback, format!("{}{method} must return {rule}, got {value}", self.name))
    }
}

impl LogitsProcessor for Processor {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn process(&self, rows: &mut ScoreRows<'_>, context: &mut ProcessContext<'_>) -> Result<()> {
        let ids = context.rows.iter().flat_map(|row| row.input_ids.iter().copied().map(wide)).collect();
        let shape = (rows.len(), rows.vocab_size());
        self.apply(ids, shape, rows.as_mut_slice())
    }

    fn process_row(&self, scores: &mut [f32], row: &mut RowContext<'_>) -> Result<()> {
        let ids = row.input_ids.iter().copied().map(wide).collect();
        self.apply(ids, (1, scores.len()), scores)
    }
}

impl Processor {
    /// Calls it with the rows' ids, `[rows, len]`, and their scores, `[rows, vocab_size]`.
    fn apply(&self, ids: Vec<i64>, shape: (usize, usize), scores: &mut [f32]) -> Result<()> {
        self.0.attached(|function| {
            let py = function.py();
            let input_ids = array(py, (shape.0, ids.len() / shape.0.max(1)), ids)?;
            let returned = function.call1((input_ids, array(py, shape, scores.to_vec())?))?;
            self.take(&returned, shape, scores)
        })
    }

    /// Replaces the scores by those that the callable returned.
    fn take(&self, returned: &Bound<'_, PyAny>, shape: (usize, usize), scores: &mut [f32]) -> PyResult<()> {
        let py = returned.py();
        let rule = format!("scores of shape {shape:?}");
        if returned.is_none() {
            let hint = "None; end it with `return scores`";
            return Err(self.0.returned(py, "", &rule, hint));
        }
        let numpy = numpy(py)?;
        let array = numpy.call_method1("asarray", (returned,))?;
        let dtype = array.getattr("dtype")?;
        let kind: String = dtype.getattr("kind")?.extract()?;
        if !["f", "i", "u"].contains(&kind.as_str()) {
            let value = format!("an array of {}", string(&dtype)?);
            return Err(self.0.returned(py, "", "scores that are numbers", &value));
        }
        let given = array.getattr("shape")?;
        if !given.eq(shape)? {
            let value = format!("an array of shape {}", string(&given)?);
            return Err(self.0.returned(py, "", &rule, &value));
        }
        let array = numpy.call_method1("ascontiguousarray", (array, "float32"))?;
        let array = array.cast_into::<PyArray2<f32>>()?.try_readonly()?;
        debug_assert_eq!(array.shape(), [shape.0, shape.1]);
        let new = array.as_slice()?;
        if let Some(place) = new.iter().position(|score| score.is_nan()) {
            let (row, token) = (place / shape.1, place % shape.1);
            return Err(self.0.returned(
                py,
                "",
                "scores without NaN",
                &format!("NaN for token {token} of row {row}"),
            ));
        }
        scores.copy_from_slice(new);
        Ok(())
    }
}

impl PrefixAllowedTokens for AllowedTokens {
    fn allowed_tokens(&self, batch_id: usize, input_ids: &[TokenId]) -> Result<Vec<TokenId>> {
        self.0.attached(|function| {
            let returned = function.call1((batch_id, arrays::ids(function.py(), input_ids)?))?;
            self.take(&returned)
        })
    }
}

impl AllowedTokens {
    /// The ids that the function returned.
    fn take(&self, returned: &Bound<'_, PyAny>) -> PyResult<Vec<TokenId>> {
        let tokens = match field_value(returned)? {
            FieldValue::List(tokens) => tokens,
            _ if returned.hasattr("__iter__")? => {
                Walk::default().items(returned)?.map(|token| field_value(&token?)).collect::<PyResult<_>>()?
            }
            _ => vec![FieldValue::Null],
        };
        let token = |token: &FieldValue| match token {
            FieldValue::Int(id) => u32::try_from(*id).ok().map(TokenId),
            _ => None,
        };
        let rule = "a list of token ids";
        let tokens: Option<_> = tokens.iter().map(token).collect();
        tokens.ok_or_else(|| self.0.returned(returned.py(), "", rule, &shown(returned)))
    }
}

impl StoppingCriterion for Criterion {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn should_stop(&self, row: &StopContext<'_>) -> Result<Option<FinishReason>> {
        Ok(self.should_stop_rows(std::slice::from_ref(row))?.pop().flatten())
    }

    /// Calls it with the rows' ids, `[rows, len]`, and the scores that their newest tokens were chosen from,
    /// `[rows, vocab_size]`.
    fn judges_steps(&self) -> bool {
        true
    }

    fn should_stop_rows(&self, rows: &[StopContext<'_>]) -> Result<Vec<Option<FinishReason>>> {
        self.0.attached(|function| {
            let py = function.py();
            let ids: Vec<i64> = rows.iter().flat_map(|row| row.input_ids.iter().copied().map(wide)).collect();
            let scores: Vec<f32> = rows.iter().flat_map(|row| row.scores.iter().copied()).collect();
            let of_row = |len: usize| (rows.len(), len / rows.len().max(1));
            let input_ids = array(py, of_row(ids.len()), ids)?;
            let returned = function.call1((input_ids, array(py, of_row(scores.len()), scores)?))?;
            let stops = self.stops(&returned, rows.len())?;
            Ok(stops.into_iter().map(|stops| stops.then_some(FinishReason::Stop)).collect())
        })
    }
}

impl Criterion {
    /// The returned truth value of each row: one for all rows, or an array or list with one for each.
    fn stops(&self, returned: &Bound<'_, PyAny>, rows: usize) -> PyResult<Vec<bool>> {
        if let Ok(answer) = returned.cast::<PyBool>() {
            return Ok(vec![answer.is_true(); rows]);
        }
        let array = numpy(returned.py())?.call_method1("asarray", (returned,))?;
        let kind: String = array.getattr("dtype")?.getattr("kind")?.extract()?;
        let size: usize = array.getattr("size")?.extract()?;
        if kind != "b" || ![1, rows].contains(&size) {
            let each =
                if rows == 1 { "one of them".to_owned() } else { format!("one for each of {rows} rows") };
            let rule = format!("True or False, or an array of {each}");
            return Err(self.0.returned(returned.py(), "", &rule, &shown(returned)));
        }
        let stops: Vec<bool> = array.call_method1("reshape", (-1,))?.call_method0("tolist")?.extract()?;
        Ok(if size == rows { stops } else { vec![stops[0]; rows] })
    }
}
