//! `rsgen.pack`: quantizes a model once.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::errors::guarded;
use super::logging;
use super::options;
use super::progress::Reporter;
use super::signals::interruptible;
use rsgen::generator::pack_interruptible;

/// The keyword arguments.
const NAMES: [&str; 6] = ["dtype", "num_threads", "adapter", "revision", "cache_dir", "progress"];

/// Quantizes a model and writes it to a new folder.
///
/// The folder opens as any model does, without `dtype`, and as fast as it can be read. The results are
/// those of the original model with that `dtype`.
///
/// Args:
///     model (str | os.PathLike[str] | None): A folder in the Hugging Face layout, a GGUF file, or the id
///         of a model in the local Hub cache. None is the bundled story model.
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
#[guarded]
#[pyfunction]
#[pyo3(
    name = "pack",
    signature = (model, out, *, dtype, **options),
    text_signature = "(model, out, *, dtype, num_threads=None, adapter=None, revision=None, cache_dir=None, progress=None)"
)]
pub(super) fn pack(
    py: Python<'_>,
    model: Option<&Bound<'_, PyAny>>,
    out: PathBuf,
    dtype: &Bound<'_, PyAny>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<u64> {
    logging::install();
    let model = options::model_path(py, "model", model)?;
    let given = options.map_or_else(|| PyDict::new(py), Bound::clone);
    given.set_item("dtype", dtype)?;
    let (mut options, _) = options::read(py, "pack", &NAMES, Some(&given))?;
    let reporter = given.get_item("progress")?.filter(|given| !given.is_none());
    let reporter = reporter.as_ref().map(Reporter::new).transpose()?;
    options.progress = reporter.as_ref().map(Reporter::report);
    let packed = interruptible(py, |interrupted| {
        let mut stopped = || reporter.as_ref().is_some_and(Reporter::has_failed) || interrupted();
        pack_interruptible(&model, out, &options, &mut stopped)
    });
    logging::flush(py);
    Reporter::outcome(reporter, packed).map(|report| report.bytes)
}
