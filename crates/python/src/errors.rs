//! Errors as Python exceptions: one class for each kind, and an `InternalError` for a panic.
//!
//! An exception that Python code raised inside a callback comes out as the very same object. Nothing here
//! decides what is an error; that is done below.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyModule, PyType};

use super::exit::inside;
use super::panics;
use super::prompts::string;
use super::signals::{keep, take_kept};
use rsgen_core::error::{Error, ErrorKind, Mention, Result};
use rsgen_core::escape;
/// The attribute for what Python calls: see the function of this name.
pub(super) use rsgen_python_macros::guarded;

/// [`input_error`] with a message that is formatted.
macro_rules! input_error {
    ($py:expr, $($message:tt)+) => { $crate::errors::input_error($py, format!($($message)+)) };
}

/// [`config_error`] with a message that is formatted.
macro_rules! config_error {
    ($py:expr, $($message:tt)+) => { $crate::errors::config_error($py, format!($($message)+)) };
}

/// A `TypeError` with a message that is formatted.
macro_rules! type_error {
    ($($message:tt)+) => { ::pyo3::exceptions::PyTypeError::new_err(format!($($message)+)) };
}

/// An exception of the class in `rsgen._errors` that has the name of `kind`.
pub(super) fn exception(py: Python<'_>, kind: ErrorKind, message: impl Into<String>) -> PyErr {
    named(py, &format!("{kind:?}Error"), message)
}

fn named(py: Python<'_>, name: &str, message: impl Into<String>) -> PyErr {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let module = MODULE.get_or_try_init(py, || py.import("rsgen._errors").map(Bound::unbind));
    let class = module.and_then(|module| Ok(module.bind(py).getattr(name)?.cast_into::<PyType>()?));
    let message = escape::message(&message.into()).into_owned();
    class.map_or_else(|error| error, |class| PyErr::from_type(class, (message,)))
}

/// A prompt or other data that cannot be used.
pub(super) fn input_error(py: Python<'_>, message: impl Into<String>) -> PyErr {
    exception(py, ErrorKind::Input, message)
}

/// An attribute that an object cannot have: an `InputError` that `hasattr` understands.
pub(super) fn missing_error(py: Python<'_>, message: impl Into<String>) -> PyErr {
    named(py, "MissingError", message)
}

/// An argument that breaks a rule.
pub(super) fn config_error(py: Python<'_>, message: impl Into<String>) -> PyErr {
    exception(py, ErrorKind::Config, message)
}

/// The words of Python.
pub(super) fn words(mention: &Mention) -> String {
    match mention {
        Mention::Setting(name, value) => match value.as_str() {
            "true" => format!("{name}=True"),
            "false" => format!("{name}=False"),
            value => format!("{name}={value}"),
        },
        Mention::Unset => "None".to_owned(),
        other => other.plain(),
    }
}

/// The attribute of an exception that holds the index of the prompt that it is about.
const PROMPT_INDEX: &str = "prompt_index";

/// The exception for an error: the one that a callback raised, if that is what it is.
pub(super) fn to_python(py: Python<'_>, error: Error) -> PyErr {
    let (kind, message, prompt_index) = (error.kind(), error.in_words(&words), error.prompt_index());
    if let Some(source) = error.into_source()
        && let Ok(raised) = source.downcast::<PyErr>()
    {
        // It is about a prompt as well, unless it says already which one.
        let is_told = raised.value(py).getattr(PROMPT_INDEX).is_ok_and(|index| !index.is_none());
        if let Some(index) = prompt_index.filter(|_| !is_told) {
            // Its class may have no room for it.
            let _ = raised.value(py).setattr(PROMPT_INDEX, index);
        }
        return *raised;
    }
    concerning_prompt(py, exception(py, kind, &message), prompt_index)
}

/// The error, which says as data which prompt it is about.
pub(super) fn concerning_prompt(py: Python<'_>, error: PyErr, index: Option<usize>) -> PyErr {
    match index.map(|index| error.value(py).setattr(PROMPT_INDEX, index)) {
        None | Some(Ok(())) => error,
        Some(Err(failed)) => failed,
    }
}

/// The error that says more than this one, which Python code has raised. What is no `Exception`, such as a
/// `KeyboardInterrupt`, stays what it is.
pub(super) fn replaced(py: Python<'_>, error: PyErr, by: impl FnOnce(&PyErr) -> PyErr) -> PyErr {
    if error.is_instance_of::<PyException>(py) { by(&error) } else { error }
}

/// The same error whose message names what it is about.
pub(super) fn prefixed(py: Python<'_>, subject: &str, error: &PyErr) -> PyErr {
    let named = PyErr::from_type(error.get_type(py), format!("{subject}: {}", message(py, error)));
    named.set_cause(py, error.cause(py));
    let index = error.value(py).getattr(PROMPT_INDEX).and_then(|index| index.extract());
    concerning_prompt(py, named, index.unwrap_or(None))
}

/// The same error of an item of a list, whose message says which one it is about.
pub(super) fn numbered(py: Python<'_>, item: &str, index: usize, error: PyErr) -> PyErr {
    replaced(py, error, |error| prefixed(py, &format!("{item} {index}"), error))
}

/// [`numbered`], for a prompt.
pub(super) fn numbered_prompt(py: Python<'_>, index: usize, error: PyErr) -> PyErr {
    replaced(py, error, |error| {
        concerning_prompt(py, prefixed(py, &format!("prompt {index}"), error), Some(index))
    })
}

/// The message of an exception.
pub(super) fn message(py: Python<'_>, error: &PyErr) -> String {
    keep(py, string(error.value(py))).unwrap_or_else(|| "…".to_owned())
}

/// Runs the body of a function that Python calls: a panic becomes an `InternalError`, which `except
/// Exception` sees, unlike PyO3's own exception for panics. The attribute of this name puts every exported
/// function through it; `tests/test_panics.py` calls them all.
pub(super) fn guarded<T>(body: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    inside(|| {
        let result = caught(body).unwrap_or_else(|error| Python::attach(|py| Err(to_python(py, error))));
        take_kept().map_or(result, Err)
    })
}

/// Makes an error of a panic.
pub(super) fn caught<T>(body: impl FnOnce() -> T) -> Result<T> {
    catch_unwind(AssertUnwindSafe(|| {
        #[cfg(debug_assertions)]
        panics::on_purpose::panic_if_due();
        body()
    }))
    .map_err(|panic| {
        let place = panics::last_location().map(|place| format!(", at {place}")).unwrap_or_default();
        Error::internal(format!("a defect of rsgen: {}{place}; please report it", panic_message(&*panic)))
    })
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message")
}
