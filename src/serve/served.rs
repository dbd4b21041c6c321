//! A model that is given to a server: loaded already, or loaded when a request needs it.

use std::sync::Arc;

use super::app::model_name;
use super::options::ServeOptions;
use super::shared_memory::kv_cache_share;
use crate::engine::{Interrupt, started};
use crate::generator::{Generator, GeneratorOptions, Machine, MemoryPlan};
use rsgen_core::error::Result;
use rsgen_kernels::ThreadPool;
use rsgen_model::weights::ModelFiles;

/// Opens a model, until its interrupt returns true.
pub(super) type Open = dyn Fn(&mut Interrupt<'_>) -> Result<Generator> + Send + Sync;

/// A model for a server: one that is loaded, or one that can be loaded whenever a request needs it.
///
/// ```no_run
/// use rsgen::serve::{ServeOptions, ServedModel, Server};
/// use rsgen::{Generator, GeneratorOptions};
///
/// let small = ServedModel::new("small", 1 << 30, |interrupted| {
///     Generator::open_interruptible("path/to/small", &GeneratorOptions::default(), interrupted)
/// });
/// let big = ServedModel::new("big", 8 << 30, |interrupted| {
///     Generator::open_interruptible("path/to/big", &GeneratorOptions::default(), interrupted)
/// });
/// let options = ServeOptions { models_max: Some(1), ..ServeOptions::default() };
/// let running = Server::bind(options)?.listen()?.start_models(vec![small, big])?;
/// running.wait(&mut || false)?;
/// # Ok::<(), rsgen::Error>(())
/// ```
#[derive(Clone)]
pub struct ServedModel {
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) adapters: Vec<String>,
    pub(super) open: Option<Arc<Open>>,
    pub(super) loaded: Option<Generator>,
}

/// Where a model is, and what it is called.
#[derive(Debug, Clone, Default)]
pub struct ModelPath {
    /// Its name in the API; if `None`, the Hub id, or the name of its folder.
    pub name: Option<String>,
    /// A folder, a GGUF file, or the id of a model in the Hub cache.
    pub path: String,
    /// The names and the folders of the adapters beside it.
    pub adapters: Vec<(String, String)>,
}

impl ServedModel {
    /// Models that are opened with the same options, and compute on the same threads. Where the server has `models_memory`
    /// and the options no `kv_cache_bytes`, the caches of several models share what the weights leave.
    ///
    /// # Errors
    /// When a path is that of no model, or when the options contradict each other.
    pub fn of_paths(
        models: &[ModelPath],
        mut options: GeneratorOptions,
        serve: &ServeOptions,
    ) -> Result<Vec<Self>> {
        let mut plans = Vec::new();
        for ModelPath { path, .. } in models {
            let files = ModelFiles::open(path, options.revision.as_deref(), options.cache_dir.as_deref())?;
            plans.push((model_name(files.name()), MemoryPlan::of(&files, &options)?));
        }
        if models.len() > 1 {
            if options.thread_pool.is_none() {
                let threads = Machine::choose(&options)?.num_threads;
                options.thread_pool = Some(ThreadPool::new(started(threads.value))?);
                options.num_threads = None;
            }
            let plans: Vec<MemoryPlan> = plans.iter().map(|(_, plan)| *plan).collect();
            let share = serve.models_memory.map(|budget| kv_cache_share(&plans, budget, serve.models_max));
            options.kv_cache_bytes = options.kv_cache_bytes.or(share);
        }
        let options = Arc::new(options);
        let cache = options.kv_cache_bytes.unwrap_or(0) as u64;
        let model =
            |(ModelPath { name, path, adapters }, (of_files, plan)): (&ModelPath, (String, MemoryPlan))| {
                let (path, beside, options) = (path.clone(), adapters.clone(), Arc::clone(&options));
                let open = move |interrupted: &mut Interrupt<'_>| {
                    let generator = Generator::open_interruptible(&path, &options, interrupted)?;
                    load_adapters(&generator, &beside, interrupted)?;
                    Ok(generator)
                };
                let names = adapters.iter().map(|(name, _)| name.clone()).collect();
                let name = name.clone().unwrap_or(of_files);
                Self::new(name, plan.weight_bytes + cache, open).with_adapters(names)
            };
        Ok(models.iter().zip(plans).map(model).collect())
    }

    /// The same, loaded now.
    ///
    /// # Errors
    /// When it cannot be loaded.
    pub fn load(self, interrupted: &mut Interrupt<'_>) -> Result<Self> {
        let loaded = self.open.as_ref().filter(|_| self.loaded.is_none()).map(|open| open(interrupted));
        Ok(match loaded.transpose()? {
            Some(generator) => self.with_loaded(generator),
            None => self,
        })
    }

    /// The loaded model.
    pub fn generator(&self) -> Option<&Generator> {
        self.loaded.as_ref()
    }

    /// A model that `open` loads. `bytes` estimates the memory that it takes.
    pub fn new(
        name: impl Into<String>,
        bytes: u64,
        open: impl Fn(&mut Interrupt<'_>) -> Result<Generator> + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), bytes, adapters: Vec::new(), open: Some(Arc::new(open)), loaded: None }
    }

    /// A model that is loaded, and stays. Without a name it has the Hub id, or the name of its folder.
    pub fn loaded(name: Option<&str>, generator: Generator) -> Self {
        let name = name.map_or_else(|| model_name(generator.name()), str::to_owned);
        let bytes = generator.engine().model().weight_bytes() as u64;
        Self { name, bytes, adapters: Vec::new(), open: None, loaded: Some(generator) }
    }

    /// The same with the names of the adapters that it is opened with, for lists of models while it is not loaded.
    #[must_use]
    pub fn with_adapters(self, adapters: Vec<String>) -> Self {
        Self { adapters, ..self }
    }

    /// The same, loaded already. Without a name it has the Hub id, or the name of its folder.
    #[must_use]
    pub fn with_loaded(self, generator: Generator) -> Self {
        let name = if self.name.is_empty() { model_name(generator.name()) } else { self.name };
        let bytes = self.bytes.max(generator.engine().model().weight_bytes() as u64);
        Self { name, bytes, loaded: Some(generator), ..self }
    }

    /// Its name in the API.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The bytes of memory that it is estimated to take.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Loads adapters beside a model.
pub(crate) fn load_adapters(
    generator: &Generator,
    adapters: &[(String, String)],
    interrupted: &mut Interrupt<'_>,
) -> Result<()> {
    adapters.iter().try_for_each(|(name, path)| {
        generator.load_adapter(path, name, None, interrupted).map_err(|error| error.within("lora_modules"))
    })
}

impl std::fmt::Debug for ServedModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, bytes, adapters, loaded, .. } = self;
        f.debug_struct("ServedModel")
            .field("name", name)
            .field("bytes", bytes)
            .field("adapters", adapters)
            .field("is_loaded", &loaded.is_some())
            .finish_non_exhaustive()
    }
}
