//! The code shared by the classes of processors, criteria, constraints and watermarks.
//!
//! There is one class of Rust's for each kind. The package gives it a subclass for each entry of the kind's
//! table: its docstring, its arguments and their defaults come from there. `rsgen._classes` makes these
//! subclasses.

use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::{PyTypeError, PyUnicodeError};
use pyo3::prelude::*;
use pyo3::pyclass::{PyTraverseError, PyVisit};
use pyo3::types::{PyDict, PyTuple, PyType};

use super::errors::{message, replaced};

/// The attribute of a class that names its entry of the table.
const ENTRY: &str = "_entry";

/// A class whose objects are made by a function of this extension.
pub(super) struct Class<T> {
    pub(super) name: &'static str,
    pub(super) doc: &'static str,
    pub(super) parameters: &'static [Parameter],
    /// Makes one of the arguments, and puts them into the form that they are kept in.
    pub(super) construct: fn(&Bound<'_, PyDict>) -> PyResult<T>,
}

/// A parameter of a constructor.
pub(super) struct Parameter {
    pub(super) name: &'static str,
    /// As Python's annotations write it.
    pub(super) python_type: &'static str,
    /// The docstring of the attribute of this name; empty for none.
    pub(super) attribute: &'static str,
    /// Whether it may be left out, which is `None`.
    pub(super) is_optional: bool,
}

/// A table of classes: `Name(parameter: "type" = default, …) => construct;`. The comments are docstrings.
macro_rules! classes {
    ($(
        $(#[doc = $doc:literal])*
        $name:ident(
            $( $(#[doc = $attribute:literal])* $parameter:ident: $type:literal $(= $default:ident)?, )*
        ) => $construct:expr;
    )*) => {
        [$($crate::built_in::Class {
            name: stringify!($name),
            doc: concat!($($doc, "\n"),*),
            parameters: &[$($crate::built_in::Parameter {
                name: stringify!($parameter),
                python_type: $type,
                attribute: concat!("", $($attribute),*),
                is_optional: !concat!("", $(stringify!($default))?).is_empty(),
            }),*],
            construct: $construct,
        }),*]
    };
}

/// Methods of a class with a table of classes: it is made by an entry, and pickled by its arguments.
macro_rules! made_by_table {
    ($class:ident, $module:literal, $table:expr) => {
        #[guarded]
        #[pymethods]
        impl $class {
            #[new]
            #[classmethod]
            #[pyo3(signature = (*arguments, **keywords))]
            fn new(
                class: &Bound<'_, PyType>,
                arguments: &Bound<'_, PyTuple>,
                keywords: Option<&Bound<'_, PyDict>>,
            ) -> PyResult<Self> {
                let entry = $crate::built_in::entry(class, $module, $table, |entry| entry.name)?;
                let made = Made::new(class, arguments, keywords)?;
                Self::of(entry, made, class.py())
            }

            /// Returns the arguments that it was made from, for pickle.
            ///
            /// Returns:
            ///     tuple[tuple[()], dict[str, Any]]: The arguments.
            fn __getnewargs_ex__<'py>(
                &self,
                py: Python<'py>,
            ) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyDict>)> {
                self.made.new_arguments(py)
            }
        }
    };
}

/// The constructor arguments of an object.
pub(super) struct Made {
    /// The arguments by their names.
    arguments: Py<PyDict>,
    /// Whether the class is that of the table, and none that a caller has derived from it.
    pub(super) is_exact: bool,
}

/// The entry of a table, `rsgen.{module}`, that a class stands for.
pub(super) fn entry<'a, T>(
    class: &Bound<'_, PyType>,
    module: &str,
    table: &'a [T],
    name: impl Fn(&T) -> &str,
) -> PyResult<&'a T> {
    let known = class.getattr_opt(ENTRY)?.map(|name| name.extract::<String>()).transpose()?;
    table.iter().find(|entry| Some(name(entry)) == known.as_deref()).ok_or_else(|| {
        type_error!("this class is the base of the {module} of rsgen.{module}; make one of those")
    })
}

impl Made {
    /// Binds arguments to the signature of a class.
    ///
    /// # Errors
    /// `TypeError` for arguments that the signature does not take.
    pub(super) fn new(
        class: &Bound<'_, PyType>,
        arguments: &Bound<'_, PyTuple>,
        keywords: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let (py, name) = (class.py(), class.name()?);
        let bound = class.getattr("__signature__")?.call_method("bind", arguments, keywords);
        let wrong = |error: &PyErr| type_error!("{name}(): {}", message(py, error));
        let bound = bound.map_err(|error| replaced(py, error, wrong))?;
        let arguments = py.get_type::<PyDict>().call1((bound.getattr("arguments")?,))?.cast_into()?;
        let is_exact = class.getattr("__dict__")?.contains(ENTRY)?;
        Ok(Self { arguments: arguments.unbind(), is_exact })
    }

    pub(super) fn arguments<'py>(&self, py: Python<'py>) -> &Bound<'py, PyDict> {
        self.arguments.bind(py)
    }

    /// The value of `__getnewargs_ex__`: nothing by position, all by name.
    pub(super) fn new_arguments<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyDict>)> {
        Ok((PyTuple::empty(py), self.arguments(py).copy()?))
    }

    pub(super) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.arguments)
    }
}

/// An argument; `None` if it was left out.
///
/// # Errors
/// `TypeError`, which names it, for one of another type.
pub(super) fn argument<'py, T: FromPyObjectOwned<'py>>(
    arguments: &Bound<'py, PyDict>,
    name: &str,
) -> PyResult<Option<T>> {
    let py = arguments.py();
    let Some(given) = arguments.get_item(name)?.filter(|given| !given.is_none()) else { return Ok(None) };
    given.extract::<T>().map(Some).map_err(|error| of_argument(py, name, error.into()))
}

/// An argument that must be given.
///
/// # Errors
/// As for [`argument`].
pub(super) fn required<'py, T: FromPyObjectOwned<'py>>(
    arguments: &Bound<'py, PyDict>,
    name: &str,
) -> PyResult<T> {
    value(arguments, name)?.extract::<T>().map_err(|error| of_argument(arguments.py(), name, error.into()))
}

/// The `TypeError` of an argument names it.
fn of_argument(py: Python<'_>, name: &str, error: PyErr) -> PyErr {
    if !error.is_instance_of::<PyTypeError>(py) && !error.is_instance_of::<PyUnicodeError>(py) {
        return error;
    }
    type_error!("argument '{name}': {}", message(py, &error))
}

/// An argument as it was given, which the signature requires.
///
/// # Errors
/// `KeyError` for one that was not.
pub(super) fn value<'py>(arguments: &Bound<'py, PyDict>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    arguments.as_any().get_item(name)
}

/// `name(argument=value, …)`.
pub(super) fn shown_call(name: &str, arguments: &Bound<'_, PyDict>) -> PyResult<String> {
    let shown = arguments.iter().map(|(name, value)| Ok(format!("{name}={}", value.repr()?)));
    Ok(format!("{name}({})", shown.collect::<PyResult<Vec<_>>>()?.join(", ")))
}
