//! The methods of `Generator` that load adapters beside the model, and the argument `adapter` of calls.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use super::abc::is_sequence;
use super::drop_detached::DropDetached;
use super::errors::{guarded, to_python};
use super::generator::Generator;
use super::options;
use super::prompts::shown;
use super::signals::interruptible;
use super::walk::{Text, Walk};

#[guarded]
#[pymethods]
impl Generator {
    /// Loads a LoRA adapter of PEFT beside the model, for the calls and rows that name it.
    ///
    /// Calls with different adapters run together: the model's own products are computed once for all of
    /// them. The results are those of the merged model, within rounding: `Generator(model, adapter=...)`
    /// merges one, and is faster where there is only one.
    ///
    /// After `gen.load_adapter(folder, name="support")`, `gen.generate(texts, adapter="support")` uses it, and
    /// `gen.generate([one, other], adapter=["support", None])` for the first text alone.
    ///
    /// Args:
    ///     adapter (str | os.PathLike[str]): The folder of the adapter, or its Hub id in the local cache.
    ///     name (str): What calls name it by.
    ///     cache_dir (str | os.PathLike[str] | None): The Hub cache.
    ///
    /// Raises:
    ///     LoadError: There is no such adapter, or it belongs to another model, or it changes embeddings,
    ///         experts or whole tensors, which only a merged one can.
    ///     InputError: The name is taken.
    #[pyo3(signature = (adapter, name, *, cache_dir=None))]
    fn load_adapter(
        &self,
        py: Python<'_>,
        adapter: &Bound<'_, PyAny>,
        name: Text<'_>,
        cache_dir: Option<PathBuf>,
    ) -> PyResult<()> {
        let path = options::model_path(py, "adapter", Some(adapter))?;
        let name = name.0.to_owned();
        let inner = self.inner(py)?;
        interruptible(py, |interrupted| inner.load_adapter(&path, &name, cache_dir.as_deref(), interrupted))
    }

    /// Unloads an adapter. Calls that run with it go on, and its memory goes back when they have ended.
    ///
    /// Args:
    ///     name (str): Its name.
    ///
    /// Raises:
    ///     InputError: There is none of this name.
    fn unload_adapter(&self, py: Python<'_>, name: Text<'_>) -> PyResult<()> {
        self.inner(py)?.unload_adapter(name.0).map_err(|error| to_python(py, error))
    }

    /// dict[str, int]: The adapters that are loaded beside the model: the bytes that each takes, by name.
    #[getter]
    fn adapters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let all = PyDict::new(py);
        for (name, bytes) in self.inner(py)?.adapters() {
            all.set_item(name, bytes)?;
        }
        Ok(all)
    }
}

impl Generator {
    /// The generator with the adapter of an argument, if one is named.
    ///
    /// # Errors
    /// `InputError` for an unknown name; when the generator is closed.
    pub(super) fn adapted(&self, py: Python<'_>, adapter: Option<Text<'_>>) -> PyResult<DropDetached> {
        let inner = self.inner(py)?;
        let Some(name) = adapter else { return Ok(inner) };
        inner.with_adapter(name.0).map(DropDetached::new).map_err(|error| to_python(py, error))
    }
}

/// The names of a call: one for all prompts, or a list with one or None for each.
pub(super) fn names(given: &Bound<'_, PyAny>) -> PyResult<Vec<Option<String>>> {
    let name = |given: &Bound<'_, PyAny>| match given.cast::<PyString>() {
        Ok(_) => given.extract::<Text<'_>>().map(|text| Some(text.0.to_owned())),
        Err(_) if given.is_none() => Ok(None),
        Err(_) => Err(type_error!(
            "`adapter` must be the name of a loaded adapter, or a list with a name or None for each prompt, got {}; \
             gen.load_adapter(path, name) loads one",
            shown(given)
        )),
    };
    if given.is_instance_of::<PyString>() || !is_sequence(given)? {
        return Ok(vec![name(given)?]);
    }
    Walk::default().items(given)?.map(|item| name(&item?)).collect()
}
