//! Packs a model: writes its quantized weights as they are in memory, so that opening it only reads them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use super::GeneratorOptions;
use super::loading::load_with;
use super::open::{Checked, Loading};
use rsgen_core::{Error, Result, escape};
use rsgen_kernels::Workers;
use rsgen_kernels::tensor::WeightType;
use rsgen_model::Loaded;
use rsgen_model::weights::{ModelFiles, Weights};

/// The result of packing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PackReport {
    /// The type of the packed weights.
    pub dtype: WeightType,
    /// The bytes of the weight files before.
    pub bytes_before: u64,
    /// The bytes of the packed weight file.
    pub bytes: u64,
}

/// Writes a packed model to `out`, a new folder: [`GeneratorOptions::dtype`] says whether its weights become
/// `int8` or `int4`. The folder opens as any model does, without `dtype`, and gives the same results as the
/// model with that `dtype`. Its layout is described in `docs/packed_models.md`.
///
/// ```no_run
/// use rsgen::{GeneratorOptions, WeightType};
///
/// let options = GeneratorOptions::new().dtype(WeightType::Int4);
/// rsgen::pack("path/to/llama", "llama-int4", &options)?;
/// # Ok::<(), rsgen::Error>(())
/// ```
///
/// # Errors
/// `Config` when `dtype` is another one or `out` is not empty, `Load` when the model cannot be opened or is
/// packed already, `Capacity` when it does not fit into memory; `Load` also when the folder cannot be
/// written.
pub fn pack(model: &str, out: impl AsRef<Path>, options: &GeneratorOptions) -> Result<PackReport> {
    pack_cancellable(model, out.as_ref(), options, &AtomicBool::new(false))
}

/// [`pack`], until `interrupted` returns true.
///
/// # Errors
/// As for [`pack`], and `Cancelled`.
pub fn pack_interruptible(
    model: &str,
    out: impl AsRef<Path>,
    options: &GeneratorOptions,
    interrupted: &mut dyn FnMut() -> bool,
) -> Result<PackReport> {
    let (model, out) = (model.to_owned(), out.as_ref().to_owned());
    load_with(options, interrupted, move |options, cancelled| {
        pack_cancellable(&model, &out, options, cancelled)
    })
}

fn pack_cancellable(
    model: &str,
    out: &Path,
    options: &GeneratorOptions,
    cancelled: &AtomicBool,
) -> Result<PackReport> {
    let dtype = match options.dtype {
        Some(dtype @ (WeightType::Int8 | WeightType::Int4)) => dtype,
        other => {
            let given = other.map_or("nothing".to_owned(), |dtype| format!("\"{dtype}\""));
            return Err(Error::config(format!("must be \"int8\" or \"int4\" to pack a model, got {given}"))
                .about("dtype"));
        }
    };
    refuse_used_folder(out)?;
    let files = ModelFiles::open(model, options.revision.as_deref(), options.cache_dir.as_deref())?;
    let Checked { config, weights, machine, precision, .. } = Checked::new(&files, options, cancelled)?;
    if precision.is_packed {
        return Err(Error::load(format!(
            "{} is packed as {dtype} already; copy the folder",
            escape::name(files.name())
        )));
    }
    let workers = Workers::on(machine.thread_pool(options)?, machine.isa.value);
    let loading = Loading { files: &files, config: &config, weights: &weights, precision };
    let (_, loaded) = loading.run(&workers, options, cancelled)?;

    // A folder that is only half written has another name.
    let partial = partial_name(out);
    let written = write_folder(&partial, &files, &weights, loaded, dtype);
    let renamed = written.and_then(|bytes| {
        if cancelled.load(Ordering::Relaxed) {
            return Err(Error::cancelled());
        }
        let rename = fs::rename(&partial, out).map_err(|error| unwritable(out, error));
        rename.map(|()| PackReport { dtype, bytes_before: weights.data_len(), bytes })
    });
    if renamed.is_err() {
        // What cannot be removed now stays under its name.
        let _ = fs::remove_dir_all(&partial);
    }
    renamed
}

fn refuse_used_folder(out: &Path) -> Result<()> {
    let shown = escape::name(&out.to_string_lossy()).into_owned();
    let is_empty = match out.read_dir() {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    };
    if is_empty {
        return Ok(());
    }
    Err(Error::config(format!("must be a new folder or an empty one, found {shown}; choose another name"))
        .about("out"))
}

/// The folder beside `out` that is written first.
fn partial_name(out: &Path) -> PathBuf {
    let mut name = out.file_name().unwrap_or_default().to_owned();
    name.push(format!(".partial-{}", std::process::id()));
    out.with_file_name(name)
}

fn unwritable(path: &Path, error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::load(format!("{} cannot be written", escape::name(&path.to_string_lossy()))).with_source(error)
}

/// Writes all files of a packed model; returns the bytes of the weights.
fn write_folder(
    folder: &Path,
    files: &ModelFiles,
    weights: &Weights,
    loaded: Loaded,
    dtype: WeightType,
) -> Result<u64> {
    fs::create_dir_all(folder).map_err(|error| unwritable(folder, error))?;
    for (name, text) in files.texts()? {
        let path = folder.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(|error| unwritable(parent, error))?;
        }
        fs::write(&path, text).map_err(|error| unwritable(&path, error))?;
    }
    let Loaded { matrices, tensors, .. } = loaded;
    let path = folder.join("model.safetensors");
    let bytes = weights.write_packed(&path, dtype, matrices, &tensors)?;
    // It was a temporary file, which its owner alone may read.
    let mode = fs::metadata(folder.join("config.json")).map(|config| config.permissions());
    mode.and_then(|mode| fs::set_permissions(&path, mode)).map_err(|error| unwritable(&path, error))?;
    Ok(bytes)
}
