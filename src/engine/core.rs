//! A model with its threads and its KV cache, and the forward pass that all requests share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::pass::PassState;
use super::queue::{Caller, Queue};
use super::residents::Residents;
use super::slot::{DraftModel, DraftSlots, Slot};
use super::timing;
use crate::cache::{KvCapacity, KvDtype, KvStore, SharedPool};
use crate::error::Result;
use crate::kernels::{Limits, Workers};
use crate::model::{CausalLm, Timing};
use crate::process::OwnerPid;
use crate::sync::Mutex;

/// Polled at least every few milliseconds, on the thread that drives the work. Returns true to stop the work.
pub type Interrupt<'a> = dyn FnMut() -> bool + 'a;

/// How an [`Engine`] uses the machine.
#[derive(Debug, Clone, Copy)]
pub struct EngineOptions {
    /// The type that keys and values are stored in.
    pub kv_dtype: KvDtype,
    /// The most memory that the KV cache may take, in bytes, those of draft models included.
    pub kv_cache_bytes: usize,
    /// Whether calls log where their time went.
    pub is_timed: bool,
}

/// A model that can run any number of requests, from any number of threads.
///
/// Calls from several threads join the same passes, whatever their strategy: a pass reads the weights once for all of them.
/// In a forked process every call is an error.
pub struct Engine {
    model: Box<dyn CausalLm>,
    workers: Workers,
    slot: Slot,
    /// The models that draft for this one.
    drafts: DraftSlots,
    kv_cache_bytes: usize,
    /// What waits for the next pass, of any slot.
    queue: Arc<Queue>,
    /// Held by the pass that runs.
    pass_state: Mutex<PassState>,
    /// The requests that may hold blocks.
    residents: Residents,
    /// How many requests have arrived.
    arrivals: AtomicU64,
    owner: OwnerPid,
    /// The peak rates of the threads; `None` unless calls are timed.
    limits: Option<Limits>,
}

impl Engine {
    /// An engine for a model.
    ///
    /// # Errors
    /// When the cache is too small for a single token.
    pub fn new(model: Box<dyn CausalLm>, workers: Workers, options: EngineOptions) -> Result<Self> {
        let EngineOptions { kv_dtype, kv_cache_bytes, is_timed } = options;
        let capacity = KvCapacity::from_bytes(model.kv_layout(kv_dtype)?, kv_cache_bytes)?;
        let limits = is_timed.then(|| timing::limits(&workers));
        Ok(Self {
            model,
            workers,
            slot: Slot::new(capacity),
            drafts: DraftSlots::default(),
            kv_cache_bytes,
            queue: Arc::default(),
            pass_state: Mutex::default(),
            residents: Residents::default(),
            arrivals: AtomicU64::new(0),
            owner: OwnerPid::current(),
            limits,
        })
    }

    /// The model.
    pub fn model(&self) -> &dyn CausalLm {
        &*self.model
    }

    /// The threads.
    pub fn workers(&self) -> &Workers {
        &self.workers
    }

    /// The blocks of the KV cache. Those of draft models that nobody holds any more return to it first.
    pub fn pool(&self) -> &SharedPool {
        if self.owner.is_current() {
            self.drafts.divide(&self.slot, self.kv_cache_bytes);
        }
        &self.slot.pool
    }

    /// The parts of the KV cache that draft models have; none in a forked process.
    pub fn draft_pools(&self) -> Vec<SharedPool> {
        let slots = if self.owner.is_current() { self.drafts.all() } else { Vec::new() };
        slots.iter().map(|slot| slot.pool.clone()).collect()
    }

    /// Lets the model of another engine draft for this one. It gets a part of this engine's KV cache, which it keeps as long
    /// as somebody holds it.
    ///
    /// # Errors
    /// `Capacity` when the cache is too small for a block of it; `Fork`.
    pub fn draft(&self, model: &Arc<Self>) -> Result<DraftModel> {
        self.check_process()?;
        model.check_process()?;
        let slot = self.drafts.of(model, &self.slot, self.kv_cache_bytes)?;
        Ok(DraftModel::new(model, slot, &self.workers))
    }

    /// The most bytes of the KV cache.
    pub(super) fn kv_cache_bytes(&self) -> usize {
        self.kv_cache_bytes
    }

    /// The slot of its own model.
    pub(super) fn slot(&self) -> &Slot {
        &self.slot
    }

    /// Returns an error in a forked process.
    ///
    /// # Errors
    /// `Fork`.
    pub fn check_process(&self) -> Result<()> {
        self.owner.check()
    }

    /// A stopwatch for one call.
    pub(super) fn timing(&self) -> Timing {
        Timing::new(self.limits.is_some())
    }

    /// The peak rates of the threads, measured when the model was opened; `None` unless calls are timed.
    pub(super) fn limits(&self) -> Option<&Limits> {
        self.limits.as_ref()
    }

    /// Somebody new who hands in rows.
    pub(super) fn caller(&self) -> Caller {
        Caller::new(&self.queue)
    }

    /// The place of a new request in the order of arrival.
    pub(super) fn next_age(&self) -> u64 {
        self.arrivals.fetch_add(1, Ordering::Relaxed)
    }

    /// The requests that may hold blocks.
    pub(super) fn residents(&self) -> &Residents {
        &self.residents
    }

    /// What the leaders of passes hand on.
    pub(super) fn pass_state(&self) -> &Mutex<PassState> {
        &self.pass_state
    }

    /// Gives the store of a slot memory for all blocks of its pool; other slots give up what their pools have dropped.
    pub(super) fn ensure(&self, slot: &Slot, store: &mut KvStore) -> Result<()> {
        let num_blocks = slot.pool.num_blocks();
        if store.num_blocks() < num_blocks {
            let drafts = self.drafts.all();
            let others = drafts.iter().map(|draft| &**draft).chain([&self.slot]);
            others.filter(|other| !std::ptr::eq(*other, slot)).for_each(Slot::shrink);
        }
        store.ensure(num_blocks)
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("workers", &self.workers).finish_non_exhaustive()
    }
}
