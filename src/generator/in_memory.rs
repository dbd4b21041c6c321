//! A model that is in memory: its configuration as text, its tensors with the caller.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::{Generator, GeneratorOptions};
use rsgen_core::Result;
use rsgen_model::weights::{ModelFiles, TOKENIZER_FILES, TensorSource};

/// A model in memory: a `config.json`, tensors under the names of a checkpoint, and the other files of a
/// model folder.
///
/// It opens as often as wanted. The tensors are read while it opens, in parts, as files are; what a generator
/// keeps is its own, so the tensors may change afterwards.
///
/// ```no_run
/// use rsgen::{Generator, GeneratorOptions, MemoryModel, Tensor};
///
/// # fn tensors() -> Vec<Tensor> { Vec::new() }
/// let config = r#"{"architectures": ["LlamaForCausalLM"], "hidden_size": 64}"#;
/// let model = MemoryModel::new(config, tensors()).tokenizer_of("path/to/llama", None, None)?;
/// let generator = Generator::from_memory(&model, &GeneratorOptions::default())?;
/// # Ok::<(), rsgen::Error>(())
/// ```
#[derive(Clone)]
pub struct MemoryModel {
    name: String,
    files: Vec<(String, Vec<u8>)>,
    tensors: Arc<dyn TensorSource>,
}

impl MemoryModel {
    /// A model of this `config.json` and these tensors, for instance a list of [`Tensor`](crate::Tensor).
    pub fn new(config: impl Into<Vec<u8>>, tensors: impl TensorSource + 'static) -> Self {
        let files = vec![("config.json".to_owned(), config.into())];
        Self { name: "a model in memory".to_owned(), files, tensors: Arc::new(tensors) }
    }

    /// Sets its name in messages.
    #[must_use]
    pub fn name(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Adds the contents of a file that a folder would hold, such as `tokenizer.json` or
    /// `generation_config.json`; a file of the same name is replaced.
    #[must_use]
    pub fn file(mut self, name: impl Into<String>, contents: impl Into<Vec<u8>>) -> Self {
        let name = name.into();
        self.files.retain(|(known, _)| *known != name);
        self.files.push((name, contents.into()));
        self
    }

    /// Adds the tokenizer and the chat templates of another model: a folder, or a Hub id in the local cache.
    ///
    /// # Errors
    /// `Load` when there is no such model, or a file cannot be read.
    pub fn tokenizer_of(self, model: &str, revision: Option<&str>, cache_dir: Option<&Path>) -> Result<Self> {
        let files = ModelFiles::open(model, revision, cache_dir)?;
        let texts = files.texts()?.into_iter().filter(|(name, _)| is_of_tokenizer(name));
        Ok(texts.fold(self, |model, (name, text)| model.file(name, text)))
    }

    /// The files of its tokenizer.
    pub fn tokenizer_files(&self) -> Vec<(String, Vec<u8>)> {
        self.files.iter().filter(|(name, _)| is_of_tokenizer(name)).cloned().collect()
    }

    pub(super) fn files(&self) -> ModelFiles {
        ModelFiles::in_memory(&*self.name, &*self.files, Some(Arc::clone(&self.tensors)))
    }
}

fn is_of_tokenizer(file: &str) -> bool {
    TOKENIZER_FILES.contains(&file)
        || Path::new(file).extension().is_some_and(|extension| extension == "jinja")
}

impl std::fmt::Debug for MemoryModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryModel").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Generator {
    /// Opens a model that is in memory, by its `config.json` and tensors, without a tokenizer: it takes token
    /// ids. [`MemoryModel`] has more.
    ///
    /// # Errors
    /// As for [`Generator::from_memory`].
    pub fn from_tensors(
        config: impl Into<Vec<u8>>,
        tensors: impl TensorSource + 'static,
        options: &GeneratorOptions,
    ) -> Result<Self> {
        Self::from_memory(&MemoryModel::new(config, tensors), options)
    }

    /// Opens a model that is in memory. No file is written.
    ///
    /// # Errors
    /// As for [`Generator::open`]: when a tensor is missing, of another shape or type, and so on.
    pub fn from_memory(model: &MemoryModel, options: &GeneratorOptions) -> Result<Self> {
        Self::from_files(&model.files(), options, &AtomicBool::new(false)).map(Self::with_warnings_logged)
    }
}
