//! Pickling: a generator as the recipe it was opened by, results by value.
//!
//! A recipe holds the path of a model and its options: no weights and no code. Streams and kept caches are
//! refused with a `TypeError`.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};

use super::options::{chat_templates_of, model_path, with_tokenizer_of};
use rsgen::generator::MemoryModel;
use rsgen_core::files::absolute;
use rsgen_text::{ChatTemplates, Tokenizer};

/// The result of `__reduce__`: the class method that restores the value, and its only argument.
pub(super) type Restored<'py, T> = (Bound<'py, PyAny>, (T,));

/// The arguments that open a generator again.
pub(super) struct Recipe {
    /// `None` is the model that comes with the package, wherever that is installed.
    model: Option<String>,
    /// The options that are not the default ones.
    options: Py<PyDict>,
    /// The tokenizer of a model that was in memory, as files by their names: it has no place to be opened
    /// again from.
    in_memory: Option<Arc<Files>>,
}

/// An adapter that is loaded beside a model: its name there, its folder or Hub id, and the Hub cache.
#[derive(Debug, Clone, FromPyObject, IntoPyObject)]
#[pyo3(from_item_all)]
pub(super) struct LoadedAdapter {
    pub(super) name: String,
    pub(super) path: String,
    pub(super) cache_dir: Option<String>,
}

/// Files by their names.
type Files = Vec<(String, Vec<u8>)>;

impl Recipe {
    /// The recipe of a model, folder or Hub id, that is about to be opened.
    pub(super) fn new(model: Option<&str>, options: Bound<'_, PyDict>) -> Self {
        Self { model: model.map(absolute), options: options.unbind(), in_memory: None }
    }

    /// The recipe of a model in memory, which cannot be opened again.
    pub(super) fn in_memory(tokenizer: Files, options: Bound<'_, PyDict>) -> Self {
        Self { model: None, options: options.unbind(), in_memory: Some(Arc::new(tokenizer)) }
    }

    /// Adds the files of the tokenizer to a model in memory.
    pub(super) fn add_tokenizer_to(&self, py: Python<'_>, model: MemoryModel) -> PyResult<MemoryModel> {
        if let Some(files) = &self.in_memory {
            return Ok(files.iter().fold(model, |model, (name, text)| model.file(name, &**text)));
        }
        let path = match &self.model {
            Some(path) => path.clone(),
            None => model_path(py, "tokenizer", None)?,
        };
        with_tokenizer_of(py, model, &path, self.options.bind(py))
    }

    /// The chat templates of the model that this tokenizer was opened from.
    pub(super) fn chat_templates(&self, py: Python<'_>, tokenizer: &Tokenizer) -> PyResult<ChatTemplates> {
        let path = match &self.model {
            Some(path) => path.clone(),
            None => model_path(py, "tokenizer", None)?,
        };
        chat_templates_of(py, &path, self.options.bind(py), tokenizer)
    }

    /// Adds an option.
    pub(super) fn set<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        value: impl IntoPyObject<'py>,
    ) -> PyResult<()> {
        self.options.bind(py).set_item(name, value)
    }

    /// The recipe of the model's assistant.
    pub(super) fn of_assistant(&self, py: Python<'_>, model: &str) -> PyResult<Self> {
        let options = self.options.bind(py).copy()?;
        options.call_method1("pop", ("assistant", py.None()))?;
        options.call_method1("pop", ("revision", py.None()))?;
        options.call_method1("pop", ("adapter", py.None()))?;
        Ok(Self { model: Some(absolute(model)), options: options.unbind(), in_memory: None })
    }

    /// The value of `__reduce__`: `class(model, **options)`.
    pub(super) fn reduce<'py>(
        &self,
        class: &Bound<'py, PyType>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        self.reduce_with(class, &PyDict::new(class.py()))
    }

    /// [`Recipe::reduce`] with further options.
    pub(super) fn reduce_with<'py>(
        &self,
        class: &Bound<'py, PyType>,
        further: &Bound<'py, PyDict>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let py = class.py();
        if self.in_memory.is_some() {
            let name = class.name()?.to_string_lossy().into_owned();
            return Err(refused(
                &name,
                "was made of tensors in memory",
                "save the model as a folder and open that, or make it anew in each process",
            ));
        }
        let options = self.options.bind(py).copy()?;
        options.update(further.as_mapping())?;
        let new = py.import("copyreg")?.getattr("__newobj_ex__")?;
        Ok((new, (class, (self.model.as_deref(),), options).into_pyobject(py)?))
    }

    /// The recipe of the model's tokenizer.
    pub(super) fn of_tokenizer(&self, py: Python<'_>) -> PyResult<Self> {
        let (options, given) = (PyDict::new(py), self.options.bind(py));
        // A revision is the model's own.
        let other: Option<String> = given.get_item("tokenizer")?.map(|path| path.extract()).transpose()?;
        for name in ["revision", "cache_dir"] {
            if let Some(value) = given.get_item(name)?.filter(|_| other.is_none() || name != "revision") {
                options.set_item(name, value)?;
            }
        }
        let model = other.or_else(|| self.model.clone());
        Ok(Self { model, options: options.unbind(), in_memory: self.in_memory.clone() })
    }
}

/// The class method that restores a value of this class.
pub(super) fn restorer<'py, T>(value: &Bound<'py, T>) -> PyResult<Bound<'py, PyAny>> {
    value.as_any().get_type().getattr("_restore")
}

/// The `TypeError` of a class that cannot be pickled.
pub(super) fn refused(class: &str, why: &str, remedy: &str) -> PyErr {
    type_error!("a {class} cannot be pickled, because it {why}; {remedy}")
}
