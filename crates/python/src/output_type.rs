//! The arguments `output_type` and `describe_output`: `rsgen._output_type` reads types and makes their values.

use std::sync::OnceLock;

use pyo3::prelude::*;
use pyo3::pyclass::{PyTraverseError, PyVisit};
use pyo3::types::{PyBool, PyDict, PyList, PyType};

use super::errors::{guarded, to_python};
use super::json;
use super::output::GenerationOutput;
use super::prompts::shown;
use super::reasoning::StreamedRows;
use super::stream::TokenStream;
use super::tool_calls::Reading;
use rsgen::engine;
use rsgen::generator::{Prompt, Prompts};
use rsgen_core::sync::Mutex;
use rsgen_generation::GenerationConfig;

/// The module of its Python part.
const MODULE: &str = "rsgen._output_type";

/// The names of the arguments.
pub(super) const KEYWORDS: [&str; 2] = ["output_type", "describe_output"];

/// The type that the texts of a call are values of.
pub(super) struct OutputType(Py<PyAny>);

/// The type of a call, and what describes it in the prompt, if that was asked for.
pub(super) type Requested = (Option<OutputType>, Option<String>);

/// Takes the type of a call, and sets its grammar.
///
/// # Errors
/// `TypeError` for a type without a form in JSON; `ConfigError` beside another grammar.
pub(super) fn requested(
    py: Python<'_>,
    keywords: Option<&Bound<'_, PyDict>>,
    config: &mut GenerationConfig,
) -> PyResult<Requested> {
    let [given, describes] = KEYWORDS.map(|name| {
        let value = keywords.map(|keywords| keywords.get_item(name)).transpose()?.flatten();
        PyResult::Ok(value.filter(|value| !value.is_none()))
    });
    let describes = match describes? {
        None => false,
        Some(given) => match given.cast::<PyBool>() {
            Ok(flag) => flag.is_true(),
            Err(_) => {
                return Err(type_error!("`describe_output` must be True or False, got {}", shown(&given)));
            }
        },
    };
    let Some(given) = given? else {
        if describes {
            return Err(config_error!(py, "`describe_output` describes an `output_type`; give one"));
        }
        return Ok((None, None));
    };
    let set = [
        ("json_schema", config.json_schema.is_some()),
        ("regex", config.regex.is_some()),
        ("grammar", config.grammar.is_some()),
    ];
    if let Some((other, _)) = set.into_iter().find(|(_, is_set)| *is_set) {
        return Err(config_error!(py, "`output_type` and `{other}` are both set; leave one out"));
    }
    let made = py.import(MODULE)?.getattr("OutputType")?.call1((given,))?;
    let schema = json::schema(&made.getattr("schema")?)?;
    config.set("json_schema", &schema).map_err(|error| to_python(py, error))?;
    let description = if describes { Some(made.call_method0("description")?.extract()?) } else { None };
    Ok((Some(OutputType(made.unbind())), description))
}

/// Puts the description before each prompt.
///
/// # Errors
/// `ConfigError` for a prompt that is no text.
pub(super) fn describe(py: Python<'_>, prompts: &mut Prompts, description: &str) -> PyResult<()> {
    let refused = || {
        let rule = "`describe_output` goes before a prompt that is a text, got token ids or embeddings";
        config_error!(py, "{rule}; write the description into the prompt yourself")
    };
    let prompts = match prompts {
        Prompts::One(prompt) => std::slice::from_mut(prompt),
        Prompts::List(list) => list,
        Prompts::Batch(_) => return Err(refused()),
    };
    prompts.iter_mut().try_for_each(|prompt| match prompt {
        Prompt::Text(text) => {
            *text = format!("{description}\n\n{text}");
            Ok(())
        }
        _ => Err(refused()),
    })
}

impl OutputType {
    /// The values of all rows, with errors in place of those that have none.
    fn parse_all<'py>(
        &self,
        py: Python<'py>,
        output: &engine::GenerationOutput,
        answers: Option<&[String]>,
    ) -> PyResult<Bound<'py, PyList>> {
        let texts: Vec<&str> = match answers {
            Some(answers) => answers.iter().map(String::as_str).collect(),
            None => output.texts().collect(),
        };
        let rows = || output.rows.iter().map(|row| &row.generated);
        let reasons: Vec<&str> = rows().map(|row| row.finish_reason.as_str()).collect();
        let prompts: Vec<usize> = rows().map(|row| row.prompt_index).collect();
        let parsed = self.0.bind(py).call_method1("parse_all", (texts, reasons, prompts))?;
        Ok(parsed.cast_into()?)
    }

    /// The first of these values; an error is raised.
    fn first<'py>(parsed: &Bound<'py, PyList>) -> PyResult<Bound<'py, PyAny>> {
        parsed.py().import(MODULE)?.call_method1("first", (parsed,))
    }

    /// What a text has of a value so far.
    fn partial<'py>(&self, py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyAny>> {
        self.0.bind(py).call_method1("partial", (text,))
    }

    /// The Python object, and back: for pickle.
    pub(super) fn object(&self) -> &Py<PyAny> {
        &self.0
    }

    pub(super) fn of_object(object: Py<PyAny>) -> Self {
        Self(object)
    }

    pub(super) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.0)
    }
}

