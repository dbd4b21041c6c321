//! The methods of `Generator` that load adapters beside the model, and the argument `adapter` of calls.

use std::path::PathBuf;

use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use super::abc::is_sequence;
use super::drop_detached::DropDetached;
use super::errors::{guarded, to_python};
use super::generator::Generator;
use super::options;
use super::pickle::LoadedAdapter;
use super::prompts::shown;
use super::results;
use super::signals::interruptible;
use super::walk::{Text, Walk};
use rsgen::AdapterSum;
use rsgen::generator::AdapterFacts;
use rsgen_core::files::absolute;

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
    /// `gen.generate([one, other], adapter=["support", None])` for the first text alone. Several add up with
    /// `adapter=[("support", 0.7), ("sales", 0.3)]`, as one that PEFT's `add_weighted_adapter` makes by `"cat"`.
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
        interruptible(py, |interrupted| inner.load_adapter(&path, &name, cache_dir.as_deref(), interrupted))?;
        // Another process may be in another folder.
        let cache_dir = cache_dir.map(|folder| std::path::absolute(&folder).unwrap_or(folder));
        let cache_dir = cache_dir.map(|folder| folder.to_string_lossy().into_owned());
        self.loaded_adapters().lock().push(LoadedAdapter { name, path: absolute(&path), cache_dir });
        Ok(())
    }

    /// Unloads an adapter. Calls that run with it go on, and its memory goes back when they have ended.
    ///
    /// Args:
    ///     name (str): Its name.
    ///
    /// Raises:
    ///     InputError: There is none of this name.
    fn unload_adapter(&self, py: Python<'_>, name: Text<'_>) -> PyResult<()> {
        self.inner(py)?.unload_adapter(name.0).map_err(|error| to_python(py, error))?;
        self.loaded_adapters().lock().retain(|adapter| adapter.name != name.0);
        Ok(())
    }

    /// Says what is in memory: the model, its KV cache, and the adapters beside it.
    ///
    /// Returns:
    ///     dict[str, Any]: "model" and "architecture"; "weight_bytes", "kv_cache_bytes" that are allocated and
    ///         "kv_cache_bytes_total"; "adapters", which holds for each name the "path", "rank", "modules" and "bytes".
    ///
    /// Example:
    ///     >>> gen.inspect()["weight_bytes"]
    fn inspect<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let inner = self.inner(py)?;
        let (all, adapters) = (PyDict::new(py), PyDict::new(py));
        for (name, AdapterFacts { path, rank, modules, bytes, .. }) in inner.adapter_facts() {
            let facts = PyDict::new(py);
            facts.set_item("path", path)?;
            facts.set_item("rank", rank)?;
            facts.set_item("modules", modules)?;
            facts.set_item("bytes", bytes)?;
            adapters.set_item(name, facts)?;
        }
        let stats = results::cache_stats(py, inner.engine())?;
        all.set_item("model", inner.name())?;
        all.set_item("architecture", &inner.config().architecture)?;
        all.set_item("weight_bytes", inner.engine().model().weight_bytes())?;
        all.set_item("kv_cache_bytes", stats.getattr("bytes_allocated")?)?;
        all.set_item("kv_cache_bytes_total", stats.getattr("bytes_total")?)?;
        all.set_item("adapters", adapters)?;
        Ok(all)
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
    /// The generator with the adapters of an argument, if any are named.
    ///
    /// # Errors
    /// `TypeError` for what names none; `InputError` for an unknown name; when the generator is closed.
    pub(super) fn adapted(
        &self,
        py: Python<'_>,
        adapter: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<DropDetached> {
        let inner = self.inner(py)?;
        let Some(given) = adapter.filter(|given| !given.is_none()) else { return Ok(inner) };
        let [sum] = <[AdapterSum; 1]>::try_from(sums(given, true)?).map_err(|_| {
            type_error!(
                "`adapter` must be one for all texts: a name, or a list of names with weights, got {}; make a call for each",
                shown(given)
            )
        })?;
        inner.with_adapter(sum).map(DropDetached::new).map_err(|error| to_python(py, error))
    }
}

