//! Signatures that name every field of a configuration.
//!
//! PyO3 writes a signature at compile time, where `**fields` stands for all fields. Notebooks and editors complete what
//! `inspect.signature` lists, so each method with `**fields` is wrapped in an object that names the fields of the table. The
//! signatures are made when somebody asks: importing `inspect` takes longer than importing rsgen.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyTuple, PyType};

use super::errors::guarded;
use rsgen_generation::{GenerationConfig, Strategy};

/// How the signatures of the methods that take fields end.
const FIELDS: &str = "**fields)";

// Without a documentation comment, which would hide the docstring of the method.
#[pyclass(module = "rsgen", name = "method", frozen)]
struct Method {
    /// The method as PyO3 makes it.
    function: Py<PyAny>,
    doc: String,
}

#[guarded]
#[pymethods]
impl Method {
    #[pyo3(signature = (*arguments, **keywords))]
    fn __call__<'py>(
        &self,
        arguments: &Bound<'py, PyTuple>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.function.bind(arguments.py()).call(arguments, keywords)
    }

    fn __get__<'py>(
        slf: &Bound<'py, Self>,
        instance: &Bound<'py, PyAny>,
        owner: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        static BOUND: PyOnceLock<Py<PyType>> = PyOnceLock::new();
        let _ = owner;
        if instance.is_none() {
            return Ok(slf.clone().into_any());
        }
        BOUND.import(slf.py(), "types", "MethodType")?.call1((slf, instance))
    }

    #[getter]
    fn __doc__(&self) -> &str {
        &*self.doc
    }

    #[getter]
    fn __signature__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let inspect = py.import("inspect")?;
        signature(py, Some(&inspect.call_method1("signature", (&self.function,))?))
    }

    fn __getattr__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        self.function.bind(py).getattr(name)
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        self.function.bind(py).repr()?.to_string()
    }
}

/// The attribute `__signature__` of a class whose constructor takes fields.
#[pyclass(module = "rsgen", name = "signature", frozen)]
struct ClassSignature;

#[guarded]
#[pymethods]
impl ClassSignature {
    fn __get__<'py>(
        &self,
        instance: &Bound<'py, PyAny>,
        owner: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _ = owner;
        signature(instance.py(), None)
    }
}

/// The default of a field in a signature: it then comes from a configuration.
#[pyclass(module = "rsgen", name = "unset", frozen)]
struct Unset;

#[guarded]
#[pymethods]
impl Unset {
    fn __repr__(&self) -> &'static str {
        "unset"
    }
}

/// A signature with the fields in the place of its last parameter; `None` is one of fields alone.
fn signature<'py>(py: Python<'py>, given: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
    let inspect = py.import("inspect")?;
    let parameter = inspect.getattr("Parameter")?;
    let parameters = PyList::empty(py);
    if let Some(given) = given {
        for known in given.getattr("parameters")?.call_method0("values")?.try_iter()? {
            parameters.append(known?)?;
        }
        parameters.call_method0("pop")?;
    }
    let options = PyDict::new(py);
    options.set_item("default", Unset.into_pyobject(py)?)?;
    for info in GenerationConfig::FIELDS {
        let arguments = (info.name, parameter.getattr("KEYWORD_ONLY")?);
        parameters.append(parameter.call(arguments, Some(&options))?)?;
    }
    inspect.call_method1("Signature", (parameters,))
}

/// Wraps the methods of a class that take fields.
pub(super) fn name_fields(class: &Bound<'_, PyType>) -> PyResult<()> {
    let py = class.py();
    let builtins = py.import("builtins")?;
    let ends_with_fields = |object: &Bound<'_, PyAny>| -> PyResult<bool> {
        let text = object.getattr_opt("__text_signature__")?;
        Ok(text.is_some_and(|text| text.extract().is_ok_and(|text: &str| text.ends_with(FIELDS))))
    };
    let arguments = class.getattr_opt("generate")?.map(|generate| generate.getattr("__doc__")).transpose()?;
    let arguments = arguments.map(|doc| doc.extract::<String>()).transpose()?.unwrap_or_default();
    for entry in class.getattr("__dict__")?.call_method0("copy")?.cast::<PyDict>()?.iter() {
        let (name, function) = (entry.0.extract::<String>()?, entry.1);
        if !ends_with_fields(&function)? {
            continue;
        }
        let is_class_method = function.get_type().name()? == "classmethod_descriptor";
        let doc = match Strategy::ALL.iter().find(|strategy| strategy.name == name) {
            Some(strategy) => strategy_doc(strategy, &arguments),
            None => function.getattr("__doc__")?.extract()?,
        };
        let method = Bound::new(py, Method { function: function.unbind(), doc })?;
        if is_class_method {
            class.setattr(name, builtins.call_method1("classmethod", (method,))?)?;
        } else {
            class.setattr(name, method)?;
        }
    }
    if ends_with_fields(class.as_any())? {
        class.setattr("__signature__", ClassSignature)?;
    }
    Ok(())
}

/// The docstring of a strategy's method: its own words, and the arguments of `generate`.
fn strategy_doc(strategy: &Strategy, generate: &str) -> String {
    let arguments = generate.find("Args:").map_or("", |start| &generate[start..]);
    let arguments = arguments.split("\n\nExample:").next().unwrap_or_default();
    format!("{}\n\nOtherwise as `generate()`.\n\n{arguments}", strategy.doc.trim().replace("\n ", "\n"))
}
