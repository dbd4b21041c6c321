//! The keyword arguments that a model is opened with.

use std::path::{Path, PathBuf};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyString};

use super::errors::{config_error, exception, guarded, replaced, to_python};
use super::generator::Generator;
use super::pickle;
use super::prompts::{shown, string};
use rsgen::generator::choices::{self, ModelDefaults};
use rsgen::generator::{ComputeDtype, GeneratorOptions, MemoryModel};
use rsgen_core::error::ErrorKind;
use rsgen_generation::config::suggest;

/// The model that comes with the package, in its folder.
const BUNDLED: &str = "models/story-3m";

/// The name of the bundled assistant, and its folder.
const DRAFT: (&str, &str) = ("draft", "models/story-draft");

/// What a generator can be opened with.
pub(super) const NAMES: [&str; 15] = [
    "model",
    "dtype",
    "torch_dtype",
    "compute_dtype",
    "kv_dtype",
    "num_threads",
    "assistant",
    "adapter",
    "kv_cache_bytes",
    "prefix_caching",
    "local_files_only",
    "revision",
    "cache_dir",
    "generation_config",
    "progress",
];

/// Arguments of transformers' `from_pretrained` that have no counterpart: the values that ask for nothing, as
/// Python writes them, and what to do instead of others.
const FOREIGN: &[(&str, &[&str], &str)] = &[
    ("load_in_8bit", &["False", "None"], SMALLER),
    ("load_in_4bit", &["False", "None"], SMALLER),
    ("quantization_config", &["None"], SMALLER),
    ("device", &["None", "'cpu'", "device(type='cpu')"], "rsgen computes on CPUs alone"),
    ("device_map", &["None", "'cpu'", "'auto'", "{'': 'cpu'}"], "rsgen computes on CPUs alone"),
    (
        "attn_implementation",
        &["None", "'eager'", "'sdpa'"],
        "rsgen has its own attention, in float32 or bfloat16",
    ),
    ("low_cpu_mem_usage", &["None", "False", "True"], "loading needs no copy of the weights"),
    ("use_safetensors", &["None", "True"], "rsgen reads safetensors alone; convert the model"),
    ("use_fast", &["None", "False", "True"], "there is a single tokenizer"),
    ("trust_remote_code", &["None", "False"], "rsgen never runs code of a model's folder"),
    ("force_download", &["None", "False"], "rsgen never downloads; use `hf download <model>`"),
    ("token", &["None", "False"], "rsgen never downloads; use `hf download <model> --token …`"),
    ("subfolder", &["None", "''"], "give the path of the folder"),
];

const SMALLER: &str = "weights become integers while they are loaded: dtype=\"int8\" or dtype=\"int4\"";

/// The arguments as they were given.
#[derive(Clone)]
pub(super) struct Options {
    pub(super) dtype: String,
    pub(super) compute_dtype: String,
    pub(super) kv_dtype: String,
    pub(super) num_threads: Option<i64>,
    pub(super) kv_cache_bytes: Option<i64>,
    pub(super) prefix_caching: bool,
    pub(super) local_files_only: bool,
    pub(super) revision: Option<String>,
    pub(super) cache_dir: Option<PathBuf>,
    pub(super) generation_config: String,
    pub(super) adapter: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            dtype: "auto".to_owned(),
            compute_dtype: ComputeDtype::default().name().to_owned(),
            kv_dtype: "auto".to_owned(),
            num_threads: None,
            kv_cache_bytes: None,
            prefix_caching: true,
            local_files_only: true,
            revision: None,
            cache_dir: None,
            generation_config: "auto".to_owned(),
            adapter: None,
        }
    }
}

impl Options {
    /// Those that are not the default ones, by their names.
    pub(super) fn changed<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (changed, default) = (PyDict::new(py), Self::default());
        for (name, value, default) in [
            ("dtype", &self.dtype, &default.dtype),
            ("compute_dtype", &self.compute_dtype, &default.compute_dtype),
            ("kv_dtype", &self.kv_dtype, &default.kv_dtype),
            ("generation_config", &self.generation_config, &default.generation_config),
        ] {
            if value != default {
                changed.set_item(name, value)?;
            }
        }
        for (name, value) in [("num_threads", self.num_threads), ("kv_cache_bytes", self.kv_cache_bytes)] {
            if let Some(value) = value {
                changed.set_item(name, value)?;
            }
        }
        if !self.prefix_caching {
            changed.set_item("prefix_caching", false)?;
        }
        if let Some(adapter) = &self.adapter {
            changed.set_item("adapter", pickle::absolute(adapter))?;
        }
        if let Some(revision) = &self.revision {
            changed.set_item("revision", revision)?;
        }
        if let Some(folder) = &self.cache_dir {
            // Another process may be in another folder.
            let absolute = std::path::absolute(folder);
            changed.set_item(
                "cache_dir",
                path_text(py, "cache_dir", absolute.unwrap_or_else(|_| folder.clone()))?,
            )?;
        }
        Ok(changed)
    }

    /// The options they mean.
    pub(super) fn check(self, py: Python<'_>) -> PyResult<GeneratorOptions> {
        if !self.local_files_only {
            return Err(config_error(
                py,
                "`local_files_only` must be True, because rsgen never downloads; fetch the model first, for example with \
                 `hf download <model>`",
            ));
        }
        let chosen = |error| to_python(py, error);
        let defaults = choices::GENERATION_CONFIG.parse(&self.generation_config).map_err(chosen)?;
        Ok(GeneratorOptions::new()
            .dtype(choices::DTYPE.parse(&self.dtype).map_err(chosen)?)
            .compute_dtype(choices::COMPUTE_DTYPE.parse(&self.compute_dtype).map_err(chosen)?)
            .kv_dtype(choices::KV_DTYPE.parse(&self.kv_dtype).map_err(chosen)?)
            .num_threads(positive(py, "num_threads", self.num_threads)?)
            .kv_cache_bytes(positive(py, "kv_cache_bytes", self.kv_cache_bytes)?)
            .prefix_caching(self.prefix_caching)
            .revision(self.revision)
            .cache_dir(self.cache_dir)
            .ignore_generation_config(defaults == ModelDefaults::Ignore)
            .adapter(self.adapter))
    }
}

