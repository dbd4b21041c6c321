//! Converts a model: writes the tensors of its `pytorch_model.bin` as safetensors, beside its other files.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use serde_json::Value;

use super::GeneratorOptions;
use super::loading::load_with;
use super::pack::{refuse_used_folder, write_folder};
use rsgen_core::error::Result;
use rsgen_model::SUPPORTED_ARCHITECTURES;
use rsgen_model::weights::{MAX_TEXT_BYTES, ModelConfig, ModelFiles, Weights, read_object};

/// Other files of tokenizers, which rsgen does not read itself.
const OTHER_TEXTS: [&str; 1] = ["vocab.txt"];

/// The result of converting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConvertReport {
    /// How many weight files were written.
    pub num_files: usize,
    /// The bytes of their tensors.
    pub bytes: u64,
}

/// Writes a model with safetensors to `out`, a new folder, in place of its `pytorch_model.bin`: one file for
/// each, with an index if there are several. Tensors are as they were; of one that is tied to another, only
/// the first is written. One tensor is in memory at a time.
///
/// ```no_run
/// rsgen::convert("path/to/opt", "opt-safetensors")?;
/// # Ok::<(), rsgen::Error>(())
/// ```
///
/// # Errors
/// `Config` when `out` is not empty; `Load` when the model has no `pytorch_model.bin` or it is damaged, and
/// when the folder cannot be written.
pub fn convert(model: &str, out: impl AsRef<Path>) -> Result<ConvertReport> {
    convert_cancellable(model, out.as_ref(), &AtomicBool::new(false))
}

/// [`convert`], until `interrupted` returns true.
///
/// # Errors
/// As for [`convert`], and `Cancelled`.
pub fn convert_interruptible(
    model: &str,
    out: impl AsRef<Path>,
    interrupted: &mut dyn FnMut() -> bool,
) -> Result<ConvertReport> {
    let (model, out) = (model.to_owned(), out.as_ref().to_owned());
    load_with(&GeneratorOptions::default(), interrupted, move |_, cancelled| {
        convert_cancellable(&model, &out, cancelled)
    })
}

fn convert_cancellable(model: &str, out: &Path, cancelled: &AtomicBool) -> Result<ConvertReport> {
    refuse_used_folder(out)?;
    let files = ModelFiles::open(model, None, None)?;
    let text = files.config()?;
    let config = read_object("config.json", &text, MAX_TEXT_BYTES)?;
    let is_tied = match ModelConfig::from_json(&text, SUPPORTED_ARCHITECTURES) {
        Ok(config) => config.tie_word_embeddings,
        Err(_) => config.get("tie_word_embeddings") == Some(&Value::Bool(true)),
    };
    let weights = Weights::open(&files)?;
    let mut texts = files.texts()?;
    for name in OTHER_TEXTS {
        texts.extend(files.read_optional(name)?.map(|text| (name.to_owned(), text)));
    }
    let write = |folder: &Path| weights.write_safetensors(folder, is_tied, cancelled);
    let (num_files, bytes) = write_folder(out, &texts, cancelled, write)?;
    Ok(ConvertReport { num_files, bytes })
}
