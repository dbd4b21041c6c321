//! `rsgen.pack`: writes a model with weights of integers.

use std::path::PathBuf;

use pyo3::prelude::*;

use super::errors::guarded;
use super::logging;
use super::options::{self, Options};
use super::progress::Reporter;
use super::signals::interruptible;
use rsgen::generator::pack_interruptible;

/// Writes a model with weights of integers to a new folder, which opens as any model does, without
/// `dtype`, and in the time that reading it takes. It gives the results of the model with that
/// `dtype`.
///
/// Args:
///     model (str | os.PathLike[str] | None): A folder in the Hugging Face layout, or the id of a
///         model in the local Hub cache. None is the story model that comes with the package.
///     out (str | os.PathLike[str]): The folder to write: a new one, or an empty one.
///     dtype (DType): "int8" or "int4".
///     num_threads (int | None): The number of threads, as of a `Generator`.
///     adapter (str | os.PathLike[str] | None): A LoRA adapter to merge before, as of a `Generator`.
///     revision (str | None): A branch, tag or commit in the Hub cache. None is "main".
///     cache_dir (str | os.PathLike[str] | None): The Hub cache. None is that of the environment.
///     progress (Callable[[str, int, int], object] | None): Called in this thread with the stage
///         ("pack"), the bytes of weights done, and all bytes. What it raises ends the packing.
///
/// Returns:
///     int: The bytes of the packed weights.
///
/// Raises:
///     LoadError: The model is missing, damaged, not supported or packed already, or the folder
///         cannot be written.
///     CapacityError: The model does not fit into memory.
///     ConfigError: An argument has a value that is not possible.
///
/// Example:
///     >>> import tempfile
///     >>> folder = tempfile.mkdtemp()
///     >>> size = rsgen.pack(None, folder, dtype="int4")  # the story model
///     >>> gen = rsgen.Generator(folder)
#[pyfunction]
#[pyo3(
    name = "pack",
    signature = (
        model, out, *, dtype, num_threads=None, adapter=None, revision=None, cache_dir=None, progress=None
    ),
    text_signature = "(model, out, *, dtype, num_threads=None, adapter=None, revision=None, cache_dir=None, progress=None)"
)]
#[expect(clippy::too_many_arguments, reason = "they are the keyword arguments of the function")]
pub(super) fn pack(
    py: Python<'_>,
    model: Option<&Bound<'_, PyAny>>,
    out: PathBuf,
    #[pyo3(from_py_with = options::dtype_name)] dtype: Option<String>,
    #[pyo3(from_py_with = options::count)] num_threads: Option<i64>,
    adapter: Option<&Bound<'_, PyAny>>,
    revision: Option<String>,
    cache_dir: Option<PathBuf>,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<u64> {
    guarded(|| {
        logging::install();
        let model = options::model_path(py, "model", model)?;
        let options = Options {
            dtype: options::dtype(py, dtype, None)?,
            num_threads,
            revision,
            cache_dir,
            adapter: adapter.map(|given| options::adapter_path(given)).transpose()?,
            ..Options::default()
        };
        let mut options = options.check(py)?;
        let reporter = progress.map(Reporter::new).transpose()?;
        options.progress = reporter.as_ref().map(Reporter::report);
        let packed = interruptible(py, |interrupted| {
            let mut stopped = || reporter.as_ref().is_some_and(Reporter::has_failed) || interrupted();
            pack_interruptible(&model, out, &options, &mut stopped)
        });
        logging::flush(py);
        Reporter::outcome(reporter, packed).map(|report| report.bytes)
    })
}
