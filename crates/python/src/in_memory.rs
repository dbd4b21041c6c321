//! Models in memory: `Generator.from_tensors`.
//!
//! Tensors stay with Python and are copied in parts while the model is loaded, by threads that attach for
//! each part. `rsgen._tensors` says what can be one.

use std::borrow::Cow;
use std::io::{Read, Write as _};
use std::path::PathBuf;

use numpy::{PyArray1, PyArrayMethods as _};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

use super::config;
use super::errors::{exception, guarded};
use super::exit::attached;
use super::generator::Generator;
use super::options;
use super::prompts::string;
use super::tokenizer::Tokenizer;
use rsgen::generator::{DType, MemoryModel, TensorInfo, TensorSource};
use rsgen_core::error::{Error, ErrorKind, Result};
use rsgen_core::files::{open_regular, replace};
use rsgen_model::weights::MAX_TEXT_BYTES;

/// What `from_tensors` hands to the constructor of the class.
#[pyclass(module = "rsgen", frozen)]
pub(super) struct ModelInMemory(pub(super) MemoryModel);

/// A file's name and its contents.
type File = (String, Vec<u8>);

/// The tensors of a mapping.
struct PythonTensors {
    infos: Vec<TensorInfo>,
    /// Their bytes.
    arrays: Vec<Py<PyArray1<u8>>>,
}

impl PythonTensors {
    fn new(given: &Bound<'_, PyAny>) -> PyResult<Self> {
        let found = given.py().import("rsgen._tensors")?.getattr("tensors")?.call1((given,))?;
        let (mut infos, mut arrays) = (Vec::new(), Vec::new());
        for item in found.try_iter()? {
            let (name, dtype, shape, bytes): (String, String, Vec<usize>, Py<PyArray1<u8>>) =
                item?.extract()?;
            let known = [DType::F32, DType::Bf16, DType::F16].into_iter().find(|known| known.name() == dtype);
            infos.push(match known {
                Some(dtype) => TensorInfo::new(name, dtype, shape),
                None => TensorInfo::of_other_type(name, dtype, shape),
            });
            arrays.push(bytes);
        }
        Ok(Self { infos, arrays })
    }
}

impl TensorSource for PythonTensors {
    fn tensors(&self) -> Vec<TensorInfo> {
        self.infos.clone()
    }

    fn read(&self, index: usize, start: usize, out: &mut [u8]) -> Result<()> {
        let changed =
            || Error::load("the tensors must stay as they are while they are read, but one has changed");
        let copied = attached(|py| {
            let array = self.arrays[index].bind(py).try_readonly().map_err(|_| changed())?;
            let bytes = array.as_slice().map_err(|_| changed())?;
            let end = start.checked_add(out.len());
            out.copy_from_slice(end.and_then(|end| bytes.get(start..end)).ok_or_else(changed)?);
            Ok(())
        });
        copied.unwrap_or_else(|| Err(Error::cancelled()))
    }
}

