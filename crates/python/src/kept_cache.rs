//! The class `KeptCache`, the method `prefill` that makes one, and the arguments of calls that continue it.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyList, PyTuple};

use super::abc::is_sequence;
use super::arrays::ids;
use super::calls::Edit;
use super::errors::{config_error, guarded, input_error, missing_error, numbered_prompt, to_python};
use super::generator::Generator;
use super::output::GenerationOutput;
use super::prompts::{prompts, shown};
use super::signals::interruptible;
use rsgen::engine;
use rsgen::generator::{Prompt, Prompts};
use rsgen_core::process::OwnerPid;
use rsgen_core::sync::Mutex;

/// The keyword arguments of every call that continue a kept cache, or keep one.
pub(super) const KEYWORDS: [&str; 3] = ["cache", "past_key_values", "return_cache"];

/// The computed keys and values of a text, kept so that calls can continue it.
///
/// `Generator.prefill()` and `GenerationOutput.cache` return one. It can be reused: any number of
/// calls may continue it, also concurrently from several threads, with exactly the results of the
/// whole text. It reserves no memory: when the KV cache is full, its blocks are evicted, and the
/// next call that continues it recomputes them. It cannot be pickled.
///
/// Example:
///     >>> with gen.prefill("Once upon a time there was a fox.") as story:
///     ...     for ending in (" It was sad", " It was glad"):
///     ...         print(gen.generate(ending, cache=story, max_new_tokens=20).text)
#[pyclass(module = "rsgen", frozen)]
pub(super) struct KeptCache {
    /// `None` once it is closed.
    kept: Mutex<Option<engine::KeptCache>>,
    owner: OwnerPid,
}

impl KeptCache {
    fn new(kept: engine::KeptCache) -> Self {
        Self { kept: Mutex::new(Some(kept)), owner: OwnerPid::current() }
    }

    fn open(&self, py: Python<'_>) -> PyResult<engine::KeptCache> {
        let kept = self.kept.lock().clone();
        kept.ok_or_else(|| input_error(py, "the cache is closed; keep another one: gen.prefill(text)"))
    }
}

#[guarded]
#[pymethods]
impl KeptCache {
    /// NDArray[np.int64]: The tokens of the text, `[tokens]`.
    #[getter]
    fn token_ids<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        ids(py, self.open(py)?.token_ids())
    }

    /// int: The number of leading tokens whose keys and values are in the cache now.
    ///
    /// The last token of a generated text is not computed, and a full KV cache evicts blocks.
    #[getter]
    fn num_computed(&self, py: Python<'_>) -> usize {
        self.open(py)?.num_computed()
    }

    /// bool: Whether the handle is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.kept.lock().is_none()
    }

    /// Returns a second handle of the same text, to be closed independently.
    ///
    /// Calls never change a handle: forks are for code that closes its own.
    ///
    /// Returns:
    ///     KeptCache: The second handle.
    fn fork(&self, py: Python<'_>) -> PyResult<Self> {
        self.owner.check().map_err(|error| to_python(py, error))?;
        Ok(Self::new(self.open(py)?))
    }

    /// Releases the blocks. Running calls continue. Closing twice has no effect.
    fn close(&self) -> PyResult<()> {
        let kept = self.kept.lock().take();
        drop(kept);
        Ok(())
    }

    /// Returns the handle, for `with`.
    ///
    /// Returns:
    ///     Self: The handle.
    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    /// Closes the handle.
    ///
    /// Args:
    ///     exception (Any): The class, value and traceback of an exception that ends the block.
    #[pyo3(signature = (*exception))]
    fn __exit__(&self, exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        let _ = exception;
        self.close()
    }

    fn __len__(&self, py: Python<'_>) -> usize {
        self.open(py)?.len()
    }

    // A handle of an empty text is true as well.
    fn __bool__(&self) -> bool {
        true
    }

    /// Returns a fork.
    ///
    /// Returns:
    ///     KeptCache: The second handle.
    fn __copy__(&self, py: Python<'_>) -> PyResult<Self> {
        self.fork(py)
    }

    /// Returns a fork.
    ///
    /// Args:
    ///     memo (Any): Of the module copy, unused.
    ///
    /// Returns:
    ///     KeptCache: The second handle.
    #[pyo3(signature = (memo, /))]
    fn __deepcopy__(&self, py: Python<'_>, memo: &Bound<'_, PyAny>) -> PyResult<Self> {
        let _ = memo;
        self.fork(py)
    }

    /// Raises `TypeError`: keys and values are in the memory of this process.
    ///
    /// Returns:
    ///     NoReturn: It raises.
    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "a KeptCache cannot be pickled: its keys and values are in the memory of this process; pickle its \
                 token_ids, and keep them again with gen.prefill(token_ids)",
        ))
    }

    fn __repr__(&self) -> String {
        match &*self.kept.lock() {
            Some(kept) => format!("KeptCache(len={}, num_computed={})", kept.len(), kept.num_computed()),
            None => "KeptCache(closed)".to_owned(),
        }
    }
}

