//! Errors as Python exceptions: one class for each kind, and an `InternalError` for a panic.
//!
//! An exception that Python code raised inside a callback comes out as the very same object. Nothing here decides what is
//! an error; that is done below.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::PyTypeInfo;
use pyo3::exceptions::{
    PyArithmeticError, PyException, PyMemoryError, PyNotImplementedError, PyOSError, PyRuntimeError,
    PyValueError,
};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};

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

/// An exception class.
struct Class {
    kind: ErrorKind,
    name: &'static str,
    /// The built-in class that it also is.
    built_in: Option<fn(Python<'_>) -> Bound<'_, PyType>>,
    doc: &'static str,
}

const BASE: (&str, &str) = (
    "RsgenError",
    "The base of all errors that rsgen raises.\n\n\
     A message names the field or file, the rule, the value that broke it, and the remedy. Unknown keyword\n\
     arguments and arguments of a wrong type raise Python's own `TypeError`.",
);

const CLASSES: [Class; 9] = [
    Class {
        kind: ErrorKind::Config,
        name: "ConfigError",
        built_in: Some(built_in::<PyValueError>),
        doc: "A field of a GenerationConfig or an argument of a call breaks a rule.",
    },
    Class {
        kind: ErrorKind::Load,
        name: "LoadError",
        built_in: Some(built_in::<PyOSError>),
        doc: "A model cannot be loaded: a file is missing, damaged, or of a kind that is not supported.",
    },
    Class {
        kind: ErrorKind::Input,
        name: "InputError",
        built_in: Some(built_in::<PyValueError>),
        doc: "A prompt cannot be used.",
    },
    Class {
        kind: ErrorKind::Capacity,
        name: "CapacityError",
        built_in: Some(built_in::<PyMemoryError>),
        doc: "Memory or the KV cache does not suffice; raised before memory runs out.",
    },
    Class {
        kind: ErrorKind::Numerical,
        name: "NumericalError",
        built_in: Some(built_in::<PyArithmeticError>),
        doc: "The model computed NaN or infinity where a number is needed.",
    },
    Class {
        kind: ErrorKind::Callback,
        name: "CallbackError",
        built_in: Some(built_in::<PyValueError>),
        doc: "A logits processor or stopping criterion of the caller's returned something that cannot be used.\n\n\
              An exception that it raises is not wrapped: it comes out of the call unchanged.",
    },
    Class {
        kind: ErrorKind::Cancelled,
        name: "CancelledError",
        built_in: None,
        doc: "The stream was closed by another thread or task.",
    },
    Class {
        kind: ErrorKind::Fork,
        name: "ForkError",
        built_in: Some(built_in::<PyRuntimeError>),
        doc: "A Generator or stream was used in a process that was forked after it had been made.\n\n\
              A fork copies neither threads nor what they were doing. Start processes by `spawn` or `forkserver`, or\n\
              open a new Generator in the forked one: `rsgen.Generator(gen.name_or_path)`.",
    },
    Class {
        kind: ErrorKind::Internal,
        name: "InternalError",
        built_in: Some(built_in::<PyRuntimeError>),
        doc: "A defect of rsgen. Please report it.",
    },
];

fn built_in<T: PyTypeInfo>(py: Python<'_>) -> Bound<'_, PyType> {
    py.get_type::<T>()
}

/// The base class, and the others in the order of [`CLASSES`].
struct Types {
    base: Py<PyType>,
    kinds: Vec<Py<PyType>>,
}

static TYPES: PyOnceLock<Types> = PyOnceLock::new();

fn types(py: Python<'_>) -> PyResult<&Types> {
    TYPES.get_or_try_init(py, || {
        let base = new_class(py, BASE.0, BASE.1, &[py.get_type::<PyException>()])?;
        let kinds = CLASSES.iter().map(|class| {
            let mut bases = vec![base.clone()];
            bases.extend(class.built_in.map(|built_in| built_in(py)));
            new_class(py, class.name, class.doc, &bases).map(Bound::unbind)
        });
        Ok(Types { kinds: kinds.collect::<PyResult<_>>()?, base: base.unbind() })
    })
}

/// `type(name, bases, …)`: what a `class` statement does. The C function for exceptions takes a single base.
fn new_class<'py>(
    py: Python<'py>,
    name: &str,
    doc: &str,
    bases: &[Bound<'py, PyType>],
) -> PyResult<Bound<'py, PyType>> {
    let namespace = PyDict::new(py);
    namespace.set_item("__module__", "rsgen")?;
    namespace.set_item("__doc__", doc)?;
    let class = py.get_type::<PyType>().call1((name, PyTuple::new(py, bases)?, namespace))?;
    Ok(class.cast_into()?)
}

/// Adds the exception classes to the module.
pub(super) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let types = types(module.py())?;
    module.add(BASE.0, &types.base)?;
    for (class, kind) in CLASSES.iter().zip(&types.kinds) {
        module.add(class.name, kind)?;
    }
    Ok(())
}

/// An exception of the class of `kind`.
pub(super) fn exception(py: Python<'_>, kind: ErrorKind, message: impl Into<String>) -> PyErr {
    match types(py) {
        Ok(types) => {
            let class = CLASSES.iter().position(|class| class.kind == kind).map(|index| &types.kinds[index]);
            let message = escape::message(&message.into()).into_owned();
            PyErr::from_type(class.unwrap_or(&types.base).bind(py).clone(), (message,))
        }
        Err(error) => error,
    }
}

/// A prompt or other data that cannot be used.
pub(super) fn input_error(py: Python<'_>, message: impl Into<String>) -> PyErr {
    exception(py, ErrorKind::Input, message)
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

/// The exception for an error: the one that a callback raised, if that is what it is.
pub(super) fn to_python(py: Python<'_>, error: Error) -> PyErr {
    let (kind, message) = (error.kind(), error.in_words(&words));
    if let Some(source) = error.into_source()
        && let Ok(raised) = source.downcast::<PyErr>()
    {
        return *raised;
    }
    exception(py, kind, &message)
}

/// The error that says more than this one, which Python code has raised. What is no `Exception`, such as a
/// `KeyboardInterrupt`, stays what it is.
pub(super) fn replaced(py: Python<'_>, error: PyErr, by: impl FnOnce(&PyErr) -> PyErr) -> PyErr {
    if error.is_instance_of::<PyException>(py) { by(&error) } else { error }
}

/// The message of an exception.
pub(super) fn message(py: Python<'_>, error: &PyErr) -> String {
    keep(py, string(error.value(py))).unwrap_or_else(|| "…".to_owned())
}

/// `NotImplementedError`: the class of `object` was to define `method`.
pub(super) fn undefined(object: &Bound<'_, PyAny>, method: &str) -> PyErr {
    match object.get_type().name() {
        Ok(class) => PyNotImplementedError::new_err(format!("{class} must define {method}")),
        Err(error) => error,
    }
}

/// Runs the body of a function that Python calls: a panic becomes an `InternalError`, which `except Exception` sees, unlike
/// PyO3's own exception for panics. The attribute of this name puts every exported function through it; `tests/test_panics.py`
/// calls them all.
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
