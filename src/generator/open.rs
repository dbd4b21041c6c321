//! Opens a model: from a folder, from the local Hub cache, or the bundled one.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};

use super::adapters::NamedAdapters;
use super::precision::Precision;
use super::{Generator, GeneratorOptions, Machine, MemoryPlan, Shared, generation_defaults};
use crate::engine::{Engine, EngineOptions, TokenizerVocabulary, is_timed};
use rsgen_core::{AdapterWeights, Error, Mutex, Result, ResultExt, escape};
use rsgen_generation::{GenerationConfig, Grammars, KeptTokens, Vocabulary};
use rsgen_kernels::Workers;
use rsgen_model::weights::{Adapter, ModelConfig, ModelFiles, Weights};
use rsgen_model::{self, CausalLm, Loaded, Loader, LoaderOptions, SUPPORTED_ARCHITECTURES, tensor_names};
use rsgen_text::{ChatTemplates, Tokenizer};

/// The progress of loading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The current stage.
    pub stage: Stage,
    /// The bytes of weights loaded so far.
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

impl Stage {
    /// Its name, such as `pack`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pack => "pack",
        }
    }
}

impl Generator {
    /// Opens a model: a folder in the Hugging Face layout, a GGUF file, or the id of a model in the local Hub
    /// cache, such as `HuggingFaceTB/SmolLM2-135M`. Nothing is ever downloaded.
    ///
    /// # Errors
    /// When there is no such model, when its files are damaged or of a kind that is not supported, or when it
    /// does not fit into memory.
    pub fn open(model: impl AsRef<str>) -> Result<Self> {
        Self::open_with(model, &GeneratorOptions::default())
    }

    /// [`Generator::open`] with options.
    ///
    /// # Errors
    /// As for [`Generator::open`].
    pub fn open_with(model: impl AsRef<str>, options: &GeneratorOptions) -> Result<Self> {
        Self::open_cancellable(model.as_ref(), options, &AtomicBool::new(false))
            .map(Self::with_warnings_logged)
    }

    /// Opens a model; setting `cancelled` stops it.
    pub(super) fn open_cancellable(
        model: &str,
        options: &GeneratorOptions,
        cancelled: &AtomicBool,
    ) -> Result<Self> {
        let files = ModelFiles::open(model, options.revision.as_deref(), options.cache_dir.as_deref())?;
        Self::from_files(&files, options, cancelled)
    }

    /// The bundled story model: a llama of 2.8 million parameters that tells short children's stories.
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
        Self::from_files(&crate::bundled::story(), options, &AtomicBool::new(false))
            .map(Self::with_warnings_logged)
    }

    pub(super) fn with_warnings_logged(self) -> Self {
        for warning in self.warnings() {
            log::warn!("{}", escape::message(warning));
        }
        self
    }

    pub(crate) fn from_files(
        files: &ModelFiles,
        options: &GeneratorOptions,
        cancelled: &AtomicBool,
    ) -> Result<Self> {
        warn_unless_optimized();
        let Checked {
            config,
            generation_config,
            generation_config_file,
            tokenizer,
            chat_templates,
            weights,
            machine,
            precision,
            memory,
            is_timed,
        } = Checked::new(files, options, cancelled)?;
        log::info!("{}: {machine}, {memory}", escape::name(files.name()));
        let pool = machine.thread_pool(options)?;
        let workers = Workers::on(pool.clone(), machine.isa.value);
        let mut warnings: Vec<String> =
            machine.warning().into_iter().chain(generation_config.unsupported_warning()).collect();
        let loading = Loading { files, config: &config, weights: &weights, precision };
        let (model, loaded) = loading.run(&workers, options, cancelled)?;
        warnings.extend(loaded.warnings);
        log_unused(&weights);
        let assistant = options.assistant.as_ref();
        let assistant = assistant.map(|assistant| assistant.open(options, pool, cancelled)).transpose()?;
        warnings.extend(assistant.iter().flat_map(|assistant| &assistant.shared.warnings).cloned());

        let kv_cache_bytes = memory.kv_cache_bytes.value;
        let prefix_caching = options.prefix_caching.unwrap_or(true);
        let recipe = options.recipe(files.name());
        let options = EngineOptions { kv_dtype: precision.kv, kv_cache_bytes, prefix_caching, is_timed };
        let engine = Engine::new(model, workers, options)?;
        if let Some(assistant) = &assistant {
            engine.draft(assistant.engine())?;
        }
        let vocabulary = tokenizer
            .clone()
            .map(|tokenizer| Arc::new(TokenizerVocabulary(tokenizer)) as Arc<dyn Vocabulary>);
        Ok(Self {
            adapters: AdapterWeights::default(),
            shared: Arc::new(Shared {
                engine: Arc::new(engine),
                tokenizer,
                vocabulary,
                chat_templates,
                config,
                generation_config: Arc::new(generation_config),
                generation_config_file,
                assistant,
                kept_tokens: KeptTokens::default(),
                grammars: Grammars::default(),
                adapters: NamedAdapters::default(),
                vocabulary_maps: Mutex::default(),
                name: files.name().to_owned(),
                recipe,
                warnings,
            }),
        })
    }
}

