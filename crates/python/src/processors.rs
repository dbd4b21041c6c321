//! transformers' logits processors as Python objects that run natively, and the tables that stubs and pages are made of.
//!
//! There is one class for all, which the package gives a subclass for each entry of the registry: what their arguments are,
//! and in what order, comes from there. Called with arrays, an object is a pure function; in the list of a call it runs
//! as a processor of Rust's, without Python.

use std::sync::Arc;

use numpy::{PyArray2, PyArrayMethods, PyUntypedArrayMethods};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pyclass::{PyTraverseError, PyVisit};
use pyo3::types::{PyDict, PyList, PyString, PyTuple, PyType};

use super::arrays::{array, numpy};
use super::callbacks;
use super::config::{field_value, python_value};
use super::errors::{guarded, input_error, message, replaced, to_python, undefined};
use super::held::Held;
use super::prompts::shown;
use super::walk::to_array;
use rsgen_core::types::TokenId;
use rsgen_generation::logits::{Argument, PROCESSORS, ProcessorInfo};
use rsgen_generation::{Compat, ProcessContext, RowContext, ScoreRows};

/// The attribute of a class that names its entry of the registry.
const ENTRY: &str = "_entry";

/// The base of all logits processors, also of those that you write as classes.
///
/// Any other callable will do as well. A class of yours defines `__call__(self, input_ids, scores)`
/// and returns the new scores: see `rsgen.types.LogitsProcessor`.
///
/// Args:
///     *_arguments (Any): Whatever your class takes.
///     **_keywords (Any): Whatever your class takes.
#[pyclass(module = "rsgen.processors", name = "LogitsProcessor", subclass, frozen)]
pub(super) struct LogitsProcessor;

#[pymethods]
impl LogitsProcessor {
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

/// The base of the processors of `rsgen.processors`.
///
/// Calling one with `input_ids`, `[rows, len]`, and `scores`, `[rows, vocab_size]`, returns the new
/// scores in float32 and leaves those given as they are. `current_tokens` and `beam_group_idx` are
/// for `HammingDiversityLogitsProcessor` alone, as in transformers.
///
/// Args:
///     *arguments (Any): Those of the class.
///     **keywords (Any): Those of the class.
#[pyclass(
    module = "rsgen.processors",
    name = "BuiltInLogitsProcessor",
    extends = LogitsProcessor,
    subclass,
    frozen
)]
pub(super) struct BuiltInLogitsProcessor {
    processor: Arc<dyn rsgen_generation::LogitsProcessor>,
    /// What it was made from, by name.
    arguments: Py<PyDict>,
    /// The functions that the processor calls.
    held: Held,
    /// Whether its class is that of the registry, and none that a caller has derived from it.
    exact: bool,
}

impl BuiltInLogitsProcessor {
    /// The processor itself; `None` for a class of the caller's own, which may do something else when it is called.
    pub(super) fn native(&self) -> Option<Arc<dyn rsgen_generation::LogitsProcessor>> {
        self.exact.then(|| Arc::clone(&self.processor))
    }
}

#[pymethods]
impl BuiltInLogitsProcessor {
    #[new]
    #[classmethod]
    #[pyo3(signature = (*arguments, **keywords))]
    fn new(
        class: &Bound<'_, PyType>,
        arguments: &Bound<'_, PyTuple>,
        keywords: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyClassInitializer<Self>> {
        guarded(|| {
            let entry = entry(class)?;
            let bound = class.getattr("__signature__")?.call_method("bind", arguments, keywords);
            let py = class.py();
            let wrong =
                |error: &PyErr| PyTypeError::new_err(format!("{}(): {}", entry.class, message(py, error)));
            let bound = bound.map_err(|error| replaced(py, error, wrong))?;
            let arguments: Bound<'_, PyDict> =
                class.py().get_type::<PyDict>().call1((bound.getattr("arguments")?,))?.cast_into()?;
            let (processor, held) = construct(entry, &arguments)?;
            let exact = class.getattr("__dict__")?.contains(ENTRY)?;
            let own = Self { processor, arguments: arguments.unbind(), held, exact };
            Ok(PyClassInitializer::from(LogitsProcessor).add_subclass(own))
        })
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.arguments)?;
        self.held.traverse(visit)
    }

    fn __clear__(&self) {
        self.held.clear();
    }

