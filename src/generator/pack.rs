//! Packs a model: writes its weights as they are in memory, so that opening it takes no more than reading them.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use safetensors::tensor::{Dtype, View, serialize_to_file};

use super::GeneratorOptions;
use super::loading::load;
use super::open::{Checked, Loading};
use crate::error::{Error, Result, ResultExt as _};
use crate::escape;
use crate::kernels::{ThreadPool, Workers};
use crate::model::Loaded;
use crate::quant::PackedMatrix;
use crate::tensor::{DType, WeightType};
use crate::weights::{ModelFiles, TensorView, Weights, packed_metadata, packed_name};

/// What was packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PackReport {
    /// The bytes of the weight files before.
    pub bytes_before: u64,
    /// The bytes of the packed weight file.
    pub bytes: u64,
}

/// Writes a packed model to `out`, a new folder: [`GeneratorOptions::dtype`] says whether its weights become `int8` or `int4`.
/// The folder opens as any model does, without `dtype`, and gives the same results as the model with that `dtype`. Its layout
/// is described in `docs/packed_models.md`.
///
/// ```no_run
/// use rsgen::{GeneratorOptions, WeightType};
///
/// let options = GeneratorOptions { dtype: Some(WeightType::Int4), ..GeneratorOptions::default() };
/// rsgen::pack("path/to/llama", "llama-int4", &options)?;
/// # Ok::<(), rsgen::Error>(())
/// ```
///
/// # Errors
/// `Config` when `dtype` is another one or `out` is not empty, `Load` when the model cannot be opened or is packed already,
/// `Capacity` when it does not fit into memory; `Load` also when the folder cannot be written.
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
    let mut packing_options = options.without_progress();
    let report = |progress| {
        if let Some(report) = &options.progress {
            report(progress);
        }
    };
    load(interrupted, &report, move |cancelled, sender| {
        packing_options.progress = Some(Box::new(move |progress| {
            // The receiver is gone when the caller has returned.
            let _ = sender.send(progress);
        }));
        pack_cancellable(&model, &out, &packing_options, cancelled)
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
            return Err(Error::config(format!(
                "`dtype` must be \"int8\" or \"int4\" to pack a model, got {given}"
            )));
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
    let pool = match &options.thread_pool {
        Some(pool) => pool.clone(),
        None => ThreadPool::new(machine.num_threads.value)?,
    };
    let workers = Workers::on(pool, machine.isa.value);
    let loading = Loading { files: &files, config: &config, weights: &weights, precision };
    let (model, loaded) = loading.run(&workers, options, cancelled, Some(Loaded::default()))?;
    drop(model);
    let loaded = loaded.loaded.unwrap_or_default();

    // A folder that is only half written has another name.
    let partial = partial_name(out);
    let written = write_folder(&partial, &files, &weights, loaded, dtype);
    let renamed = written.and_then(|bytes| {
        if cancelled.load(Ordering::Relaxed) {
            return Err(Error::cancelled());
        }
        let rename = fs::rename(&partial, out).map_err(|error| unwritable(out, error));
        rename.map(|()| PackReport { bytes_before: weights.data_len(), bytes })
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
    Err(Error::config(format!(
        "`out` must be a new folder or an empty one, found {shown}; choose another name"
    )))
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
    let unread = RefCell::new(None);
    let mut tensors = Vec::new();
    for (parts, matrix) in loaded.matrices {
        tensors.push((packed_name(&parts), Item::matrix(matrix)?));
    }
    for name in &loaded.tensors {
        if let Some(view) = weights.tensor(name)? {
            tensors.push((name.clone(), Item::Tensor { view, unread: &unread }));
        }
    }
    let path = folder.join("model.safetensors");
    let bytes = tensors.iter().map(|(_, item)| item.data_len() as u64).sum();
    serialize_to_file(tensors, Some(packed_metadata(dtype)), &path)
        .map_err(|error| unwritable(&path, error))?;
    unread.into_inner().map_or(Ok(bytes), Err)
}

/// A tensor of the packed file.
enum Item<'a> {
    Matrix {
        matrix: PackedMatrix,
        shape: [usize; 3],
    },
    /// As it is stored. The library has no way to say that it cannot be read.
    Tensor {
        view: TensorView<'a>,
        unread: &'a RefCell<Option<Error>>,
    },
}

impl Item<'_> {
    fn matrix(matrix: PackedMatrix) -> Result<Self> {
        let shape = matrix.packed_shape().ok_or_else(|| Error::internal("a packed matrix has a shape"))?;
        Ok(Self::Matrix { matrix, shape })
    }
}

impl View for Item<'_> {
    fn dtype(&self) -> Dtype {
        match self {
            Self::Matrix { .. } => Dtype::U8,
            Self::Tensor { view, .. } => match view.dtype {
                DType::F32 => Dtype::F32,
                DType::Bf16 => Dtype::BF16,
                DType::F16 => Dtype::F16,
            },
        }
    }

    fn shape(&self) -> &[usize] {
        match self {
            Self::Matrix { shape, .. } => shape,
            Self::Tensor { view, .. } => view.shape,
        }
    }

    fn data(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Matrix { matrix, .. } => matrix.to_file().into(),
            Self::Tensor { view, unread } => match view.bytes.to_vec().context(|| view.name.to_owned()) {
                Ok(bytes) => bytes.into(),
                Err(error) => {
                    unread.replace(Some(error));
                    vec![0; view.bytes.len()].into()
                }
            },
        }
    }

    fn data_len(&self) -> usize {
        match self {
            Self::Matrix { shape, .. } => shape.iter().product(),
            Self::Tensor { view, .. } => view.bytes.len(),
        }
    }
}
