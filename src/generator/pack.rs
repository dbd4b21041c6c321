//! Packs a model: writes its quantized weights as they are in memory, so that opening it only reads them.

use std::borrow::Cow;
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
use rsgen_model::weights::ModelFiles;

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

    let Loaded { matrices, tensors, .. } = loaded;
    let bytes = write_folder(out, &files.texts()?, cancelled, |folder| {
        weights.write_packed(&folder.join("model.safetensors"), dtype, matrices, &tensors)
    })?;
    Ok(PackReport { dtype, bytes_before: weights.data_len(), bytes })
}

pub(super) fn refuse_used_folder(out: &Path) -> Result<()> {
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
pub(super) fn partial_name(out: &Path) -> PathBuf {
    let mut name = out.file_name().unwrap_or_default().to_owned();
    name.push(format!(".partial-{}", std::process::id()));
    out.with_file_name(name)
}

fn unwritable(path: &Path, error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::load(format!("{} cannot be written", escape::name(&path.to_string_lossy()))).with_source(error)
}

/// Writes a model's folder: its texts, and what `write` writes beside them.
pub(super) fn write_folder<T>(
    out: &Path,
    texts: &[(String, Cow<'static, [u8]>)],
    cancelled: &AtomicBool,
    write: impl FnOnce(&Path) -> Result<T>,
) -> Result<T> {
    // A folder that is only half written has another name.
    let partial = &partial_name(out);
    let written = write_files(partial, texts).and_then(|()| write(partial)).and_then(|written| {
        if cancelled.load(Ordering::Relaxed) {
            return Err(Error::cancelled());
        }
        share_files(partial).map_err(|error| unwritable(partial, error))?;
        fs::rename(partial, out).map_err(|error| unwritable(out, error)).map(|()| written)
    });
    if written.is_err() {
        // What cannot be removed now stays under its name.
        let _ = fs::remove_dir_all(partial);
    }
    written
}

fn write_files(folder: &Path, texts: &[(String, Cow<'static, [u8]>)]) -> Result<()> {
    fs::create_dir_all(folder).map_err(|error| unwritable(folder, error))?;
    for (name, text) in texts {
        let path = folder.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(|error| unwritable(parent, error))?;
        }
        fs::write(&path, text).map_err(|error| unwritable(&path, error))?;
    }
    Ok(())
}

/// Gives the weight files, which their library writes for their owner alone, the mode of the other files.
fn share_files(folder: &Path) -> std::io::Result<()> {
    let usual = fs::metadata(folder.join("config.json"))?.permissions();
    for entry in folder.read_dir()? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "safetensors") {
            fs::set_permissions(path, usual.clone())?;
        }
    }
    Ok(())
}