    #[pyo3(signature = (input_ids, scores, current_tokens=None, beam_group_idx=0))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        input_ids: &Bound<'py, PyAny>,
        scores: &Bound<'py, PyAny>,
        current_tokens: Option<&Bound<'py, PyAny>>,
        beam_group_idx: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        guarded(|| {
            let ids = token_rows(input_ids)?;
            let current_tokens = current_tokens.map_or_else(|| Ok(Vec::new()), |tokens| tokens_of(tokens))?;
            let (mut scores, shape) = score_rows(scores)?;
            if ids.len() != shape.0 {
                return Err(input_error(
                    py,
                    format!(
                        "`input_ids` must have a row for each row of scores, but has {} for {}",
                        ids.len(),
                        shape.0
                    ),
                ));
            }
            let processed = py.detach(|| {
                let rows = ids.iter().enumerate().map(|(index, ids)| RowContext::numbered(ids, index));
                let mut context = ProcessContext::new(rows.collect());
                context.beam_group = beam_group_idx;
                context.current_tokens = &current_tokens;
                self.processor.process(&mut ScoreRows::new(&mut scores, shape.1), &mut context)
            });
            processed.map_err(|error| to_python(py, error))?;
            array(py, shape, scores)
        })
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        guarded(|| {
            let arguments = slf.get().arguments.bind(slf.py()).iter();
            let shown = arguments.map(|(name, value)| Ok(format!("{name}={}", value.repr()?)));
            Ok(format!("{}({})", slf.get_type().name()?, shown.collect::<PyResult<Vec<_>>>()?.join(", ")))
        })
    }

    /// Returns the arguments it was made from, for pickle and copy.
    ///
    /// Returns:
    ///     tuple[tuple[()], dict[str, Any]]: None by position, all by name.
    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyDict>)> {
        guarded(|| Ok((PyTuple::empty(py), self.arguments.bind(py).copy()?)))
    }
}

/// The entry of the registry that a class stands for.
fn entry(class: &Bound<'_, PyType>) -> PyResult<&'static ProcessorInfo> {
    let name = class.getattr_opt(ENTRY)?.map(|name| name.extract::<String>()).transpose()?;
    PROCESSORS.iter().find(|entry| Some(entry.name) == name.as_deref()).ok_or_else(|| {
        PyTypeError::new_err(
            "this class is the base of the processors of rsgen.processors; make one of those",
        )
    })
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
        input_error(
            ids.py(),
            format!("`input_ids` must be an array of token ids, [rows, len], got {}", shown(ids)),
        )
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
        _ => Err(input_error(
            py,
            format!("`scores` must be an array of numbers, [rows, vocab_size], got {}", shown(scores)),
        )),
    }
}

/// Returns the fields of a configuration, the strategies and the logits processors.
///
/// The classes of `rsgen.processors`, the stubs and the pages of the documentation are made from it.
///
/// Returns:
///     dict[str, list[dict[str, Any]]]: Descriptions by name of the table.
#[pyfunction]
#[pyo3(name = "_tables")]
pub(super) fn tables(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    guarded(|| {
        let fields = PyList::empty(py);
        for info in rsgen_generation::GenerationConfig::FIELDS {
            fields.append(dict(
                py,
                &[
                    ("name", info.name),
                    ("type", &info.kind.python()),
                    ("kind", &info.kind.describe()),
                    ("default", info.default),
                    ("doc", info.doc.trim()),
                ],
            )?)?;
        }
        let processors = PyList::empty(py);
        for info in PROCESSORS {
            let entry = dict(
                py,
                &[
                    ("name", info.name),
                    ("class", info.class),
                    ("doc", info.doc()),
                    ("switch", info.switch),
                    ("applies_to", info.applies_to().as_str()),
                ],
            )?;
            entry.set_item("after_callers", info.after_callers)?;
            entry.set_item("has_device", info.has_device)?;
            let arguments = PyList::empty(py);
            for argument in info.arguments {
                let described = dict(py, &[("name", argument.name), ("type", &argument.kind.python())])?;
                if let Some(default) = argument.default() {
                    described.set_item("default", python_value(py, &default)?)?;
                }
                arguments.append(described)?;
            }
            entry.set_item("arguments", arguments)?;
            processors.append(entry)?;
        }
        let strategies = PyList::empty(py);
        for strategy in rsgen_generation::Strategy::ALL {
            let doc: Vec<&str> = strategy.doc.split_whitespace().collect();
            strategies.append(dict(py, &[("name", strategy.name), ("doc", &doc.join(" "))])?)?;
        }
        let tables = PyDict::new(py);
        tables.set_item("strategies", strategies)?;
        tables.set_item("fields", fields)?;
        tables.set_item("processors", processors)?;
        Ok(tables)
    })
}

fn dict<'py>(py: Python<'py>, entries: &[(&str, &str)]) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, value) in entries {
        dict.set_item(name, PyString::new(py, value))?;
    }
    Ok(dict)
}
