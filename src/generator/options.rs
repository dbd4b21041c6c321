//! [`GeneratorOptions`]: how a model is opened.

use std::path::PathBuf;

use serde_json::{Map, Value};

use super::{Assistant, Progress};
use rsgen_core::files::absolute;
use rsgen_kernels::tensor::{ComputeDtype, WeightType};
use rsgen_kernels::{Isa, ThreadPool};
use rsgen_model::cache::KvDtype;

/// How a model is opened.
///
/// ```
/// use rsgen::GeneratorOptions;
///
/// let options = GeneratorOptions::new().num_threads(2).prefix_caching(false);
/// assert_eq!(options.num_threads, Some(2));
/// ```
#[derive(Default)]
#[non_exhaustive]
pub struct GeneratorOptions {
    /// The type of weights in memory: a floating-point type, or `int8` or `int4`, quantized in groups with a
    /// scale each. `None` keeps the stored type.
    pub dtype: Option<WeightType>,
    /// The arithmetic of matrix products: `float32`, which equals transformers; `bfloat16`, which rounds
    /// activations and weights and computes prompts about twice as fast; or `int8`, which rounds activations to 8 bits
    /// where a file's own weights are integers, and is `float32` elsewhere.
    pub compute_dtype: ComputeDtype,
    /// The type of the KV cache; that of the arithmetic if `None`. `int8` takes the least memory.
    pub kv_dtype: Option<KvDtype>,
    /// The number of threads; see [`num_threads`](crate::engine::num_threads) for the default.
    pub num_threads: Option<usize>,
    /// A thread pool to compute on, which others may share; it sets the number of threads. If `None`, the
    /// model starts threads of its own.
    pub thread_pool: Option<ThreadPool>,
    /// The instruction set of the kernels; see [`Isa::select`] for the default.
    pub isa: Option<Isa>,
    /// The most memory that the KV cache may take, in bytes, that of the assistant included; half of what is
    /// available if `None`.
    pub kv_cache_bytes: Option<usize>,
    /// Whether prompts with the same beginning share what was computed for it; true if `None`. Results are
    /// the same.
    pub prefix_caching: Option<bool>,
    /// A smaller model with the same tokens that drafts for this one: see
    /// [`Generator::assisted_decoding`](crate::Generator::assisted_decoding). A model that is opened here gets the other options.
    pub assistant: Option<Assistant>,
    /// A LoRA adapter of PEFT, which is merged into the weights while they are read: a folder, or a Hub id in
    /// the local cache.
    pub adapter: Option<String>,
    /// Where the tokenizer and the chat templates are, if not with the model: a folder, or a Hub id in the local cache.
    pub tokenizer: Option<String>,
    /// Whether calls log a profile of their time, under `rsgen::timing`; set by `RSGEN_TIMING` if `None`.
    pub timing: Option<bool>,
    /// The revision of a model in the Hub cache: a branch, a tag or a commit; `main` if `None`.
    pub revision: Option<String>,
    /// The Hub cache; the one that the environment names if `None`.
    pub cache_dir: Option<PathBuf>,
    /// Ignores the model's `generation_config.json`: the defaults are those of a model without one.
    pub ignore_generation_config: bool,
    /// Called while the model is loaded, from the calling thread.
    pub progress: Option<Box<dyn Fn(Progress) + Send + Sync>>,
}

/// Methods that set an optional field, by its name.
macro_rules! setters {
    ($($name:ident: $type:ty),* $(,)?) => {
        $(
            #[doc = concat!("Sets the field [`", stringify!($name), "`](Self#structfield.", stringify!($name), ").")]
            #[must_use]
            pub fn $name(mut self, $name: impl Into<Option<$type>>) -> Self {
                self.$name = $name.into();
                self
            }
        )*
    };
}

impl GeneratorOptions {
    /// The defaults. Each field has a method of its name that sets it.
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        dtype: WeightType,
        kv_dtype: KvDtype,
        num_threads: usize,
        thread_pool: ThreadPool,
        isa: Isa,
        kv_cache_bytes: usize,
        prefix_caching: bool,
        assistant: Assistant,
        adapter: String,
        tokenizer: String,
        timing: bool,
        revision: String,
        cache_dir: PathBuf,
    }

    /// What opens a model of this name again, in any process: names and words as in Python. Those that are not set are
    /// left out, and so are objects such as a thread pool.
    pub(super) fn recipe(&self, model: &str) -> Map<String, Value> {
        let path = |name: &str| Value::from(absolute(name));
        let compute =
            (self.compute_dtype != ComputeDtype::default()).then(|| self.compute_dtype.name().into());
        let cache_dir = self.cache_dir.as_ref().map(|folder| path(&folder.to_string_lossy()));
        let entries = [
            ("model", Some(path(model))),
            ("dtype", self.dtype.map(|dtype| dtype.name().into())),
            ("compute_dtype", compute),
            ("kv_dtype", self.kv_dtype.map(|dtype| dtype.as_str().into())),
            ("num_threads", self.num_threads.map(Value::from)),
            ("adapter", self.adapter.as_deref().map(path)),
            ("tokenizer", self.tokenizer.as_deref().map(path)),
            ("kv_cache_bytes", self.kv_cache_bytes.map(Value::from)),
            ("prefix_caching", self.prefix_caching.filter(|caches| !caches).map(Value::from)),
            ("revision", self.revision.as_deref().map(Value::from)),
            ("cache_dir", cache_dir),
            ("generation_config", self.ignore_generation_config.then(|| "ignore".into())),
        ];
        entries.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }

    /// Sets the field [`compute_dtype`](Self#structfield.compute_dtype).
    #[must_use]
    pub fn compute_dtype(mut self, compute_dtype: ComputeDtype) -> Self {
        self.compute_dtype = compute_dtype;
        self
    }

    /// Sets the field [`ignore_generation_config`](Self#structfield.ignore_generation_config).
    #[must_use]
    pub fn ignore_generation_config(mut self, ignored: bool) -> Self {
        self.ignore_generation_config = ignored;
        self
    }

    /// Sets the field [`progress`](Self#structfield.progress).
    #[must_use]
    pub fn progress(mut self, progress: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        self.progress = Some(Box::new(progress));
        self
    }
}
