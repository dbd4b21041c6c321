//! The keyword arguments that a model is opened with.

use std::path::PathBuf;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use super::built_in::argument;
use super::config::FOREIGN;
use super::errors::{config_error, exception, replaced, to_python};
use super::field_values;
use super::generator::Generator;
use super::prompts::{shown, string};
use rsgen::generator::choices::{self, ModelDefaults};
use rsgen::generator::{GeneratorOptions, MemoryModel, find_chat_templates};
use rsgen_core::error::ErrorKind;
use rsgen_core::files::absolute;
use rsgen_generation::config::suggest;
use rsgen_text::{ChatTemplates, Tokenizer};

/// The model that comes with the package, in its folder.
const BUNDLED: &str = "models/story-3m";

/// The name of the bundled assistant, and its folder.
const DRAFT: (&str, &str) = ("draft", "models/story-draft");

/// What a generator can be opened with.
pub(super) const NAMES: [&str; 16] = [
    "model",
    "dtype",
    "torch_dtype",
    "compute_dtype",
    "kv_dtype",
    "num_threads",
    "assistant",
    "adapter",
    "tokenizer",
    "kv_cache_bytes",
    "prefix_caching",
    "local_files_only",
    "revision",
    "cache_dir",
    "generation_config",
    "progress",
];

/// Reads the keyword arguments of a class that opens a model; `names` are those that it takes. Returns the
/// options, and the arguments that open the model again in any process.
///
/// # Errors
/// `TypeError` for a name that is no option, or a value of another type; `ConfigError` for a value that is
/// not possible.
pub(super) fn read<'py>(
    py: Python<'py>,
    class: &str,
    names: &[&'static str],
    given: Option<&Bound<'py, PyDict>>,
) -> PyResult<(GeneratorOptions, Bound<'py, PyDict>)> {
    let given = &given.map_or_else(|| PyDict::new(py), Bound::clone);
    refuse_unknown(class, names, given)?;
    let (mut options, recipe) = (GeneratorOptions::new(), PyDict::new(py));
    let refused = |error| to_python(py, error);
    if argument::<bool>(given, "local_files_only")? == Some(false) {
        return Err(config_error(
            py,
            "`local_files_only` must be True, because rsgen never downloads; fetch the model first, for example with \
             `hf download <model>`",
        ));
    }
    if let Some(dtype) = dtype(given)? {
        options = options.dtype(choices::DTYPE.parse(&dtype).map_err(refused)?);
        recipe.set_item("dtype", dtype)?;
    }
    if let Some(dtype) = dtype_name(given, "compute_dtype")? {
        options = options.compute_dtype(choices::COMPUTE_DTYPE.parse(&dtype).map_err(refused)?);
        recipe.set_item("compute_dtype", dtype)?;
    }
    if let Some(dtype) = dtype_name(given, "kv_dtype")? {
        options = options.kv_dtype(choices::KV_DTYPE.parse(&dtype).map_err(refused)?);
        recipe.set_item("kv_dtype", dtype)?;
    }
    if let Some(defaults) = argument::<String>(given, "generation_config")? {
        let parsed = choices::GENERATION_CONFIG.parse(&defaults).map_err(refused)?;
        options = options.ignore_generation_config(parsed == ModelDefaults::Ignore);
        recipe.set_item("generation_config", defaults)?;
    }
    if let Some(number) = count(given, "num_threads")? {
        options = options.num_threads(Some(number));
        recipe.set_item("num_threads", number)?;
    }
    if let Some(number) = count(given, "kv_cache_bytes")? {
        options = options.kv_cache_bytes(Some(number));
        recipe.set_item("kv_cache_bytes", number)?;
    }
    if let Some(caches) = argument::<bool>(given, "prefix_caching")? {
        options = options.prefix_caching(caches);
        recipe.set_item("prefix_caching", caches)?;
    }
    if let Some(adapter) = argument::<Bound<'_, PyAny>>(given, "adapter")? {
        let adapter =
            named("adapter", "the folder of a LoRA adapter, its id in the Hub cache, or None", &adapter)?;
        recipe.set_item("adapter", absolute(&adapter))?;
        options = options.adapter(Some(adapter));
    }
    if let Some(model) = argument::<Bound<'_, PyAny>>(given, "tokenizer")? {
        let model = named("tokenizer", "a folder, the id of a model in the Hub cache, or None", &model)?;
        recipe.set_item("tokenizer", absolute(&model))?;
        options = options.tokenizer(Some(model));
    }
    if let Some(revision) = argument::<String>(given, "revision")? {
        recipe.set_item("revision", &revision)?;
        options = options.revision(Some(revision));
    }
    if let Some(folder) = argument::<PathBuf>(given, "cache_dir")? {
        // Another process may be in another folder.
        let absolute = std::path::absolute(&folder).unwrap_or_else(|_| folder.clone());
        recipe.set_item("cache_dir", path_text(py, "cache_dir", absolute)?)?;
        options = options.cache_dir(Some(folder));
    }
    Ok((options, recipe))
}

