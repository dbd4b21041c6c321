//! Converts a model: writes the tensors of its `pytorch_model.bin` or GGUF files as safetensors, beside its other files,
//! or the whole model as a GGUF file.

use std::borrow::Cow;
use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use serde_json::Value;

use super::GeneratorOptions;
use super::loading::load_with;
use super::open::open_tokenizer;
use super::pack::{partial_name, refuse_used_folder, write_folder};
use rsgen_core::error::{Error, Result};
use rsgen_core::escape;
use rsgen_core::types::TokenId;
use rsgen_model::weights::{GgufPlan, MAX_TEXT_BYTES, ModelConfig, ModelFiles, Weights, read_object};
use rsgen_model::{SUPPORTED_ARCHITECTURES, has_stacked_experts, tensor_names};
use rsgen_text::Tokenizer;

/// Other files of tokenizers, which rsgen does not read itself.
const OTHER_TEXTS: [&str; 1] = ["vocab.txt"];

/// How the name of a GGUF file ends.
const GGUF: &str = "gguf";
/// Texts that tell tokenizers apart: words, digits, contractions, spaces, scripts, and what normalizers change.
const PROBES: [&str; 12] = [
    "Once upon a time, there was a little girl named Lily.",
    "It's 12345 o'clock; we'll see THEM'LL it'S 3.14159, 1,000,000!",
    "  two  spaces\tand\ttabs \n\n new\r\nlines   \n  end  ",
    "Straße, naïve, e\u{301}tude, Ａｆｕｌｌ ﬁne, İstanbul",
    "你好，世界。こんにちは世界 안녕하세요 สวัสดี",
    "मेरा नाम रस्ट है مرحبا بالعالم שלום",
    "let x = foo_bar(&mut y)?; // camelCase HTTPServer v2.0\n\tif (a!=b) { return [0]; }",
    "👩‍👩‍👧 🏳️‍🌈 \u{200b}zero\u{a0}width",
    "...!!! --- ??? ((())) $$$ /path/to/file.txt user@example.com",
    " leading, trailing ",
    "",
    "a",
];

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
/// Where the name of `out` ends in `.gguf`, a folder becomes a GGUF file instead, with its configuration, tokenizer
/// and chat templates. What such files cannot state is refused before anything is written.
///
/// ```no_run
/// rsgen::convert("path/to/opt", "opt-safetensors")?;
/// # Ok::<(), rsgen::Error>(())
/// ```
///
/// # Errors
/// `Config` when `out` is not empty; `Load` when the model has neither a `pytorch_model.bin` nor GGUF files
/// or they are damaged, when a GGUF file would not be the same model, and when the folder or the file cannot be
/// written.
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
    if out.extension().is_some_and(|ending| ending == GGUF) && !out.is_dir() {
        return write_gguf(model, out, cancelled);
    }
    refuse_used_folder(out)?;
    let files = ModelFiles::open(model, None, None)?;
    let text = files.config()?;
    let config = read_object("config.json", &text, MAX_TEXT_BYTES)?;
    let known = ModelConfig::from_json(&text, SUPPORTED_ARCHITECTURES);
    let is_tied = match &known {
        Ok(config) => config.tie_word_embeddings,
        Err(_) => config.get("tie_word_embeddings") == Some(&Value::Bool(true)),
    };
    let mut weights = Weights::open_stored(&files)?;
    if let (Ok(known), true) = (&known, files.is_gguf()) {
        weights.set_family(tensor_names(known)?);
        if has_stacked_experts(known)? {
            return Err(Error::load(format!(
                "{}: the experts of {} are stored one by one, and transformers has them in stacks; open the file as it is",
                escape::name(files.name()),
                known.model_type
            )));
        }
    }
    let mut texts = files.texts()?;
    for name in OTHER_TEXTS {
        texts.extend(files.read_optional(name)?.map(|text| (name.to_owned(), text)));
    }
    let write = |folder: &Path| weights.write_safetensors(folder, is_tied, cancelled);
    let (num_files, bytes) = write_folder(out, &texts, cancelled, write)?;
    Ok(ConvertReport { num_files, bytes })
}

fn write_gguf(model: &str, out: &Path, cancelled: &AtomicBool) -> Result<ConvertReport> {
    let shown = escape::name(&out.to_string_lossy()).into_owned();
    if out.exists() {
        return Err(Error::config(format!(
            "must be the name of a new file, found {shown}; choose another name"
        ))
        .about("out"));
    }
    let files = ModelFiles::open(model, None, None)?;
    if files.is_gguf() {
        return Err(Error::load(format!("{} is a GGUF file already; copy it", escape::name(files.name()))));
    }
    let config = ModelConfig::from_json(&files.config()?, SUPPORTED_ARCHITECTURES)?;
    let mut weights = Weights::open(&files)?;
    weights.set_family(tensor_names(&config)?);
    let own = open_tokenizer(&files)?;
    let fits = |texts: &[(String, Vec<u8>)]| {
        let read = |name: &str| texts.iter().find(|(known, _)| known == name).map(|(_, text)| text.clone());
        let made = Tokenizer::from_files(|name| Ok(read(name).map(Cow::Owned)))?;
        match (&own, &made) {
            (None, None) => Ok(true),
            (Some(own), Some(made)) => is_same(own, made),
            _ => Ok(false),
        }
    };
    let plan = GgufPlan::new(&files, &config, &weights, &fits)?;
    // A file that is only half written has another name.
    let partial = partial_name(out);
    let written = plan.write(&partial, cancelled).and_then(|bytes| {
        let renamed = fs::rename(&partial, out);
        renamed.map_err(|error| Error::load(format!("{shown} cannot be written")).with_source(error))?;
        Ok(ConvertReport { num_files: 1, bytes })
    });
    if written.is_err() {
        let _ = fs::remove_file(&partial);
    }
    written
}

/// Whether two tokenizers have the same tokens and make the same of texts.
fn is_same(own: &Tokenizer, made: &Tokenizer) -> Result<bool> {
    let ids = (0..own.len() as u32).map(TokenId);
    let mut special = Vec::new();
    for id in ids {
        if own.token(id) != made.token(id) || own.is_special(id) != made.is_special(id) {
            return Ok(false);
        }
        if own.is_special(id) && special.len() < 8 {
            special.extend(own.token(id).map(|token| format!("one{token}two {token} three{token}")));
        }
    }
    for text in PROBES.into_iter().chain(special.iter().map(String::as_str)) {
        for add_special_tokens in [true, false] {
            let ids = own.encode(text, add_special_tokens)?;
            if ids != made.encode(text, add_special_tokens)?
                || own.decode(&ids, false)? != made.decode(&ids, false)?
                || own.decode(&ids, true)? != made.decode(&ids, true)?
            {
                return Ok(false);
            }
        }
    }
    Ok(own.bos() == made.bos())
}
