//! Adapters beside the model: loaded under a name, and used by the calls that name them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use super::{Call, Generator, Prompts};
use crate::engine::Interrupt;
use rsgen_core::{AdapterWeights, Error, Mutex, Result, ResultExt as _, escape};
use rsgen_model::LoadedAdapter;
use rsgen_model::weights::Adapter;

/// The most adapters of a generator.
const MOST: usize = 4096;

/// The adapters of a generator by their names.
#[derive(Default)]
pub(super) struct NamedAdapters(Mutex<BTreeMap<String, NamedAdapter>>);

struct NamedAdapter {
    adapter: Arc<LoadedAdapter>,
    facts: AdapterFacts,
}

/// What is known of an adapter beside the model.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AdapterFacts {
    /// Its folder or Hub id.
    pub path: String,
    /// The highest rank of its modules.
    pub rank: usize,
    /// The last parts of the names of the modules that it changes.
    pub modules: Vec<String>,
    /// The memory it takes, in bytes.
    pub bytes: usize,
}

/// Loaded adapters by their names, whose weighted products are added to those of the model: what PEFT's
/// `add_weighted_adapter` makes with `combination_type="cat"`. Without any it is the model alone.
///
/// ```
/// use rsgen::AdapterSum;
///
/// assert_eq!(AdapterSum::from("support"), AdapterSum::from([("support", 1.0)]));
/// assert_ne!(AdapterSum::from([("support", 0.7), ("sales", 0.3)]), AdapterSum::default());
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AdapterSum(Vec<(String, f64)>);

impl From<&str> for AdapterSum {
    fn from(name: &str) -> Self {
        Self(vec![(name.to_owned(), 1.0)])
    }
}

impl From<&String> for AdapterSum {
    fn from(name: &String) -> Self {
        Self::from(&**name)
    }
}

impl From<String> for AdapterSum {
    fn from(name: String) -> Self {
        Self(vec![(name, 1.0)])
    }
}

impl From<Option<String>> for AdapterSum {
    fn from(name: Option<String>) -> Self {
        name.map(Self::from).unwrap_or_default()
    }
}

impl<S: Into<String>> FromIterator<(S, f64)> for AdapterSum {
    fn from_iter<I: IntoIterator<Item = (S, f64)>>(weighted: I) -> Self {
        Self(weighted.into_iter().map(|(name, weight)| (name.into(), weight)).collect())
    }
}

impl<S: Into<String>> From<Vec<(S, f64)>> for AdapterSum {
    fn from(weighted: Vec<(S, f64)>) -> Self {
        weighted.into_iter().collect()
    }
}

impl<S: Into<String>, const N: usize> From<[(S, f64); N]> for AdapterSum {
    fn from(weighted: [(S, f64); N]) -> Self {
        weighted.into_iter().collect()
    }
}