/// A model whose weights are to be loaded.
pub(super) struct Loading<'a> {
    pub(super) files: &'a ModelFiles,
    pub(super) config: &'a ModelConfig,
    pub(super) weights: &'a Weights,
    pub(super) precision: Precision,
}

impl Loading<'_> {
    /// Loads all tensors.
    pub(super) fn run(
        self,
        workers: &Workers,
        options: &GeneratorOptions,
        cancelled: &AtomicBool,
    ) -> Result<(Box<dyn CausalLm>, Loaded)> {
        let Self { files, config, weights, precision } = self;
        let total = weights.read_len();
        let progress = |done| {
            if let Some(progress) = &options.progress {
                progress(Progress { stage: Stage::Pack, done, total });
            }
        };
        let loading = LoaderOptions {
            workers,
            weights: precision.weights,
            is_packed: precision.is_packed,
            loaded: RefCell::default(),
            compute: precision.compute,
            progress: &progress,
            cancelled,
            done: Cell::new(0),
        };
        let model =
            rsgen_model::load(config, &Loader::new(weights.root(), &loading)).context(|| files.name())?;
        // Tensors that the architecture does not use count as well.
        if loading.done.get() < total {
            progress(total);
        }
        Ok((model, loading.loaded.into_inner()))
    }
}

/// A model that has passed all checks that need no weights.
pub(super) struct Checked {
    pub(super) config: ModelConfig,
    generation_config: GenerationConfig,
    generation_config_file: &'static str,
    tokenizer: Option<Tokenizer>,
    chat_templates: ChatTemplates,
    pub(super) weights: Weights,
    pub(super) machine: Machine,
    pub(super) precision: Precision,
    memory: MemoryPlan,
    is_timed: bool,
}

impl Checked {
    pub(super) fn new(
        files: &ModelFiles,
        options: &GeneratorOptions,
        cancelled: &AtomicBool,
    ) -> Result<Self> {
        let check_cancelled =
            || if cancelled.load(Ordering::Relaxed) { Err(Error::cancelled()) } else { Ok(()) };
        let mut config = ModelConfig::from_json(&files.config()?, SUPPORTED_ARCHITECTURES)?;
        let (generation_config, generation_config_file) =
            generation_defaults(files, &config.raw, options.ignore_generation_config)?;
        check_cancelled()?;
        let texts = options.tokenizer.as_deref().map(|model| tokenizer_files(model, options)).transpose()?;
        let texts = texts.as_ref().unwrap_or(files);
        let tokenizer = open_tokenizer(texts)?;
        check_cancelled()?;
        let chat_templates = chat_templates(texts, tokenizer.as_ref())?;
        let mut weights = Weights::open(files)?;
        weights.set_family(tensor_names(&config)?);
        check_cancelled()?;
        let machine = Machine::choose(options)?;
        if let Some(adapter) = &options.adapter {
            let adapter = Adapter::open(adapter, options.cache_dir.as_deref())
                .map_err(|error| error.context("`adapter`").concerning("adapter"))?;
            let resized = weights.merge(&adapter, config.tie_word_embeddings, machine.isa.value)?;
            config.vocab_size = resized.unwrap_or(config.vocab_size);
            check_cancelled()?;
        }
        let precision = Precision::choose(options, weights.packed()?)?;
        let is_timed = is_timed(options.timing)?;
        let memory = MemoryPlan::new(files.name(), &config, &weights, options, precision, &machine)?;
        Ok(Self {
            config,
            generation_config,
            generation_config_file,
            tokenizer,
            chat_templates,
            weights,
            machine,
            precision,
            memory,
            is_timed,
        })
    }
}

