//! The models of an engine, its own and those that draft for it, each with a slot: its part of the KV cache
//! and the memory of its passes.
//!
//! All slots share the `kv_cache_bytes` of the engine: each pool may hold as many tokens as the others. Both
//! models of a request need about the same number of tokens, so neither starves the other. The division
//! changes when a draft model is used for the first time, and when one is dropped.

use std::sync::{Arc, Weak};

use super::batching::{BatchBuilder, CacheCopy};
use rsgen_core::memory::recycled;
use rsgen_core::{Error, Mutex, OwnerPid, Result};
use rsgen_kernels::{Work, Workers};
use rsgen_model::cache::{BlockTable, KvCapacity, KvStore, SharedPool};
use rsgen_model::{
    CausalLm, EncodeBatch, EncodeOutput, ForwardBatch, ForwardContext, ForwardOutput, Scratch, Stage, Timing,
};

/// How many segments the share of a draft model has.
const SEGMENTS: usize = 16;

/// A model with its slot and the threads that compute it.
pub struct ModelRunner {
    model: Arc<dyn CausalLm>,
    slot: Arc<Slot>,
    workers: Workers,
    /// The last field, so that it is dropped after the model and the slot.
    lifetime: Arc<()>,
}

/// The cache of one model, and the memory of its passes.
struct Slot {
    pool: SharedPool,
    /// Locked within a pass only: one pass of an engine runs at a time.
    memory: Mutex<PassMemory>,
}

/// The memory of a pass.
struct PassMemory {
    store: KvStore,
    scratch: Scratch,
    /// Empty between passes.
    tables: Vec<&'static BlockTable>,
    sources: Vec<&'static BlockTable>,
}

impl Slot {
    fn new(capacity: KvCapacity) -> Self {
        let memory = PassMemory {
            store: KvStore::new(capacity),
            scratch: Scratch::default(),
            tables: Vec::new(),
            sources: Vec::new(),
        };
        Self { pool: SharedPool::new(capacity), memory: Mutex::new(memory) }
    }

    /// Frees the memory of blocks that the pool no longer has.
    fn shrink(&self) {
        self.memory.lock().store.shrink(self.pool.num_blocks());
    }

    fn bytes_per_block(&self) -> usize {
        self.pool.capacity().layout().bytes_per_block()
    }
}

impl ModelRunner {
    /// A model whose KV cache has all of `capacity`.
    pub(super) fn new(model: Box<dyn CausalLm>, workers: Workers, capacity: KvCapacity) -> Self {
        let lifetime = Arc::default();
        Self { model: Arc::from(model), slot: Arc::new(Slot::new(capacity)), workers, lifetime }
    }

    /// The model.
    pub fn model(&self) -> &dyn CausalLm {
        &*self.model
    }

    /// A reference that lasts until the memory of all runners of this slot is free.
    pub(super) fn lifetime(&self) -> &Arc<()> {
        &self.lifetime
    }

    /// Its part of the KV cache.
    pub fn pool(&self) -> &SharedPool {
        &self.slot.pool
    }

    /// The threads.
    pub(super) fn workers(&self) -> &Workers {
        &self.workers
    }

    /// Whether both compute the same model in the same slot.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.slot, &other.slot)
    }

    /// Computes the rows of a batch. `copied` is called when the copies of the batch are made.
    ///
    /// # Errors
    /// `Cancelled` when `interrupted` returns true; `Capacity` when there is no memory.
    pub(super) fn forward(
        &self,
        slots: &Slots,
        batch: &BatchBuilder,
        copied: &mut dyn FnMut(),
        timing: &mut Timing,
        interrupted: &mut dyn FnMut() -> bool,
        out: &mut ForwardOutput,
    ) -> Result<()> {
        let mut memory = self.slot.memory.lock();
        let PassMemory { store, scratch, tables, sources } = &mut *memory;
        slots.ensure(&self.slot, store, &self.workers)?;
        for copy in &batch.copies {
            match copy {
                CacheCopy::Block(copy) => store.copy(copy),
                CacheCopy::Shift(shift) => {
                    let rotation = self.model.rotation_back(shift.dropped);
                    store.shift(self.workers.isa(), shift, &rotation);
                }
            }
        }
        copied();
        timing.lap(Stage::Cache, Work::default);
        let mut batch_tables = recycled(std::mem::take(tables));
        batch_tables.extend(batch.tables());
        let mut batch_sources = recycled(std::mem::take(sources));
        batch_sources.extend(batch.sources());
        let forward = ForwardBatch {
            rows: &batch.rows,
            tables: &batch_tables,
            sources: &batch_sources,
            embeddings: &batch.embeddings,
            adapters: &batch.adapters,
        };
        let mut context = ForwardContext { workers: &self.workers, scratch, timing, interrupted };
        let computed = self.model.forward(&forward, store, &mut context, out);
        *tables = recycled(batch_tables);
        *sources = recycled(batch_sources);
        computed
    }

    /// Encodes the sources of a batch.
    ///
    /// # Errors
    /// As for [`ModelRunner::forward`]; `Internal` for a model without an encoder.
    pub(super) fn encode(
        &self,
        slots: &Slots,
        batch: &BatchBuilder,
        timing: &mut Timing,
        interrupted: &mut dyn FnMut() -> bool,
        out: &mut EncodeOutput,
    ) -> Result<()> {
        let encoder = self.model.encoder();
        let encoder = encoder.ok_or_else(|| Error::internal("a source for a model without an encoder"))?;
        let mut memory = self.slot.memory.lock();
        let PassMemory { store, scratch, .. } = &mut *memory;
        slots.ensure(&self.slot, store, &self.workers)?;
        timing.lap(Stage::Cache, Work::default);
        let tables: Vec<&BlockTable> = batch.tables().iter().collect();
        let encode = EncodeBatch { rows: &batch.source_rows, tables: &tables, embeddings: &batch.embeddings };
        let mut context = ForwardContext { workers: &self.workers, scratch, timing, interrupted };
        encoder.encode(&encode, store, &mut context, out)
    }
}

