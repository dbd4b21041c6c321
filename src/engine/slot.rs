//! The slots of an engine: one for its own model, and one for each model that drafts for it.
//!
//! A slot is a part of the KV cache and the memory of passes. All slots share the `kv_cache_bytes` of the engine: each pool
//! may hold as many tokens as the others. Both models of a request need about the same number of tokens, so neither starves
//! the other. The division changes when a draft model is used for the first time, and when one is dropped.

use std::sync::{Arc, Weak};

use super::core::Engine;
use crate::cache::{KvCapacity, KvStore, SharedPool};
use crate::error::Result;
use crate::kernels::Workers;
use crate::model::{CausalLm, Scratch};
use crate::sync::Mutex;

/// How many segments the share of a draft model has.
const SEGMENTS: usize = 16;

/// The cache of one model, and the memory of its passes.
pub(super) struct Slot {
    pub(super) pool: SharedPool,
    /// Locked within a pass only: one pass of an engine runs at a time.
    pub(super) memory: Mutex<PassMemory>,
}

/// The memory of a pass.
pub(super) struct PassMemory {
    pub(super) store: KvStore,
    pub(super) scratch: Scratch,
}

impl Slot {
    pub(super) fn new(capacity: KvCapacity) -> Self {
        let memory = PassMemory { store: KvStore::new(capacity), scratch: Scratch::default() };
        Self { pool: SharedPool::new(capacity), memory: Mutex::new(memory) }
    }

    /// Frees the memory of blocks that the pool has given up.
    pub(super) fn shrink(&self) {
        self.memory.lock().store.shrink(self.pool.num_blocks());
    }

    fn bytes_per_block(&self) -> usize {
        self.pool.capacity().layout().bytes_per_block()
    }
}

/// A model that drafts tokens for another, and its slot in the engine of that one.
pub struct DraftModel {
    engine: Arc<Engine>,
    pub(super) slot: Arc<Slot>,
    /// The threads of the engine that it drafts for.
    pub(super) workers: Workers,
}

impl DraftModel {
    pub(super) fn new(engine: &Arc<Engine>, slot: Arc<Slot>, workers: &Workers) -> Self {
        let workers = workers.with_isa(engine.workers().isa());
        Self { engine: Arc::clone(engine), slot, workers }
    }

    /// The model.
    pub fn model(&self) -> &dyn CausalLm {
        self.engine.model()
    }

    /// Its part of the KV cache.
    pub fn pool(&self) -> &SharedPool {
        &self.slot.pool
    }
}

/// The slots of the models that draft for an engine. A model that nobody holds any more loses its slot.
#[derive(Default)]
pub(super) struct DraftSlots(Mutex<Vec<(Weak<Engine>, Arc<Slot>)>>);

impl DraftSlots {
    /// The slot of a draft model, made if there is none; divides `kv_cache_bytes` among all slots.
    ///
    /// # Errors
    /// `Capacity` when the bytes hold no block of the draft model.
    pub(super) fn of(&self, draft: &Arc<Engine>, target: &Slot, kv_cache_bytes: usize) -> Result<Arc<Slot>> {
        let mut slots = self.0.lock();
        let known = slots.iter().find(|(model, _)| std::ptr::eq(model.as_ptr(), Arc::as_ptr(draft)));
        let slot = if let Some((_, slot)) = known {
            Arc::clone(slot)
        } else {
            let capacity = KvCapacity::from_bytes(*draft.slot().pool.capacity().layout(), kv_cache_bytes)?;
            let all = slots.iter().map(|(_, slot)| slot.bytes_per_block()).sum::<usize>();
            let all = all + target.bytes_per_block() + capacity.layout().bytes_per_block();
            let slot = Arc::new(Slot::new(capacity.with_segment_blocks(kv_cache_bytes / all / SEGMENTS)));
            slot.pool.set_limit(0);
            slots.push((Arc::downgrade(draft), Arc::clone(&slot)));
            slot
        };
        divide(&mut slots, target, kv_cache_bytes);
        Ok(slot)
    }

    /// Removes the slots of models that nobody holds any more, and divides `kv_cache_bytes` among the rest.
    pub(super) fn divide(&self, target: &Slot, kv_cache_bytes: usize) {
        let mut slots = self.0.lock();
        if !slots.is_empty() {
            divide(&mut slots, target, kv_cache_bytes);
        }
    }

    /// The slots.
    pub(super) fn all(&self) -> Vec<Arc<Slot>> {
        self.0.lock().iter().map(|(_, slot)| Arc::clone(slot)).collect()
    }
}

/// Gives each pool its share of the bytes. What another pool cannot give up yet, because it is in use, is missing for now.
fn divide(slots: &mut Vec<(Weak<Engine>, Arc<Slot>)>, target: &Slot, kv_cache_bytes: usize) {
    slots.retain(|(model, _)| model.strong_count() > 0);
    let all: Vec<&Slot> = slots.iter().map(|(_, slot)| &**slot).chain([target]).collect();
    let share = kv_cache_bytes / all.iter().map(|slot| slot.bytes_per_block()).sum::<usize>();
    let bytes_of = |slot: &&Slot| slot.pool.stats().max_blocks * slot.bytes_per_block();
    for slot in &all {
        if slot.pool.stats().max_blocks > share {
            slot.pool.set_limit(share);
        }
    }
    for slot in &all {
        let taken = all.iter().map(bytes_of).sum::<usize>() - bytes_of(slot);
        let free = kv_cache_bytes.saturating_sub(taken) / slot.bytes_per_block();
        if slot.pool.stats().max_blocks < share.min(free) {
            slot.pool.set_limit(share.min(free));
        }
    }
}