/// The name of a type of numbers: itself, or that of one of torch's or numpy's types.
pub(super) fn dtype_name(given: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    guarded(|| name_of_dtype(given))
}

fn name_of_dtype(given: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    if given.is_none() || given.is_instance_of::<PyString>() {
        return given.extract();
    }
    let class = given.get_type().name()?.to_string_lossy().to_lowercase();
    let name = match given.getattr_opt("__name__")? {
        Some(name) => Some(string(&name)?),
        None if class.ends_with("dtype") => Some(string(given)?),
        None => None,
    };
    let name = name.ok_or_else(|| {
        let rule = "must be the name of a type, such as \"bfloat16\", or a type of torch or numpy";
        PyTypeError::new_err(format!("{rule}, got {}", shown(given)))
    })?;
    Ok(Some(name.strip_prefix("torch.").unwrap_or(&name).to_owned()))
}

/// `dtype`, of which `torch_dtype` is the older name.
pub(super) fn dtype(py: Python<'_>, dtype: Option<String>, torch_dtype: Option<String>) -> PyResult<String> {
    match (dtype, torch_dtype) {
        (Some(dtype), Some(other)) if dtype != other => Err(config_error(
            py,
            format!("`dtype` and `torch_dtype` are one option, got {dtype:?} and {other:?}; leave one out"),
        )),
        (None, Some(other)) => {
            let chosen = choices::DTYPE.called("torch_dtype").parse(&other);
            chosen.map(|_| other).map_err(|error| to_python(py, error))
        }
        (dtype, _) => Ok(dtype.unwrap_or_else(|| Options::default().dtype)),
    }
}

/// A number of threads or bytes, before its range is checked.
pub(super) fn count(given: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
    guarded(|| whole_number(given))
}

fn whole_number(given: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
    if given.is_none() {
        return Ok(None);
    }
    if given.is_instance_of::<PyBool>() || !given.hasattr("__index__")? {
        let rule = "must be a whole number, or None to choose by itself";
        return Err(PyTypeError::new_err(format!("{rule}, got {}", shown(given))));
    }
    let out_of_range = |_: &PyErr| {
        let rule = "must be from 1 to 2^63 - 1, or None to choose by itself";
        config_error(given.py(), format!("{rule}, got {}", shown(given)))
    };
    given.extract().map(Some).map_err(|error| replaced(given.py(), error, out_of_range))
}

/// Refuses keywords of the class that are no options; those of transformers that ask for nothing are taken.
pub(super) fn refuse_unknown(
    class: &str,
    names: &[&'static str],
    unknown: Option<&Bound<'_, PyDict>>,
) -> PyResult<()> {
    for (name, value) in unknown.into_iter().flatten() {
        let text = string(&name)?;
        if let Some((name, neutral, remedy)) = FOREIGN.iter().find(|(known, ..)| *known == text) {
            if neutral.contains(&value.repr()?.to_string_lossy().as_ref()) {
                continue;
            }
            let neutral = neutral.join(" or ");
            let given = shown(&value);
            return Err(config_error(
                value.py(),
                format!("`{name}` must be {neutral}, or left out, got {given}; {remedy}"),
            ));
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

fn positive(py: Python<'_>, argument: &str, given: Option<i64>) -> PyResult<Option<usize>> {
    let checked = given.map(|given| usize::try_from(given).ok().filter(|&given| given > 0).ok_or(given));
    checked.transpose().map_err(|given| {
        config_error(py, format!("`{argument}` must be 1 or more, got {given}; None chooses by itself"))
    })
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

/// The folder or Hub id of an adapter.
pub(super) fn adapter_path(given: &Bound<'_, PyAny>) -> PyResult<String> {
    named("adapter", "the folder of a LoRA adapter, its id in the Hub cache, or None", given)
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
    let option = |name: &str| {
        let given = options.get_item(name)?.filter(|given| !given.is_none());
        given.map(|given| given.extract::<PathBuf>()).transpose()
    };
    let (revision, cache_dir) = (option("revision")?, option("cache_dir")?);
    let revision = revision.as_deref().and_then(Path::to_str);
    model.tokenizer_of(path, revision, cache_dir.as_deref()).map_err(|error| to_python(py, error))
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
    let name = pickle::absolute(&path);
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