impl MemoryPlan {
    /// How the memory would be divided if the model were opened. Reads no weights.
    ///
    /// # Errors
    /// Those of [`Generator::open`] that show before the weights are read: the model is damaged, not
    /// supported, or does not fit into memory.
    pub fn of(files: &ModelFiles, options: &GeneratorOptions) -> Result<Self> {
        Checked::new(files, options, &AtomicBool::new(false)).map(|checked| checked.memory)
    }
}

/// Warns once if the kernels are built without optimization.
fn warn_unless_optimized() {
    static ONCE: Once = Once::new();
    if !rsgen_kernels::IS_OPTIMIZED {
        ONCE.call_once(|| {
            log::warn!(
                "rsgen is built without optimization and computes some sixty times slower; add \
                 `[profile.dev.package]` with `rsgen-kernels.opt-level = 3` and `rsgen-model.opt-level = 3` to the \
                 Cargo.toml of your workspace"
            );
        });
    }
}

/// The tokenizer of a model by itself: of a folder, or of the id of a model in the Hub cache, which is that
/// of the environment if `cache_dir` is `None`.
///
/// # Errors
/// When there is no such model or it has no tokenizer, and as for [`open_tokenizer`].
pub fn find_tokenizer(model: &str, revision: Option<&str>, cache_dir: Option<&Path>) -> Result<Tokenizer> {
    let files = ModelFiles::open(model, revision, cache_dir)?;
    open_tokenizer(&files)?.ok_or_else(|| {
        Error::load(format!(
            "{}: there is neither a tokenizer.json nor a tokenizer.model; copy it into the folder",
            files.name()
        ))
    })
}

/// The chat templates of the model whose tokenizer this is. `revision` and `cache_dir` apply to Hub ids.
///
/// # Errors
/// When there is no such model, or a file of its templates is damaged.
pub fn find_chat_templates(
    model: &str,
    revision: Option<&str>,
    cache_dir: Option<&Path>,
    tokenizer: &Tokenizer,
) -> Result<ChatTemplates> {
    chat_templates(&ModelFiles::open(model, revision, cache_dir)?, Some(tokenizer))
}

/// The files of another model that a model takes its tokenizer from.
fn tokenizer_files(model: &str, options: &GeneratorOptions) -> Result<ModelFiles> {
    let opened = || {
        let files = ModelFiles::open(model, None, options.cache_dir.as_deref())?;
        find_tokenizer(model, None, options.cache_dir.as_deref()).map(|_| files)
    };
    opened().map_err(|error| error.context("`tokenizer`").concerning("tokenizer"))
}

/// The tokenizer of a model, if it comes with one: its `tokenizer.json`, else its SentencePiece
/// model, else its `vocab.json` with its `merges.txt`; some classes have files of their own.
///
/// # Errors
/// When its files are damaged or not supported.
pub fn open_tokenizer(files: &ModelFiles) -> Result<Option<Tokenizer>> {
    Tokenizer::from_files(|name| files.read_optional(name))
}

/// The chat templates that the model comes with.
fn chat_templates(files: &ModelFiles, tokenizer: Option<&Tokenizer>) -> Result<ChatTemplates> {
    let (own, config) = (files.chat_template()?, files.tokenizer_config()?);
    let additional = files.additional_chat_templates()?;
    let templates = ChatTemplates::read(own.as_deref(), &additional, config.as_deref())?;
    Ok(templates.with_special_tokens(tokenizer.into_iter().flat_map(Tokenizer::special_tokens_map)))
}

/// The ends of names that checkpoints may have and models do without: old ones store the rotary frequencies, which are
/// computed, and those with every name of an encoder's and a decoder's one embedding store it as `shared`, too.
const SPARE: [&str; 2] = ["rotary_emb.inv_freq", "shared.weight"];

/// Logs the tensors that the architecture does not use.
fn log_unused(weights: &Weights) {
    let is_spare = |name: &str| SPARE.iter().any(|end| name.ends_with(end));
    let unused: Vec<&str> = weights.unused().filter(|name| !is_spare(name)).collect();
    if let Some(first) = unused.first() {
        let first = escape::name(first);
        log::warn!("{} tensors of the checkpoint are not used, {first} among them", unused.len());
    }
}
