//! GGUF files of llama.cpp: a whole model in a file, or in several. Its configuration, its tokenizer and its
//! tensors are given as those of a folder in transformers' layout are.

mod architecture;
mod architectures;
mod config;
mod container;
mod implied;
mod names;
mod pre_tokenizers;
mod split;
mod store;
mod t5;
mod tokenizer;
mod types;
mod unigram;
mod value;
mod write;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use self::config::Description;
use self::container::Container;
pub(super) use self::store::GgufTensors;
pub use self::write::{FitsTokenizer, GgufPlan};
use super::safetensors::HeaderLimits;
use super::source::FileBytes;
use rsgen_core::error::{Result, ResultExt as _};

/// How the names of the files end.
pub(super) const ENDING: &str = ".gguf";
const ARCHITECTURE: &str = "general.architecture";
/// The most numbers of a tensor that belongs to the configuration.
const MAX_ROTARY: usize = 1 << 12;

/// A model of GGUF files.
pub struct GgufModel {
    texts: Arc<[(String, Vec<u8>)]>,
    tensors: Arc<GgufTensors>,
}

impl GgufModel {
    /// Reads the headers of a model; `name` is the name of its only or first file, `open` opens others beside
    /// it, and `tokenizer` are the texts of another tokenizer than that of the file, if there is one.
    ///
    /// # Errors
    /// `Load`, naming the file and the field, when one is damaged, or of an architecture or a kind that is not
    /// supported.
    pub fn new(
        name: &str,
        bytes: FileBytes,
        open: &dyn Fn(&str) -> Result<Option<FileBytes>>,
        tokenizer: Vec<(String, Vec<u8>)>,
    ) -> Result<Self> {
        let mut limits = HeaderLimits::default();
        let first = Container::read(name, bytes, &mut limits)?;
        let files: Arc<[Container]> = split::read_others(first, &mut limits, open)?.into();
        read(&files, tokenizer).context(|| name.to_owned())
    }

    /// The texts of the files that a folder would have, by name.
    pub fn texts(&self) -> &Arc<[(String, Vec<u8>)]> {
        &self.texts
    }

    /// The tensors.
    ///
    /// # Errors
    /// `Load` for a file of a vocabulary alone.
    pub(super) fn tensors(&self) -> Result<&Arc<GgufTensors>> {
        if self.tensors.names().next().is_none() { Err(config::no_model()) } else { Ok(&self.tensors) }
    }
}

/// Whether the first bytes are those of a GGUF file.
pub(super) fn is_one(first_bytes: &[u8]) -> bool {
    first_bytes.starts_with(container::MAGIC)
}

/// The GGUF file of a folder that has only one, or the first of the only model.
pub(super) fn only_file(folder: &std::path::Path) -> Option<String> {
    let names = folder.read_dir().ok()?.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut files: Vec<String> =
        names.filter(|name| name.ends_with(ENDING) && !name.starts_with('.')).collect();
    files.retain(|name| split::parse(name).is_none_or(|(_, number, _)| number == 1));
    match &mut files[..] {
        [only] => Some(std::mem::take(only)),
        _ => None,
    }
}

fn read(files: &Arc<[Container]>, tokenizer: Vec<(String, Vec<u8>)>) -> Result<GgufModel> {
    let metadata = &files[0].metadata;
    let missing = || value::wrong(ARCHITECTURE, "given", None);
    let architecture = metadata.text(ARCHITECTURE)?.ok_or_else(missing)?;
    let tensors: HashMap<_, _> =
        files.iter().flat_map(|file| &file.tensors).map(|tensor| (&*tensor.name, tensor)).collect();
    let floats = |name: &str| GgufTensors::small_floats(files, name, MAX_ROTARY);
    let model = Description { architecture, metadata, tensors: &tensors, floats: &floats };
    let entry = architecture::find(&model)?;
    let config = serde_json::Value::from(config::config(&model, entry)?).to_string();
    let mut texts = vec![
        ("config.json".to_owned(), config.into_bytes()),
        ("generation_config.json".to_owned(), tokenizer::generation_config(metadata, architecture)?),
    ];
    if tokenizer.is_empty() {
        texts.extend(tokenizer::texts(metadata, architecture)?);
    }
    texts.extend(tokenizer);
    let named = names::named(files, &model, entry)?;
    let tensors = GgufTensors::new(Arc::clone(files), named, entry.model_type == "gpt2")?;
    Ok(GgufModel { texts: texts.into(), tensors: Arc::new(tensors) })
}

impl fmt::Debug for GgufModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GgufModel").field("tensors", &self.tensors).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