/// The text of the first row of a stream so far, where it has an output type.
pub(super) struct TypedText {
    /// Set attached to Python, so that the collector finds the same each time it looks.
    read: OnceLock<Reading>,
    text: Mutex<String>,
    pub(super) rows: StreamedRows,
}

impl TypedText {
    /// Without `read`, it is set later.
    pub(super) fn new(read: Option<Reading>) -> Self {
        Self {
            read: read.map(OnceLock::from).unwrap_or_default(),
            text: Mutex::default(),
            rows: StreamedRows::default(),
        }
    }

    pub(super) fn set(&self, read: Reading) {
        let _ = self.read.set(read);
    }

    fn output_type(&self) -> Option<&OutputType> {
        self.read.get()?.output_type.as_ref()
    }

    /// Adds a token.
    pub(super) fn add(&self, token: Option<&engine::StreamedToken>) {
        let Some(token) = token else { return };
        let answer =
            self.read.get().and_then(|read| read.thinks.as_ref()).map(|thinks| self.rows.add(thinks, token));
        if token.index == 0 && self.output_type().is_some() {
            self.text.lock().push_str(answer.as_ref().unwrap_or(&token.text));
        }
    }

    pub(super) fn reading(&self, py: Python<'_>) -> Reading {
        let output_type = self.output_type().map(|output_type| OutputType(output_type.0.clone_ref(py)));
        let (tools, thinks) =
            self.read.get().map(|read| (read.tools.clone(), read.thinks.clone())).unwrap_or_default();
        Reading { output_type, tools, thinks }
    }

    pub(super) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.output_type().map_or(Ok(()), |output_type| output_type.traverse(visit))
    }
}

#[guarded]
#[pymethods]
impl GenerationOutput {
    /// _T_co: The text of the first row as a value of the call's `output_type`; None for a call without one.
    ///
    /// Raises `ParseError` for a text that was cut off, which names what is missing, and for one whose values a
    /// class refuses.
    #[getter]
    fn parsed<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self.output_type {
            Some(_) => OutputType::first(&self.parsed_all(py)?),
            None => Ok(py.None().into_bound(py)),
        }
    }

    /// list[_T_co | ParseError]: The texts of all rows as values of the call's `output_type`.
    ///
    /// A text that is none has its `ParseError` in the list. None for each row of a call without an
    /// `output_type`.
    #[getter]
    fn parsed_all<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let Some(output_type) = &self.output_type else {
            return PyList::new(py, self.output.rows.iter().map(|_| py.None()));
        };
        let made = self.parsed.lock().as_ref().map(|parsed| parsed.clone_ref(py));
        let made = match made {
            Some(made) => made,
            // Not locked: what classes do may take any time.
            None => output_type.parse_all(py, &self.output, self.replies.answers())?.unbind(),
        };
        let kept = self.parsed.lock().get_or_insert_with(|| made.clone_ref(py)).clone_ref(py);
        Ok(kept.into_bound(py))
    }

    /// Returns the class with the type of what is parsed, for annotations.
    ///
    /// Args:
    ///     item (Any): The type.
    ///
    /// Returns:
    ///     GenericAlias: The class with the type.
    #[classmethod]
    #[pyo3(signature = (item, /))]
    fn __class_getitem__<'py>(
        class: &Bound<'py, PyType>,
        item: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        generic_alias(class, item)
    }
}

#[guarded]
#[pymethods]
impl TokenStream {
    /// Any: What the first row has so far of a value of the call's `output_type`, as JSON has it.
    ///
    /// Objects are dicts with the properties that have begun; a text that has not ended is there as far as it goes,
    /// a number is not. None before there is any of it, and for a call without an `output_type`.
    #[getter]
    fn partial<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let text = self.typed.text.lock().clone();
        self.typed.output_type().map(|output_type| output_type.partial(py, &text)).transpose()
    }

    /// Returns the class with the type of what is parsed, for annotations.
    ///
    /// Args:
    ///     item (Any): The type.
    ///
    /// Returns:
    ///     GenericAlias: The class with the type.
    #[classmethod]
    #[pyo3(signature = (item, /))]
    fn __class_getitem__<'py>(
        class: &Bound<'py, PyType>,
        item: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        generic_alias(class, item)
    }
}

/// A class with a type of its variable.
fn generic_alias<'py>(class: &Bound<'py, PyType>, item: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    class.py().import("types")?.getattr("GenericAlias")?.call1((class, item))
}