/// The name of a type of numbers: itself, or that of one of torch's or numpy's types.
fn dtype_name(arguments: &Bound<'_, PyDict>, name: &str) -> PyResult<Option<String>> {
    let Some(given) = argument::<Bound<'_, PyAny>>(arguments, name)? else { return Ok(None) };
    if given.is_instance_of::<PyString>() {
        return argument(arguments, name);
    }
    let class = given.get_type().name()?.to_string_lossy().to_lowercase();
    let text = match given.getattr_opt("__name__")? {
        Some(text) => string(&text)?,
        None if class.ends_with("dtype") => string(&given)?,
        None => {
            let rule = "must be the name of a type, such as \"bfloat16\", or a type of torch or numpy";
            return Err(type_error!("`{name}` {rule}, got {}", shown(&given)));
        }
    };
    Ok(Some(text.strip_prefix("torch.").unwrap_or(&text).to_owned()))
}

/// `dtype`, of which `torch_dtype` is the older name.
fn dtype(arguments: &Bound<'_, PyDict>) -> PyResult<Option<String>> {
    let py = arguments.py();
    match (dtype_name(arguments, "dtype")?, dtype_name(arguments, "torch_dtype")?) {
        (Some(dtype), Some(other)) if dtype != other => Err(config_error!(
            py,
            "`dtype` and `torch_dtype` are one option, got {dtype:?} and {other:?}; leave one out"
        )),
        (None, Some(other)) => {
            let parsed = choices::DTYPE.called("torch_dtype").parse(&other);
            parsed.map(|_| Some(other)).map_err(|error| to_python(py, error))
        }
        (dtype, _) => Ok(dtype),
    }
}

/// A number of threads or bytes.
fn count(arguments: &Bound<'_, PyDict>, name: &str) -> PyResult<Option<usize>> {
    let Some(given) = argument::<Bound<'_, PyAny>>(arguments, name)? else { return Ok(None) };
    let index = || given.py().import("operator")?.call_method1("index", (&given,));
    if given.hasattr("__index__")? && index()?.lt(1)? {
        let rule = format!("`{name}` must be 1 or more, got {}", given.str()?);
        return Err(config_error!(given.py(), "{rule}; None chooses by itself"));
    }
    field_values::count(&given, name).map(Some)
}

