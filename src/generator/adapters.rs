//! Adapters beside the model: loaded under a name, and used by the calls that name them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::{Call, Generator};
use crate::engine::Interrupt;
use rsgen_core::{AdapterId, Error, Mutex, Result, ResultExt as _, escape};
use rsgen_model::LoadedAdapter;
use rsgen_model::weights::Adapter;

/// The most adapters of a generator.
const MOST: usize = 4096;

/// The adapters of a generator by their names.
#[derive(Default)]
pub(super) struct NamedAdapters(Mutex<BTreeMap<String, Arc<LoadedAdapter>>>);

/// The adapters of a call: one for all of its prompts, or one for each; `None` is the model alone.
#[derive(Default)]
pub(super) struct CallAdapters {
    given: Vec<Option<String>>,
    ids: Vec<Option<AdapterId>>,
}

impl Generator {
    /// Loads a LoRA adapter of PEFT beside the model, for the calls that name it: see
    /// [`Call::adapter`](super::Call::adapter). Calls with different adapters run together; the model's own products are
    /// computed once for all of them. `adapter` is a folder, or a Hub id in the local cache.
    ///
    /// ```no_run
    /// let generator = rsgen::Generator::open("path/to/base")?;
    /// generator.load_adapter("path/to/adapter", "support", None, &mut || false)?;
    /// let output = generator.call("Hello").adapter("support").run()?;
    /// # Ok::<(), rsgen::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Load` when there is no such adapter, it belongs to another model, or it changes more than the products of
    /// matrices in layers: open the generator with it then. `Input` for a name that is taken, and for a model with an
    /// encoder; `Cancelled` when interrupted.
    pub fn load_adapter(
        &self,
        adapter: &str,
        name: &str,
        cache_dir: Option<&Path>,
        interrupted: &mut Interrupt<'_>,
    ) -> Result<()> {
        self.check_no_encoder("an adapter beside the model", "open it with the option `adapter`")?;
        let adapters = &self.shared.adapters;
        adapters.check_free(name)?;
        let opened = Adapter::open(adapter, cache_dir).map_err(|error| error.concerning("adapter"))?;
        let engine = self.engine();
        let named = || format!("the adapter {}", escape::name(adapter));
        let factors = opened.factors(interrupted)?;
        let loaded = engine.model().adapter(engine.workers(), factors, interrupted).context(named)?;
        let mut all = adapters.0.lock();
        if all.contains_key(name) {
            return Err(taken(name));
        }
        all.insert(name.to_owned(), engine.adapters().add(loaded));
        Ok(())
    }

    /// The same generator, whose calls, scores and embeddings use an adapter, unless a call names another.
    ///
    /// # Errors
    /// `Input` when there is none of this name.
    pub fn with_adapter(&self, name: &str) -> Result<Self> {
        let all = self.shared.adapters.0.lock();
        let adapter = all.get(name).ok_or_else(|| unknown(name, &all))?;
        Ok(Self { shared: Arc::clone(&self.shared), adapter: Some(adapter.id()) })
    }

    /// Unloads an adapter. Calls that run with it go on; its memory goes back when they have ended.
    ///
    /// # Errors
    /// `Input` when there is none of this name.
    pub fn unload_adapter(&self, name: &str) -> Result<()> {
        let mut all = self.shared.adapters.0.lock();
        match all.remove(name) {
            Some(adapter) => {
                self.engine().adapters().remove(adapter.id());
                Ok(())
            }
            None => Err(unknown(name, &all)),
        }
    }

    /// Whether an adapter of this name is loaded.
    pub fn has_adapter(&self, name: &str) -> bool {
        self.shared.adapters.0.lock().contains_key(name)
    }

    /// The names of the loaded adapters, and the bytes that each takes.
    pub fn adapters(&self) -> Vec<(String, usize)> {
        let all = self.shared.adapters.0.lock();
        all.iter().map(|(name, adapter)| (name.clone(), adapter.bytes())).collect()
    }
}

impl Call<'_> {
    /// Names the adapter of the call: see [`Generator::load_adapter`].
    pub fn adapter(self, name: impl Into<String>) -> Self {
        self.adapters([Some(name.into())])
    }

    /// Names the adapter of each prompt; `None` is the model alone.
    pub fn adapters(mut self, names: impl IntoIterator<Item = Option<String>>) -> Self {
        self.adapters = CallAdapters::new(names);
        self
    }
}

impl NamedAdapters {
    fn check_free(&self, name: &str) -> Result<()> {
        let all = self.0.lock();
        if name.is_empty() || name.len() > 256 {
            return Err(Error::input("must be from 1 to 256 bytes long").about("name"));
        }
        if all.len() >= MOST {
            return Err(Error::capacity(format!(
                "a generator holds at most {MOST} adapters; unload one that is not needed"
            )));
        }
        if all.contains_key(name) { Err(taken(name)) } else { Ok(()) }
    }
}

impl CallAdapters {
    pub(super) fn new(given: impl IntoIterator<Item = Option<String>>) -> Self {
        Self { given: given.into_iter().collect(), ids: Vec::new() }
    }

    /// Finds the adapters of so many prompts.
    ///
    /// # Errors
    /// `Input` for an unknown name, or another number of adapters than prompts.
    pub(super) fn find(&mut self, generator: &Generator, num_prompts: usize) -> Result<()> {
        if self.given.len() > 1 && self.given.len() != num_prompts {
            return Err(Error::input(format!(
                "must be one for all prompts or one for each ({num_prompts}), got {}",
                self.given.len()
            ))
            .about("adapter"));
        }
        if self.given.is_empty() {
            self.ids = vec![generator.adapter];
            return Ok(());
        }
        let all = generator.shared.adapters.0.lock();
        let find = |name: &Option<String>| match name {
            None => Ok(None),
            Some(name) => all.get(name).map(|adapter| Some(adapter.id())).ok_or_else(|| unknown(name, &all)),
        };
        self.ids = self.given.iter().map(find).collect::<Result<_>>()?;
        Ok(())
    }

    /// The adapter of a prompt.
    pub(super) fn of(&self, index: usize) -> Option<AdapterId> {
        *self.ids.get(index).or(self.ids.first())?
    }
}

fn taken(name: &str) -> Error {
    Error::input(format!("must be another one, because {name:?} is loaded already; unload it first"))
        .about("name")
}

fn unknown(name: &str, all: &BTreeMap<String, Arc<LoadedAdapter>>) -> Error {
    let names: Vec<&str> = all.keys().map(String::as_str).take(8).collect();
    let known = if names.is_empty() { "none is".to_owned() } else { format!("{} are", names.join(", ")) };
    Error::input(format!(
        "must be the name of a loaded adapter, got {name:?}, but {known}; load it first: `load_adapter`"
    ))
    .about("adapter")
}