#[guarded]
#[pymethods]
impl Generator {
    /// Computes a prompt and keeps its cache, so that calls can continue it.
    ///
    /// Args:
    ///     prompt (Prompt | None): A text, its token ids, or a list of those. None begins a text with the
    ///         `bos_token_id`.
    ///     cache (KeptCache | None): A kept text, which the prompt continues.
    ///     adapter (Adapter | None): The name of an adapter that `load_adapter` has loaded, or a list of
    ///         names with weights.
    ///
    /// Returns:
    ///     KeptCache | list[KeptCache]: The handle to pass as `cache`; a list for a list.
    ///
    /// Raises:
    ///     InputError: The prompt cannot be used, or the cache is of another generator.
    ///     CapacityError: The KV cache cannot hold the prompt.
    ///
    /// Example:
    ///     >>> story = gen.prefill("Once upon a time there was a fox.")
    ///     >>> gen.generate(" It was sad", cache=story, max_new_tokens=20).text
    #[pyo3(signature = (prompt=None, *, cache=None, adapter=None))]
    fn prefill<'py>(
        &self,
        py: Python<'py>,
        prompt: Option<&Bound<'py, PyAny>>,
        cache: Option<&Bound<'py, PyAny>>,
        adapter: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let cache = cache.map(|given| one(given, KEYWORDS[0])).transpose()?;
        let inner = self.adapted(py, adapter)?;
        let prefill = |prompt: Prompt| {
            let computed = interruptible(py, |interrupted| {
                inner.prefill_interruptible(prompt, cache.as_ref(), interrupted)
            });
            Bound::new(py, KeptCache::new(computed?))
        };
        let given = prompt.map(|prompt| prompts(prompt, None)).transpose()?;
        let list = match given.unwrap_or(Prompts::One(Prompt::Ids(Vec::new()))) {
            Prompts::One(prompt) => return Ok(prefill(prompt)?.into_any()),
            Prompts::List(list) => list,
            Prompts::Batch(batch) => batch.rows().iter().map(|row| Prompt::Ids(row.tokens())).collect(),
        };
        let of_list = |(index, prompt): (usize, Prompt)| {
            prefill(prompt).map_err(|error| numbered_prompt(py, index, error))
        };
        let kept = list.into_iter().enumerate().map(of_list).collect::<PyResult<Vec<_>>>()?;
        Ok(PyList::new(py, kept)?.into_any())
    }
}

#[guarded]
#[pymethods]
impl GenerationOutput {
    /// KeptCache: The first row, its prompt and continuation, for a call that goes on with it.
    ///
    /// With `return_cache=True` its blocks are kept from the end of the call on; otherwise those that
    /// are still cached at the first access.
    #[getter]
    fn cache(&self, py: Python<'_>) -> PyResult<Py<KeptCache>> {
        let no_row = || missing_error(py, "the output has no row, and so no cache");
        self.caches(py)?.into_iter().next().ok_or_else(no_row)
    }