/// What an element of a list can be.
enum Item {
    Name(String),
    Weighted(String, f64),
    /// `None`, or a list.
    Sum(AdapterSum),
}

/// The adapters of a call: one sum for all prompts, or one for each. In a list for one prompt, names have weight 1.
pub(super) fn sums(given: &Bound<'_, PyAny>, is_one_prompt: bool) -> PyResult<Vec<AdapterSum>> {
    if given.is_instance_of::<PyString>() || !is_sequence(given)? || is_weighted(given)? {
        return Ok(vec![match item(given, given)? {
            Item::Name(name) => name.into(),
            Item::Weighted(name, weight) => [(name, weight)].into(),
            Item::Sum(sum) => sum,
        }]);
    }
    let items = Walk::default().items(given)?.map(|own| item(&own?, given)).collect::<PyResult<Vec<_>>>()?;
    let are_names = items.iter().all(|item| matches!(item, Item::Name(_)));
    let is_sum = items.iter().any(|item| matches!(item, Item::Weighted(..))) || is_one_prompt && are_names;
    if is_sum || items.is_empty() {
        let weighted = items.into_iter().map(|item| match item {
            Item::Name(name) => Ok((name, 1.0)),
            Item::Weighted(name, weight) => Ok((name, weight)),
            Item::Sum(_) => Err(wrong(given)),
        });
        return Ok(vec![weighted.collect::<PyResult<_>>()?]);
    }
    let sums = items.into_iter().map(|item| match item {
        Item::Name(name) => name.into(),
        Item::Weighted(name, weight) => [(name, weight)].into(),
        Item::Sum(sum) => sum,
    });
    Ok(sums.collect())
}

/// An element of `all`.
fn item(given: &Bound<'_, PyAny>, all: &Bound<'_, PyAny>) -> PyResult<Item> {
    if given.is_none() {
        return Ok(Item::Sum(AdapterSum::default()));
    }
    if given.is_instance_of::<PyString>() {
        return Ok(Item::Name(given.extract::<Text<'_>>()?.0.to_owned()));
    }
    if !is_sequence(given)? {
        return Err(wrong(all));
    }
    if is_weighted(given)? {
        let name = given.get_item(0)?.extract::<Text<'_>>()?.0.to_owned();
        let py = given.py();
        let weight = match given.get_item(1)?.extract::<f64>() {
            Err(error) if error.is_instance_of::<PyOverflowError>(py) => f64::INFINITY,
            Err(error) if error.is_instance_of::<PyTypeError>(py) => return Err(wrong(all)),
            weight => weight?,
        };
        return Ok(Item::Weighted(name, weight));
    }
    let walk = Walk::default();
    let weighted = walk.items(given)?.map(|own| {
        let own = own?;
        let names_one = own.is_instance_of::<PyString>() || is_sequence(&own)? && is_weighted(&own)?;
        if names_one { item(&own, all) } else { Err(wrong(all)) }
    });
    let weighted = weighted.map(|item| match item? {
        Item::Name(name) => Ok((name, 1.0)),
        Item::Weighted(name, weight) => Ok((name, weight)),
        Item::Sum(_) => Err(wrong(all)),
    });
    weighted.collect::<PyResult<_>>().map(Item::Sum)
}

/// Whether a sequence is a name and a number.
fn is_weighted(given: &Bound<'_, PyAny>) -> PyResult<bool> {
    if given.len()? != 2 || !given.get_item(0)?.is_instance_of::<PyString>() {
        return Ok(false);
    }
    let second = given.get_item(1)?;
    Ok(!second.is_none() && !second.is_instance_of::<PyString>() && !is_sequence(&second)?)
}

fn wrong(given: &Bound<'_, PyAny>) -> PyErr {
    type_error!(
        "`adapter` must be the name of a loaded adapter, or a list of names with weights, such as [(\"a\", 0.7), (\"b\", 0.3)], or \
         a list with one of those or None for each prompt, got {}; gen.load_adapter(path, name) loads one",
        shown(given)
    )
}
