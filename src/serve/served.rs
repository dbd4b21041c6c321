//! A model that is given to a server: loaded already, or loaded when a request needs it.

use std::sync::Arc;

use super::app::model_name;
use crate::engine::Interrupt;
use crate::generator::Generator;
use rsgen_core::error::Result;

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

impl ServedModel {
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