    /// KeptCache | list[KeptCache] | None: The `cache` of the row, or those of all rows, as in transformers.
    ///
    /// None where none was kept, as for embeddings and for outputs of another process.
    #[getter]
    fn past_key_values<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        if self.caches.get(py).is_none() && self.kept.lock().iter().any(Option::is_none) {
            return Ok(None);
        }
        match &self.caches(py)?[..] {
            [] => Ok(None),
            [one] => Ok(Some(one.bind(py).clone().into_any())),
            all => Ok(Some(PyList::new(py, all)?.into_any())),
        }
    }

    /// list[KeptCache]: The `cache` of each row.
    #[getter]
    fn caches(&self, py: Python<'_>) -> PyResult<Vec<Py<KeptCache>>> {
        let made = self.caches.get_or_try_init(py, || {
            let kept: Option<Vec<_>> = self.kept.lock().iter().cloned().collect();
            let kept = kept.ok_or_else(|| {
                missing_error(
                    py,
                    "no cache was kept of this output, which continues embeddings, or comes from a file or another process; \
                     make one: gen.prefill(ids)",
                )
            })?;
            self.kept.lock().clear();
            let handle = |kept: engine::KeptCache| {
                kept.renew();
                Py::new(py, KeptCache::new(kept))
            };
            kept.into_iter().map(handle).collect::<PyResult<Vec<_>>>()
        })?;
        Ok(made.iter().map(|handle| handle.clone_ref(py)).collect())
    }
}

/// The cache arguments of a call.
///
/// # Errors
/// `TypeError` for a value of another type; `ConfigError` when both `cache` and `past_key_values` are given.
pub(super) fn continued(keywords: Option<&Bound<'_, PyDict>>) -> PyResult<Vec<Edit>> {
    let mut edits: Vec<Edit> = Vec::new();
    let Some(keywords) = keywords else { return Ok(edits) };
    let [cache, past_key_values, return_cache] = KEYWORDS;
    let given = |name: &str| -> PyResult<_> { Ok(keywords.get_item(name)?.filter(|value| !value.is_none())) };
    match (given(cache)?, given(past_key_values)?) {
        (Some(rest), Some(_)) => {
            return Err(config_error(
                rest.py(),
                "`cache` and `past_key_values` exclude each other: beside `cache` the prompt is what follows, beside \
                 `past_key_values` it is the whole text; leave one out",
            ));
        }
        (Some(rest), None) => {
            let caches = several(&rest, cache)?;
            edits.push(Box::new(move |call| call.cache(&caches)));
        }
        (None, Some(whole)) => {
            let caches = several(&whole, past_key_values)?;
            edits.push(Box::new(move |call| call.past_key_values(&caches)));
        }
        (None, None) => {}
    }
    let Some(returns) = given(return_cache)? else { return Ok(edits) };
    let Ok(returns) = returns.cast::<PyBool>() else {
        return Err(type_error!("`return_cache` must be True or False, got {}", shown(&returns)));
    };
    let returns = returns.is_true();
    edits.push(Box::new(move |call| call.return_cache(returns)));
    Ok(edits)
}

/// A cache, or the caches of a list.
pub(super) fn several(given: &Bound<'_, PyAny>, name: &str) -> PyResult<Vec<engine::KeptCache>> {
    if given.is_instance_of::<KeptCache>() || !is_sequence(given)? {
        return Ok(vec![one(given, name)?]);
    }
    let caches: Vec<_> = given.try_iter()?.map(|item| one(&item?, name)).collect::<PyResult<_>>()?;
    if caches.is_empty() {
        return Err(config_error!(
            given.py(),
            "`{name}` must hold at least one cache, got an empty list; leave it out"
        ));
    }
    Ok(caches)
}

fn one(given: &Bound<'_, PyAny>, name: &str) -> PyResult<engine::KeptCache> {
    match given.cast::<KeptCache>() {
        Ok(cache) => cache.get().open(given.py()),
        Err(_) => Err(type_error!(
            "`{name}` must be a KeptCache or a list of them, got {}; gen.prefill(text) and out.cache give one",
            shown(given)
        )),
    }
}
