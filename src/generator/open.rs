//! Opening a model: from a folder, from the local Hub cache, or the one that is built in.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Generator, Shared};
use crate::cache::KvDtype;
use crate::engine::{Engine, EngineOptions, TokenizerVocabulary, num_threads};
use crate::error::{Error, Result, ResultExt};
use crate::generation::{GenerationConfig, OneOrMany, Vocabulary};
use crate::kernels::{Isa, Workers};
use crate::model::{self, Loader, LoaderOptions, SUPPORTED_ARCHITECTURES};
use crate::tensor::DType;
use crate::text::Tokenizer;
use crate::weights::{ModelConfig, ModelFiles, Weights, available_memory};

/// How a model is opened.
#[derive(Default)]
pub struct GeneratorOptions {
    /// The type that weights are rounded to while loading; `None` keeps them as they are stored.
    pub dtype: Option<DType>,
    /// The type of the KV cache; `float32` if `None`.
    pub kv_dtype: Option<KvDtype>,
    /// The number of threads; see [`num_threads`] for what holds if `None`.
    pub num_threads: Option<usize>,
    /// The instruction set of the kernels; see [`Isa::select`] for what holds if `None`.
    pub isa: Option<Isa>,
    /// The most memory that the KV cache may take, in bytes; half of what is available if `None`.
    pub kv_cache_bytes: Option<usize>,
    /// The revision of a model in the Hub cache: a branch, a tag or a commit; `main` if `None`.
    pub revision: Option<String>,
    /// Called while the model is loaded, from the calling thread.
    pub progress: Option<Box<dyn Fn(Progress) + Send + Sync>>,
}

/// How far loading is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// What is being done.
    pub stage: Stage,
    /// The bytes of weights that are ready.
    pub done: u64,
    /// The bytes of weights in all.
    pub total: u64,
}

/// A stage of loading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// Weights are read and packed.
    Pack,
}

impl Generator {
    /// Opens a model: a folder in the Hugging Face layout, or the id of one in the local Hub cache, such as
    /// `HuggingFaceTB/SmolLM2-135M`. Nothing is ever downloaded.
    ///
    /// # Errors
    /// When there is no such model, when its files are damaged or of a kind that is not supported, or when it does not
    /// fit into memory.
    pub fn open(model: impl AsRef<str>) -> Result<Self> {
        Self::open_with(model, &GeneratorOptions::default())
    }

    /// [`Generator::open`] with options.
    ///
    /// # Errors
    /// As for [`Generator::open`].
    pub fn open_with(model: impl AsRef<str>, options: &GeneratorOptions) -> Result<Self> {
        Self::open_unless(model.as_ref(), options, &AtomicBool::new(false))
    }

    /// Opens a model, unless it is given up meanwhile.
    pub(super) fn open_unless(
        model: &str,
        options: &GeneratorOptions,
        given_up: &AtomicBool,
    ) -> Result<Self> {
        let files = ModelFiles::open(model, options.revision.as_deref())?;
        Self::from_files(&files, options, given_up)
    }

    /// The story model that is built in: a llama of 2.8 million parameters that tells short children's stories.
    ///
    /// # Errors
    /// When it does not fit into memory.
    #[cfg(feature = "bundled")]
    pub fn bundled() -> Result<Self> {
        Self::bundled_with(&GeneratorOptions::default())
    }

    /// [`Generator::bundled`] with options.
    ///
    /// # Errors
    /// As for [`Generator::bundled`].
    #[cfg(feature = "bundled")]
    pub fn bundled_with(options: &GeneratorOptions) -> Result<Self> {
        Self::from_files(&ModelFiles::bundled(), options, &AtomicBool::new(false))
    }