/// Reads a file that a caller names, within the limits of those of a folder.
///
/// Args:
///     path (str | os.PathLike[str]): The file.
///
/// Returns:
///     bytes: Its contents.
///
/// Raises:
///     LoadError: It cannot be read, is too large, or is a pipe or a device.
#[guarded]
#[pyfunction]
#[pyo3(name = "_read_file", signature = (path))]
pub(super) fn read_file(py: Python<'_>, path: PathBuf) -> PyResult<Cow<'static, [u8]>> {
    let shown = path.display().to_string();
    let read = py.detach(|| {
        let mut bytes = Vec::new();
        // One byte more tells a file that is too large, whatever its length is said to be.
        open_regular(&path)?.take(MAX_TEXT_BYTES as u64 + 1).read_to_end(&mut bytes).map(|_| bytes)
    });
    let cannot = match read {
        Ok(bytes) if bytes.len() <= MAX_TEXT_BYTES => return Ok(Cow::Owned(bytes)),
        Ok(_) => format!("it may have at most {MAX_TEXT_BYTES} bytes"),
        Err(error) => error.to_string(),
    };
    Err(exception(py, ErrorKind::Load, format!("{shown} cannot be read: {cannot}; give the path of a file")))
}

/// Writes a file as a whole: whatever ends the process, it holds what it held before or the new contents.
///
/// Args:
///     path (str | os.PathLike[str]): The file.
///     content (bytes): Its contents.
///
/// Raises:
///     OSError: It cannot be written.
#[guarded]
#[pyfunction]
#[pyo3(name = "_replace_file", signature = (path, content))]
pub(super) fn replace_file(py: Python<'_>, path: PathBuf, content: &[u8]) -> PyResult<()> {
    Ok(py.detach(|| replace(&path, |file| file.write_all(content)))?)
}

#[guarded]
#[pymethods]
impl Generator {
    /// Opens a model that is in memory; no file is written.
    ///
    /// The tensors are copied in parts while they are packed, so they may change afterwards. A
    /// generator of this kind cannot be pickled. All other arguments are the options of `Generator()`.
    ///
    /// Args:
    ///     config (Any): The `config.json`: a mapping, its text, its path, or the `config` of a model
    ///         of transformers.
    ///     tensors (Mapping[str, Any]): Tensors by the names of a checkpoint, such as the
    ///         `state_dict()` of a model of transformers: numpy arrays, or anything with DLPack or
    ///         the buffer protocol, in float32, bfloat16 or float16. Those with gaps are copied.
    ///     tokenizer (Any): A folder or Hub id, the path of a `tokenizer.json`, an
    ///         `rsgen.Tokenizer`, a fast tokenizer of transformers, or None: prompts are ids then.
    ///     generation_config (AnyGenerationConfig | str | None): The defaults of calls, as a folder
    ///         has them in `generation_config.json`. None takes the generation fields of `config`.
    ///
    /// Returns:
    ///     Self: The generator.
    ///
    /// Raises:
    ///     LoadError: A tensor is missing, or of another shape or type.
    ///
    /// Example:
    ///     gen = rsgen.Generator.from_tensors(model.config, model.state_dict(), tokenizer)
    #[classmethod]
    #[pyo3(
        signature = (config, tensors, tokenizer=None, *, generation_config=None, **options),
        text_signature = "($cls, config, tensors, tokenizer=None, *, generation_config=None, dtype='auto', \
                          compute_dtype='float32', kv_dtype='auto', num_threads=None, assistant=None, adapter=None, \
                          kv_cache_bytes=None, prefix_caching=True, local_files_only=True, revision=None, \
                          cache_dir=None, torch_dtype=None, progress=None)"
    )]
    fn from_tensors<'py>(
        class: &Bound<'py, PyType>,
        config: &Bound<'py, PyAny>,
        tensors: &Bound<'py, PyAny>,
        tokenizer: Option<&Bound<'py, PyAny>>,
        generation_config: Option<&Bound<'py, PyAny>>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = class.py();
        let options = options.map_or_else(|| Ok(PyDict::new(py)), pyo3::types::PyDictMethods::copy)?;
        let python = py.import("rsgen._tensors")?;
        let text = string(&python.getattr("config_text")?.call1((config,))?)?;
        let mut model = MemoryModel::new(text, PythonTensors::new(tensors)?);
        match generation_config {
            Some(given) if given.is_instance_of::<pyo3::types::PyString>() => {
                options.set_item("generation_config", given)?;
            }
            Some(given) => {
                let fields = config::passed(given)?.to_json();
                model = model.file("generation_config.json", serde_json::Value::Object(fields).to_string());
            }
            None => {}
        }
        if let Some(own) = tokenizer.and_then(|given| given.cast::<Tokenizer>().ok()) {
            model = own.get().add_files_to(py, model)?;
        } else if let Some(given) = tokenizer {
            let files = python.getattr("tokenizer_files")?.call1((given,))?;
            let (folder, files): (Option<String>, Vec<File>) = files.extract()?;
            model = files.into_iter().fold(model, |model, (name, text)| model.file(name, text));
            if let Some(folder) = folder {
                model = options::with_tokenizer_of(py, model, &folder, &options)?;
            }
        }
        class.call((Py::new(py, ModelInMemory(model))?,), Some(&options))
    }
}
