//! Converts a model: writes the tensors of its `pytorch_model.bin` or GGUF files as safetensors, beside its other files.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use serde_json::Value;

use super::GeneratorOptions;
use super::loading::load_with;
use super::pack::{refuse_used_folder, write_folder};
use rsgen_core::error::{Error, Result};
use rsgen_core::escape;
use rsgen_model::SUPPORTED_ARCHITECTURES;
use rsgen_model::weights::{MAX_TEXT_BYTES, ModelConfig, ModelFiles, Weights, read_object};

/// Models whose experts transformers keeps in stacks, and GGUF files in others.
const STACKED: [&str; 4] = ["gpt_oss", "granitemoe", "granitemoehybrid", "granitemoeshared"];
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
/// Of a GGUF file the configuration and the tokenizer become files as well. F32, F16 and BF16 tensors keep
/// their bits, and blocks become the float32 numbers that they stand for, so that no weight changes.
///
/// ```no_run
/// rsgen::convert("path/to/opt", "opt-safetensors")?;
/// # Ok::<(), rsgen::Error>(())
/// ```
///
/// # Errors
/// `Config` when `out` is not empty; `Load` when the model has neither a `pytorch_model.bin` nor GGUF files
/// or they are damaged, and when the folder cannot be written.
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
    let weights = Weights::open_stored(&files)?;
    let model_type = config.get("model_type").and_then(Value::as_str).unwrap_or_default();
    if files.is_gguf() && STACKED.contains(&model_type) {
        return Err(Error::load(format!(
            "{}: the experts of {model_type} are stored one by one, and transformers has them in stacks; open the file as it is",
            escape::name(files.name())
        )));
    }
    let mut texts = files.texts()?;
    for name in OTHER_TEXTS {
        texts.extend(files.read_optional(name)?.map(|text| (name.to_owned(), text)));
    }
    let write = |folder: &Path| weights.write_safetensors(folder, is_tied, cancelled);
    let (num_files, bytes) = write_folder(out, &texts, cancelled, write)?;
    Ok(ConvertReport { num_files, bytes })
}