    fn from_files(files: &ModelFiles, options: &GeneratorOptions, given_up: &AtomicBool) -> Result<Self> {
        let config = ModelConfig::from_json(&files.config()?, SUPPORTED_ARCHITECTURES)?;
        let generation_config = generation_config(files, &config)?;
        let tokenizer = tokenizer(files)?;
        let weights = Weights::open(files)?;
        if given_up.load(Ordering::Relaxed) {
            return Err(Error::cancelled());
        }

        let workers =
            Workers::new(num_threads(options.num_threads)?, options.isa.map_or_else(Isa::select, Ok)?)?;
        let available = available_memory();
        let needed = bytes_of_weights(&config, &weights, options.dtype);
        if let Some(available) = available.filter(|&available| needed > available) {
            return Err(Error::capacity(format!(
                "{} needs {needed} bytes of memory for its weights, but {available} are available; free memory, or set \
                 `dtype` to a smaller type",
                files.name()
            )));
        }
        let total = weights.data_len();
        let progress = |done| {
            if let Some(progress) = &options.progress {
                progress(Progress { stage: Stage::Pack, done, total });
            }
        };
        let loading = LoaderOptions {
            workers: &workers,
            dtype: options.dtype,
            progress: &progress,
            given_up,
            done: Cell::new(0),
        };
        let model = model::load(&config, &Loader::new(weights.root(), &loading)).context(|| files.name())?;
        // Tensors that the architecture has no place for count as well.
        if loading.done.get() < total {
            progress(total);
        }
        log_unused(&weights);

        let engine_options =
            EngineOptions { kv_dtype: options.kv_dtype, kv_cache_bytes: options.kv_cache_bytes };
        let left = available.map(|available| available - needed);
        let engine = Engine::new(model, workers, engine_options, left)?;
        let vocabulary = tokenizer
            .clone()
            .map(|tokenizer| Arc::new(TokenizerVocabulary(tokenizer)) as Arc<dyn Vocabulary>);
        Ok(Self {
            shared: Arc::new(Shared {
                engine: Arc::new(engine),
                tokenizer,
                vocabulary,
                config,
                generation_config: Arc::new(generation_config),
                name: files.name().to_owned(),
            }),
        })
    }
}

/// The defaults of the model. Without a file of them, the special tokens of its `config.json`, as in transformers.
fn generation_config(files: &ModelFiles, config: &ModelConfig) -> Result<GenerationConfig> {
    let Some(bytes) = files.generation_config()? else {
        let eos = (!config.eos_token_ids.is_empty()).then(|| OneOrMany::Many(config.eos_token_ids.clone()));
        return Ok(GenerationConfig {
            bos_token_id: config.bos_token_id,
            eos_token_id: eos,
            pad_token_id: config.pad_token_id,
            ..GenerationConfig::default()
        });
    };
    let text =
        std::str::from_utf8(&bytes).map_err(|error| Error::load("it must be UTF-8").with_source(error));
    text.and_then(GenerationConfig::from_json_file).context(|| "generation_config.json")
}

/// The tokenizer, if the model comes with one.
fn tokenizer(files: &ModelFiles) -> Result<Option<Tokenizer>> {
    let Some(tokenizer) = files.tokenizer()? else { return Ok(None) };
    let (config, special) = (files.tokenizer_config()?, files.special_tokens_map()?);
    Tokenizer::from_bytes(&tokenizer, config.as_deref(), special.as_deref()).map(Some)
}

/// The memory that the weights take when they are packed, in bytes: as in the file, unless they are to be rounded.
fn bytes_of_weights(config: &ModelConfig, weights: &Weights, dtype: Option<DType>) -> u64 {
    let stored = config.dtype.unwrap_or(DType::F32).bytes() as u64;
    let kept = dtype.map_or(stored, |dtype| dtype.bytes() as u64);
    (weights.data_len() / stored).saturating_mul(kept)
}

/// Tensors that the architecture has no place for; old checkpoints store the rotary frequencies, which are computed.
fn log_unused(weights: &Weights) {
    let unused: Vec<&str> = weights.unused().filter(|name| !name.ends_with("rotary_emb.inv_freq")).collect();
    if let Some(first) = unused.first() {
        log::warn!("{} tensors of the checkpoint are not used, {first} among them", unused.len());
    }
}
