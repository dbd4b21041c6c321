//! A model with its threads and its KV cache, and the forward pass that all requests share.

use super::ticket_lock::TicketLock;
use super::timing;
use crate::cache::{BlockCopy, KvCapacity, KvDtype, KvStore, SharedPool};
use crate::error::Result;
use crate::kernels::{Limits, Work, Workers};
use crate::model::{CausalLm, ForwardBatch, ForwardContext, ForwardOutput, Scratch, Stage, Timing};
use crate::process::OwnerPid;

/// Polled at least every few milliseconds, on the thread that drives the work. Returns true to stop the work.
pub type Interrupt<'a> = dyn FnMut() -> bool + 'a;

/// How an [`Engine`] uses the machine.
#[derive(Debug, Clone, Copy)]
pub struct EngineOptions {
    /// The type that keys and values are stored in.
    pub kv_dtype: KvDtype,
    /// The most memory that the KV cache may take, in bytes.
    pub kv_cache_bytes: usize,
    /// Whether calls log where their time went.
    pub is_timed: bool,
}

/// A model that can run any number of requests, from any number of threads.
///
/// Calls from several threads alternate pass by pass. In a forked process every call is an error.
pub struct Engine {
    model: Box<dyn CausalLm>,
    workers: Workers,
    pool: SharedPool,
    pass_state: TicketLock<PassState>,
    owner: OwnerPid,
    /// The peak rates of the threads; `None` unless calls are timed.
    limits: Option<Limits>,
}

/// The memory of a pass. One pass runs at a time.
struct PassState {
    store: KvStore,
    scratch: Scratch,
}

impl Engine {
    /// An engine for a model.
    ///
    /// # Errors
    /// When the cache is too small for a single token.
    pub fn new(model: Box<dyn CausalLm>, workers: Workers, options: EngineOptions) -> Result<Self> {
        let EngineOptions { kv_dtype, kv_cache_bytes, is_timed } = options;
        let capacity = KvCapacity::from_bytes(model.kv_layout(kv_dtype)?, kv_cache_bytes)?;
        let pass_state = PassState { store: KvStore::new(capacity), scratch: Scratch::default() };
        let (pool, limits) = (SharedPool::new(capacity), is_timed.then(|| timing::limits(&workers)));
        Ok(Self {
            model,
            workers,
            pool,
            pass_state: TicketLock::new(pass_state),
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

    /// The blocks of the KV cache.
    pub fn pool(&self) -> &SharedPool {
        &self.pool
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

    /// Computes rows whose slots have been appended to their tables.
    ///
    /// `copies` are the block copies that the appends returned, in the same order. The results go to memory of the caller,
    /// so that no code of the caller runs while the lock is held.
    pub(super) fn pass(
        &self,
        batch: &ForwardBatch<'_>,
        copies: &[BlockCopy],
        timing: &mut Timing,
        interrupted: &mut Interrupt<'_>,
        out: &mut ForwardOutput,
    ) -> Result<()> {
        self.check_process()?;
        let mut pass_state = self.pass_state.lock(interrupted)?;
        timing.lap(Stage::Wait, Work::default);
        let PassState { store, scratch } = &mut *pass_state;
        store.ensure(self.pool.num_blocks())?;
        for copy in copies {
            store.copy(copy);
        }
        timing.lap(Stage::Cache, Work::default);
        let mut context = ForwardContext { workers: &self.workers, scratch, timing, interrupted };
        self.model.forward(batch, store, &mut context, out)
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("workers", &self.workers).finish_non_exhaustive()
    }
}