/// Refuses keywords of the class that are no options; those of transformers that ask for nothing are taken.
pub(super) fn refuse_unknown(class: &str, names: &[&'static str], given: &Bound<'_, PyDict>) -> PyResult<()> {
    for (name, value) in given {
        let text = string(&name)?;
        if names.contains(&text.as_str()) {
            continue;
        }
        if value.py().import(FOREIGN)?.call_method1("is_neutral", (&name, &value))?.is_truthy()? {
            continue;
        }
        let meant = suggest(&text, names.iter().copied()).map_or_else(
            || format!("it takes {}", names.join(", ")),
            |meant| format!("did you mean `{meant}`?"),
        );
        return Err(PyTypeError::new_err(format!(
            "{class}() got an unexpected keyword argument {}; {meant}",
            shown(&name)
        )));
    }
    Ok(())
}

/// The folder or Hub id that names the model; that of the bundled one for `None`.
pub(super) fn model_path(py: Python<'_>, option: &str, model: Option<&Bound<'_, PyAny>>) -> PyResult<String> {
    match model {
        None => path_text(py, option, bundled(py)?),
        Some(model) => {
            named(option, "a folder, the id of a model in the Hub cache, or None for the bundled one", model)
        }
    }
}

/// The folder of an adapter, or its id in the Hub cache.
pub(super) fn folder(option: &str, given: &Bound<'_, PyAny>) -> PyResult<String> {
    named(option, "a dict of names to folders, or ids of adapters in the Hub cache", given)
}

/// The folder or Hub id that an option names; `rule` is what it must be.
fn named(option: &str, rule: &str, given: &Bound<'_, PyAny>) -> PyResult<String> {
    let py = given.py();
    if let Ok(name) = given.cast::<PyString>() {
        // A byte of a path that is no UTF-8 is half of a surrogate pair in Python.
        return name.extract().map_err(|_| not_utf8(py, option, &shown(given)));
    }
    match given.extract() {
        Ok(path) => path_text(py, option, path),
        Err(error) => Err(replaced(py, error, |_| {
            PyTypeError::new_err(format!("`{option}` must be {rule}, got {}", shown(given)))
        })),
    }
}

/// A model in memory with the tokenizer of another one; `options` may say in which cache that is.
pub(super) fn with_tokenizer_of(
    py: Python<'_>,
    model: MemoryModel,
    path: &str,
    options: &Bound<'_, PyDict>,
) -> PyResult<MemoryModel> {
    let (revision, folder) =
        (argument::<String>(options, "revision")?, argument::<PathBuf>(options, "cache_dir")?);
    model.tokenizer_of(path, revision.as_deref(), folder.as_deref()).map_err(|error| to_python(py, error))
}

/// The chat templates of the model at `path`; `options` may say in which cache that is.
pub(super) fn chat_templates_of(
    py: Python<'_>,
    path: &str,
    options: &Bound<'_, PyDict>,
    tokenizer: &Tokenizer,
) -> PyResult<ChatTemplates> {
    let (revision, folder) =
        (argument::<String>(options, "revision")?, argument::<PathBuf>(options, "cache_dir")?);
    find_chat_templates(path, revision.as_deref(), folder.as_deref(), tokenizer)
        .map_err(|error| to_python(py, error))
}

/// An assistant as it was given.
pub(super) enum GivenAssistant {
    Open(Py<Generator>),
    /// Its folder or Hub id, and how any process names it.
    Path {
        path: String,
        name: String,
    },
}

/// The model that drafts.
pub(super) fn assistant(py: Python<'_>, given: &Bound<'_, PyAny>) -> PyResult<GivenAssistant> {
    if let Ok(generator) = given.cast::<Generator>() {
        return Ok(GivenAssistant::Open(generator.clone().unbind()));
    }
    if given.eq(DRAFT.0)? {
        let path = path_text(py, "assistant", packaged(py, DRAFT.1)?)?;
        return Ok(GivenAssistant::Path { path, name: DRAFT.0.to_owned() });
    }
    let rule =
        "a Generator, a folder, the id of a model in the Hub cache, \"draft\" for the bundled one, or None";
    let path = named("assistant", rule, given)?;
    let name = absolute(&path);
    Ok(GivenAssistant::Path { path, name })
}

/// The folder of the model that comes with the package.
pub(super) fn bundled(py: Python<'_>) -> PyResult<PathBuf> {
    packaged(py, BUNDLED)
}

fn packaged(py: Python<'_>, folder: &str) -> PyResult<PathBuf> {
    let package: PathBuf = py.import("rsgen")?.getattr("__file__")?.extract()?;
    Ok(package.with_file_name(folder))
}

fn path_text(py: Python<'_>, option: &str, path: PathBuf) -> PyResult<String> {
    path.into_os_string().into_string().map_err(|path| not_utf8(py, option, &path.to_string_lossy()))
}

fn not_utf8(py: Python<'_>, option: &str, path: &str) -> PyErr {
    let message =
        format!("the path of `{option}` must be UTF-8, got {path}; rename the folder, or link to it");
    exception(py, ErrorKind::Load, &message)
}
