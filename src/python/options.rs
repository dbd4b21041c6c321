//! The keyword arguments that a model is opened with.

use std::path::PathBuf;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyString};

use super::errors::{config_error, exception};
use super::prompts::shown;
use crate::error::ErrorKind;
use crate::generation::config::suggest::suggest;
use crate::generator::{ComputeDtype, DType, GeneratorOptions, KvDtype};
use crate::json;

/// The model that comes with the package, in its folder.
const BUNDLED: &str = "models/story-3m";

/// What a generator can be opened with.
const NAMES: [&str; 10] = [
    "model",
    "dtype",
    "compute_dtype",
    "kv_dtype",
    "num_threads",
    "kv_cache_bytes",
    "local_files_only",
    "revision",
    "generation_config",
    "progress",
];

/// The arguments as they were given.
#[derive(Clone)]
pub(super) struct Options<'a> {
    pub(super) dtype: &'a str,
    pub(super) compute_dtype: &'a str,
    pub(super) kv_dtype: &'a str,
    pub(super) num_threads: Option<i64>,
    pub(super) kv_cache_bytes: Option<i64>,
    pub(super) local_files_only: bool,
    pub(super) revision: Option<String>,
    pub(super) generation_config: &'a str,
}

impl Options<'_> {
    /// Those that are not the default ones, by their names.
    pub(super) fn changed<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let changed = PyDict::new(py);
        let names = [
            ("dtype", self.dtype),
            ("kv_dtype", self.kv_dtype),
            ("generation_config", self.generation_config),
        ];
        for (name, value) in names.into_iter().filter(|(_, value)| *value != "auto") {
            changed.set_item(name, value)?;
        }
        if self.compute_dtype != ComputeDtype::default().name() {
            changed.set_item("compute_dtype", self.compute_dtype)?;
        }
        for (name, value) in [("num_threads", self.num_threads), ("kv_cache_bytes", self.kv_cache_bytes)] {
            if let Some(value) = value {
                changed.set_item(name, value)?;
            }
        }
        if let Some(revision) = &self.revision {
            changed.set_item("revision", revision)?;
        }
        Ok(changed)
    }

    /// The options they mean.
    pub(super) fn check(self, py: Python<'_>) -> PyResult<GeneratorOptions> {
        let names = [DType::F32, DType::Bf16, DType::F16].map(|dtype| (dtype.name(), dtype));
        let dtype = choose(py, "dtype", self.dtype, &names)?;
        let names = [KvDtype::F32, KvDtype::Bf16, KvDtype::I8].map(|dtype| (dtype.as_str(), dtype));
        let kv_dtype = choose(py, "kv_dtype", self.kv_dtype, &names)?;
        let names = [ComputeDtype::F32, ComputeDtype::Bf16].map(|dtype| (dtype.name(), dtype));
        let compute_dtype = one_of(py, "compute_dtype", "", self.compute_dtype, &names)?;
        let names = [("auto", false), ("ignore", true)];
        let ignore_generation_config = one_of(py, "generation_config", "", self.generation_config, &names)?;
        if !self.local_files_only {
            return Err(config_error(
                py,
                "`local_files_only` must be True, because rsgen never downloads; fetch the model first, for example with \
                 `hf download <model>`",
            ));
        }
        Ok(GeneratorOptions {
            dtype,
            compute_dtype,
            kv_dtype,
            num_threads: positive(py, "num_threads", self.num_threads)?,
            kv_cache_bytes: positive(py, "kv_cache_bytes", self.kv_cache_bytes)?,
            revision: self.revision,
            ignore_generation_config,
            ..GeneratorOptions::default()
        })
    }
}

/// A number of threads or bytes, before its range is checked.
pub(super) fn count(given: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
    if given.is_none() {
        return Ok(None);
    }
    if given.is_instance_of::<PyBool>() || !given.hasattr("__index__")? {
        let rule = "must be a whole number, or None to choose by itself";
        return Err(PyTypeError::new_err(format!("{rule}, got {}", shown(given))));
    }
    let out_of_range = |_| {
        let rule = "must be from 1 to 2^63 - 1, or None to choose by itself";
        config_error(given.py(), format!("{rule}, got {}", shown(given)))
    };
    given.extract().map(Some).map_err(out_of_range)
}

/// Refuses keywords that are no options.
pub(super) fn refuse_unknown(unknown: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
    let Some((name, _)) = unknown.and_then(|unknown| unknown.iter().next()) else { return Ok(()) };
    let meant = suggest(&name.to_string(), NAMES.into_iter());
    let meant = meant
        .map_or_else(|| format!("it takes {}", NAMES.join(", ")), |meant| format!("did you mean `{meant}`?"));
    Err(PyTypeError::new_err(format!(
        "Generator() got an unexpected keyword argument {}; {meant}",
        shown(&name)
    )))
}

fn choose<T: Copy>(py: Python<'_>, argument: &str, given: &str, names: &[(&str, T)]) -> PyResult<Option<T>> {
    if given == "auto" {
        return Ok(None);
    }
    one_of(py, argument, "\"auto\" or ", given, names).map(Some)
}

/// The value of that name; `before` is what may be given besides.
fn one_of<T: Copy>(
    py: Python<'_>,
    argument: &str,
    before: &str,
    given: &str,
    names: &[(&str, T)],
) -> PyResult<T> {
    names.iter().find(|(name, _)| *name == given).map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<_> = names.iter().map(|(name, _)| format!("{name:?}")).collect();
        config_error(
            py,
            format!(
                "`{argument}` must be {before}one of {}, got {}",
                names.join(", "),
                json::shown(&given.into())
            ),
        )
    })
}

fn positive(py: Python<'_>, argument: &str, given: Option<i64>) -> PyResult<Option<usize>> {
    let checked = given.map(|given| usize::try_from(given).ok().filter(|&given| given > 0).ok_or(given));
    checked.transpose().map_err(|given| {
        config_error(py, format!("`{argument}` must be 1 or more, got {given}; None chooses by itself"))
    })
}

/// The folder or Hub id that names the model; that of the bundled one for `None`.
pub(super) fn model_path(py: Python<'_>, model: Option<&Bound<'_, PyAny>>) -> PyResult<String> {
    let Some(model) = model else { return path_text(py, bundled(py)?) };
    if let Ok(name) = model.cast::<PyString>() {
        return name.extract();
    }
    match model.extract() {
        Ok(path) => path_text(py, path),
        Err(_) => Err(PyTypeError::new_err(format!(
            "`model` must be a folder, the id of a model in the Hub cache, or None for the bundled one, got {}",
            shown(model)
        ))),
    }
}

/// The folder of the model that comes with the package.
pub(super) fn bundled(py: Python<'_>) -> PyResult<PathBuf> {
    let package: PathBuf = py.import("rsgen")?.getattr("__file__")?.extract()?;
    Ok(package.with_file_name(BUNDLED))
}

fn path_text(py: Python<'_>, path: PathBuf) -> PyResult<String> {
    path.into_os_string().into_string().map_err(|path| {
        exception(py, ErrorKind::Load, format!("the path of a model must be UTF-8, got {}", path.display()))
    })
}
