//! A model with its threads and its KV cache, and the forward pass that all requests share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use super::adapters::Adapters;
use super::pass::Scheduler;
use super::pending::{PendingRows, SharedRows};
use super::queue::{Caller, Interrupt};
use super::slot::{ModelRunner, Slots};
use super::timing;
use rsgen_core::{Error, ErrorKind, OwnerPid, Result};
use rsgen_kernels::{Limits, Workers};
use rsgen_model::cache::{KvCapacity, KvDtype, SharedPool};
use rsgen_model::{CausalLm, Timing};

/// How an [`Engine`] uses the machine.
#[derive(Debug, Clone, Copy)]
pub struct EngineOptions {
    /// The type that keys and values are stored in.
    pub kv_dtype: KvDtype,
    /// The most memory that the KV cache may take, in bytes, those of draft models included.
    pub kv_cache_bytes: usize,
    /// Whether requests share the computed blocks of texts with the same beginning.
    pub prefix_caching: bool,
    /// Whether calls log where their time went.
    pub is_timed: bool,
}

/// A model that can run any number of requests, from any number of threads.
///
/// Calls from several threads join the same passes, whatever their strategy: a pass reads the weights once
/// for all of them. In a forked process every call is an error.
pub struct Engine {
    scheduler: Scheduler,
    /// Whether requests share the computed blocks of texts with the same beginning.
    pub(super) prefix_caching: bool,
    adapters: Adapters,
    /// How many requests have arrived.
    arrivals: AtomicU64,
    owner: OwnerPid,
    /// Whether all work has to end.
    closed: AtomicBool,
    /// The peak rates of the threads; `None` unless calls are timed.
    limits: Option<Limits>,
    /// That of the model's runner. The last field, so that it is dropped after all others.
    lifetime: Arc<()>,
}

impl Engine {
    /// An engine for a model.
    ///
    /// # Errors
    /// When the cache is too small for a single token.
    pub fn new(model: Box<dyn CausalLm>, workers: Workers, options: EngineOptions) -> Result<Self> {
        let EngineOptions { kv_dtype, kv_cache_bytes, prefix_caching, is_timed } = options;
        let capacity = KvCapacity::from_bytes(model.kv_layout(kv_dtype)?, kv_cache_bytes)?
            .with_texts_continued(model.encoder().is_none());
        let limits = is_timed.then(|| timing::limits(&workers));
        let slots = Slots::new(ModelRunner::new(model, workers, capacity), kv_cache_bytes);
        let lifetime = Arc::clone(slots.target.lifetime());
        Ok(Self {
            scheduler: Scheduler::new(slots),
            prefix_caching,
            adapters: Adapters::default(),
            arrivals: AtomicU64::new(0),
            owner: OwnerPid::current(),
            closed: AtomicBool::new(false),
            limits,
            lifetime,
        })
    }

    /// Upgrades until the memory of the model and its cache is free. A weak reference to the engine itself ends
    /// earlier: when another thread begins to drop it, and while requests without work hold the model.
    pub fn lifetime(&self) -> Weak<()> {
        Arc::downgrade(&self.lifetime)
    }

    /// The model.
    pub fn model(&self) -> &dyn CausalLm {
        self.slots().target.model()
    }

    /// The adapters that are loaded beside the model.
    pub fn adapters(&self) -> &Adapters {
        &self.adapters
    }

    /// The threads.
    pub fn workers(&self) -> &Workers {
        self.slots().target.workers()
    }

    /// The block pool of the KV cache. First reclaims the blocks of draft models that have been dropped.
    pub fn pool(&self) -> &SharedPool {
        self.slots().pool()
    }

    /// The parts of the KV cache that draft models have; none in a forked process.
    pub fn draft_pools(&self) -> Vec<SharedPool> {
        self.slots().draft_pools()
    }

    /// Lets the model of another engine draft for this one. It gets a part of this engine's KV cache until
    /// its last handle is dropped.
    ///
    /// # Errors
    /// `Capacity` when the cache is too small for a block of it; `Fork`.
    pub fn draft(&self, model: &Self) -> Result<ModelRunner> {
        self.check_process()?;
        model.check_process()?;
        self.slots().draft(&model.slots().target)
    }

    /// Its own model and those that draft for it.
    pub(super) fn slots(&self) -> &Slots {
        &self.scheduler.slots
    }

    /// Returns an error in a forked process.
    ///
    /// # Errors
    /// `Fork`.
    pub fn check_process(&self) -> Result<()> {
        self.owner.check()
    }

    /// Ends all work: whoever waits for a pass, or does so later, gets a `Cancelled` error that says so.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    /// The error of work on a closed engine; `None` while it is open.
    pub fn closed(&self) -> Option<Error> {
        let rule = "the generator was closed before the work had ended; open another, and call again";
        self.closed.load(Ordering::Relaxed).then(|| Error::new(ErrorKind::Cancelled, rule))
    }

    /// A stopwatch for one call.
    pub(super) fn timing(&self) -> Timing {
        Timing::new(self.limits.is_some())
    }

    /// Logs the profile of a call, if calls are timed.
    pub(super) fn report(&self, timing: &Timing) {
        if let Some(limits) = &self.limits {
            timing::report(timing, limits, self.workers());
        }
    }

    /// A new caller of the queue.
    pub(super) fn caller(&self) -> Caller {
        Caller::new(&self.scheduler.queue)
    }

    /// Waits until some of a caller's rows are computed or have failed; leads passes when nobody else does.
    ///
    /// # Errors
    /// `Cancelled` when `interrupted` returns true or the engine is closed; its rows stay in the queue as long
    /// as their tickets. `Fork`.
    pub(super) fn wait(
        &self,
        caller: &Caller,
        timing: &mut Timing,
        interrupted: &mut Interrupt<'_>,
    ) -> Result<()> {
        self.check_process()?;
        let mut stopped = || self.closed.load(Ordering::Relaxed) || interrupted();
        if let Some(error) = self.closed() {
            return Err(error);
        }
        let waited = caller.wait(timing, &mut stopped, &mut |timing, interrupted| {
            self.scheduler.lead(caller.id, timing, interrupted)
        });
        waited.map_err(|error| self.closed().unwrap_or(error))
    }

    /// The place of a new request in the order of arrival.
    pub(super) fn next_age(&self) -> u64 {
        self.arrivals.fetch_add(1, Ordering::Relaxed)
    }

    /// Adds a request to those that may hold blocks.
    pub(super) fn admit(&self, rows: PendingRows) -> SharedRows {
        self.scheduler.residents.add(rows)
    }

    /// How many passes have been computed, of all models.
    pub fn passes(&self) -> u64 {
        self.scheduler.queue.passes()
    }

    /// How often a request has lost its blocks to an older one, to be computed again later.
    pub fn preemptions(&self) -> u64 {
        self.scheduler.residents.preemptions()
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("workers", self.workers()).finish_non_exhaustive()
    }
}