/// The adapters of a call: one sum for all of its prompts, or one for each. None is that of the generator.
#[derive(Default)]
pub(super) struct CallAdapters {
    given: Vec<AdapterSum>,
    found: Vec<AdapterWeights>,
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
        let rank = factors.values().map(|own| own.rank).max().unwrap_or_default();
        let modules: BTreeSet<&str> = factors.keys().filter_map(|module| module.rsplit('.').next()).collect();
        let modules = modules.into_iter().map(str::to_owned).collect();
        let loaded = engine.model().adapter(engine.workers(), factors, interrupted).context(named)?;
        let mut all = adapters.0.lock();
        if all.contains_key(name) {
            return Err(taken(name));
        }
        let facts = AdapterFacts { path: adapter.to_owned(), rank, modules, bytes: loaded.bytes() };
        all.insert(name.to_owned(), NamedAdapter { adapter: engine.adapters().add(loaded), facts });
        Ok(())
    }

    /// The same generator, whose calls, scores and embeddings use an adapter or several weighted ones, unless a call
    /// names others.
    ///
    /// # Errors
    /// `Input` when there is none of a name, or a weight is not finite.
    pub fn with_adapter(&self, adapter: impl Into<AdapterSum>) -> Result<Self> {
        let adapters = self.shared.adapters.find(&adapter.into())?;
        Ok(Self { shared: Arc::clone(&self.shared), adapters })
    }

    /// Unloads an adapter. Calls that run with it go on; its memory goes back when they have ended.
    ///
    /// # Errors
    /// `Input` when there is none of this name.
    pub fn unload_adapter(&self, name: &str) -> Result<()> {
        let mut all = self.shared.adapters.0.lock();
        match all.remove(name) {
            Some(adapter) => {
                self.engine().adapters().remove(adapter.adapter.id());
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
        all.iter().map(|(name, adapter)| (name.clone(), adapter.facts.bytes)).collect()
    }

    /// The loaded adapters by their names, with ranks and modules.
    pub fn adapter_facts(&self) -> Vec<(String, AdapterFacts)> {
        let all = self.shared.adapters.0.lock();
        all.iter().map(|(name, adapter)| (name.clone(), adapter.facts.clone())).collect()
    }
}

impl Call<'_> {
    /// Names the adapter of the call, or several with their weights: see [`Generator::load_adapter`].
    ///
    /// ```no_run
    /// # let generator = rsgen::Generator::open("path/to/base")?;
    /// let output = generator.call("Hello").adapter([("support", 0.7), ("sales", 0.3)]).run()?;
    /// # Ok::<(), rsgen::Error>(())
    /// ```
    pub fn adapter(self, adapter: impl Into<AdapterSum>) -> Self {
        self.adapters([adapter])
    }

    /// Names the adapter of each prompt, or several with their weights; `None` is the model alone.
    pub fn adapters(mut self, adapters: impl IntoIterator<Item = impl Into<AdapterSum>>) -> Self {
        let given = adapters.into_iter().map(Into::into).collect();
        self.adapters = CallAdapters { given, found: Vec::new() };
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

    /// The numbers and weights of adapters.
    ///
    /// # Errors
    /// `Input` for an unknown name, and for a weight that is not finite.
    fn find(&self, sum: &AdapterSum) -> Result<AdapterWeights> {
        let all = self.0.lock();
        let found = sum.0.iter().map(|(name, weight)| {
            let adapter = all.get(name).ok_or_else(|| unknown(name, &all))?;
            if !(*weight as f32).is_finite() {
                return Err(Error::input(format!(
                    "must have weights that are finite numbers in float32, got {weight:?} for {name:?}"
                ))
                .about("adapter"));
            }
            Ok((adapter.adapter.id(), *weight))
        });
        AdapterWeights::new(found.collect::<Result<Vec<_>>>()?)
    }
}

impl CallAdapters {
    /// Finds the adapters of the prompts.
    ///
    /// # Errors
    /// `Input` for an unknown name, a weight that is not finite, or another number of adapters than prompts.
    pub(super) fn find(&mut self, generator: &Generator, prompts: &Prompts) -> Result<()> {
        let num_prompts = prompts.len();
        if self.given.len() > 1 && self.given.len() != num_prompts {
            return Err(Error::input(format!(
                "must be one for all prompts or one for each ({num_prompts}), got {}; to add several up for all prompts, give \
                 each with its weight",
                self.given.len()
            ))
            .about("adapter"));
        }
        if self.given.is_empty() {
            self.found = vec![generator.adapters.clone()];
            return Ok(());
        }
        let adapters = &generator.shared.adapters;
        self.found = self.given.iter().map(|sum| adapters.find(sum)).collect::<Result<_>>()?;
        let differs = self.found.iter().any(|other| *other != self.found[0]);
        if differs && matches!(prompts, Prompts::Batch(_)) {
            return Err(Error::input(
                "must be the same for all rows of an array of ids, which are one request; give the rows as a list of lists",
            )
            .about("adapter"));
        }
        Ok(())
    }

    /// The adapters of a prompt.
    pub(super) fn of(&self, index: usize) -> &AdapterWeights {
        self.found.get(index).unwrap_or(&self.found[0])
    }
}

fn taken(name: &str) -> Error {
    Error::input(format!("must be another one, because {name:?} is loaded already; unload it first"))
        .about("name")
}

fn unknown(name: &str, all: &BTreeMap<String, NamedAdapter>) -> Error {
    let names: Vec<String> = all.keys().map(|name| format!("{name:?}")).take(8).collect();
    let known =
        if names.is_empty() { "none is loaded".to_owned() } else { format!("loaded: {}", names.join(", ")) };
    Error::input(format!(
        "must be the name of a loaded adapter, got {name:?} ({known}); load it first: `load_adapter`"
    ))
    .about("adapter")
}