/// The slots of draft models, each until its model is dropped.
type DraftSlots = Vec<(Weak<dyn CausalLm>, Arc<Slot>)>;

/// All models of an engine.
pub(super) struct Slots {
    /// The engine's own model.
    pub(super) target: Arc<ModelRunner>,
    drafts: Mutex<DraftSlots>,
    /// The most bytes of all parts of the KV cache together.
    pub(super) kv_cache_bytes: usize,
    owner: OwnerPid,
}

impl Slots {
    /// The slots of an engine without draft models.
    pub(super) fn new(target: ModelRunner, kv_cache_bytes: usize) -> Self {
        let owner = OwnerPid::current();
        Self { target: Arc::new(target), drafts: Mutex::default(), kv_cache_bytes, owner }
    }

    /// The runner of another engine's model in this engine. Creates its slot if needed, and divides the bytes
    /// anew.
    ///
    /// # Errors
    /// `Capacity` when the bytes hold no block of the draft model.
    pub(super) fn draft(&self, of: &ModelRunner) -> Result<ModelRunner> {
        let ModelRunner { model, slot, workers, lifetime: _ } = of;
        let mut drafts = self.drafts.lock();
        let known = drafts.iter().find(|(known, _)| std::ptr::addr_eq(known.as_ptr(), Arc::as_ptr(model)));
        let slot = if let Some((_, slot)) = known {
            Arc::clone(slot)
        } else {
            let own = slot.pool.capacity();
            let capacity = KvCapacity::from_bytes(*own.layout(), self.kv_cache_bytes)?
                .with_texts_continued(own.are_texts_continued());
            let all = drafts.iter().map(|(_, slot)| slot.bytes_per_block()).sum::<usize>();
            let all = all + self.target.slot.bytes_per_block() + capacity.layout().bytes_per_block();
            let slot = Slot::new(capacity.with_segment_blocks(self.kv_cache_bytes / all / SEGMENTS));
            slot.pool.set_limit(0);
            let slot = Arc::new(slot);
            drafts.push((Arc::downgrade(model), Arc::clone(&slot)));
            slot
        };
        self.divide_among(&mut drafts);
        let workers = self.target.workers.with_isa(workers.isa());
        Ok(ModelRunner { model: Arc::clone(model), slot, workers, lifetime: Arc::default() })
    }

    /// The block pool of the engine's own model. First reclaims the blocks of draft models that have been
    /// dropped.
    pub(super) fn pool(&self) -> &SharedPool {
        // In a forked process no thread is left to unlock the list.
        if self.owner.is_current() {
            let mut drafts = self.drafts.lock();
            if !drafts.is_empty() {
                self.divide_among(&mut drafts);
            }
        }
        self.target.pool()
    }

    /// The parts of the KV cache that draft models have; none in a forked process.
    pub(super) fn draft_pools(&self) -> Vec<SharedPool> {
        if !self.owner.is_current() {
            return Vec::new();
        }
        self.drafts.lock().iter().map(|(_, slot)| slot.pool.clone()).collect()
    }

    /// Removes the slots of dropped models, and gives each other pool its share of the bytes. A pool gets
    /// less as long as another one still uses more than its share.
    fn divide_among(&self, drafts: &mut DraftSlots) {
        drafts.retain(|(model, _)| model.strong_count() > 0);
        let all: Vec<&Slot> = drafts.iter().map(|(_, slot)| &**slot).chain([&*self.target.slot]).collect();
        let share = self.kv_cache_bytes / all.iter().map(|slot| slot.bytes_per_block()).sum::<usize>();
        let bytes_of = |slot: &&Slot| slot.pool.stats().max_blocks * slot.bytes_per_block();
        for slot in &all {
            if slot.pool.stats().max_blocks > share {
                slot.pool.set_limit(share);
            }
        }
        for slot in &all {
            let taken = all.iter().map(bytes_of).sum::<usize>() - bytes_of(slot);
            let free = self.kv_cache_bytes.saturating_sub(taken) / slot.bytes_per_block();
            if slot.pool.stats().max_blocks < share.min(free) {
                slot.pool.set_limit(share.min(free));
            }
        }
    }

    /// Grows the store of a slot to all blocks of its pool. First shrinks the stores of the other slots to
    /// theirs.
    fn ensure(&self, slot: &Slot, store: &mut KvStore, workers: &Workers) -> Result<()> {
        let num_blocks = slot.pool.num_blocks();
        if store.num_blocks() >= num_blocks {
            return Ok(());
        }
        let drafts: Vec<Arc<Slot>> = self.drafts.lock().iter().map(|(_, slot)| Arc::clone(slot)).collect();
        let others = drafts.iter().chain([&self.target.slot]);
        others.filter(|other| !std::ptr::eq(Arc::as_ptr(other), slot)).for_each(|other| other.shrink());
        store.ensure(num_blocks, workers)?;
        store.prefault(slot.pool.stats().max_blocks);
        Ok(())
    }
}
