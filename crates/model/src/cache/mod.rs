//! The KV cache: a slab of fixed-size blocks that sequences share by reference count.
//!
//! Forking a sequence (a beam, or a second sample of a prompt) copies a list of integers instead of floats,
//! and the prompt of eight beams is stored and read once. Bookkeeping and storage are separate:
//! [`SharedPool`] and [`SequenceCache`] count blocks, [`KvStore`] holds the floats. They share only
//! [`BlockId`](rsgen_core::types::BlockId) and [`BlockCopy`], a copy that a sequence requests and the store
//! performs. Scheduling and attention are elsewhere.
//!
//! ```text
//!   block tables      sequence A, 70 tokens         [ 4 ][ 7 ][ 2 ]     6 of 32 slots of block 2 are in use
//!                     sequence B, a fork of A       [ 4 ][ 7 ][ 5 ]     B appended, so it got 5 as a copy of 2
//!                                                     └────┴── shared: stored once, read by both
//!
//!   pool              block      0   1   2   3   4   5   6   7 ┊ grows by huge pages up to the maximum
//!                     count      ·   ·   1   ·   2   1   ·   2 ┊
//!                     free list  0   1       3           6     ┊     a free block may still be found by its tokens
//!
//!   store, block 5    [ layer 0: K | V ][ layer 1: K | V ] …
//!                       K  [kv head][head_dim][32 tokens]         a token is a column
//!                       V  [kv head][plane][32 tokens][32 dims]   a token is a row of each plane
//! ```
//!
//! | file | what |
//! |---|---|
//! | `layout` | sizes and offsets of a block |
//! | `capacity` | `kv_cache_bytes` in blocks, and the size of allocations |
//! | `pool` | reference counts, free list, growth, reserved blocks: integers only |
//! | `shared` | the pool behind a lock, and reservations that return their blocks on drop |
//! | `table` | which blocks hold the tokens of a sequence |
//! | `sequence` | append, fork, truncate, drop, with copy on write; publish and adopt |
//! | `prefix` | the published blocks, which sequences with the same beginning share |
//! | `kept` | the published blocks of kept texts |
//! | `shift` | drops tokens from the middle of a sequence |
//! | `chain` | which of them a sequence continues |
//! | `preempt` | gives all blocks of a request back, and takes as many again |
//! | `reorder` | moves, forks and drops beams |
//! | `segment`, `slab`, `store` | the floats |
//! | `invariants` | checks of the pool against all tables |
//!
//! One pass of an engine, which owns the store and all sequences of its requests:
//!
//! ```
//! use rsgen_model::cache::{KvCapacity, KvDtype, KvLayout, KvStore, SequenceCache, SharedPool};
//! use rsgen_kernels::{Isa, Workers};
//!
//! let layout = KvLayout::new(2, 1, 4, KvDtype::F32)?;
//! let capacity = KvCapacity::from_bytes(layout, 1 << 20)?;
//! let (pool, mut store) = (SharedPool::new(capacity), KvStore::new(capacity));
//! let workers = Workers::new(2, Isa::select()?)?;
//!
//! let reservation = pool.reserve(4)?; // two beams of up to 64 tokens cannot run out from here on
//! let mut beam = SequenceCache::within(&reservation);
//! let position = beam.len();
//! let copy = beam.append(1)?;
//! store.ensure(pool.num_blocks(), &workers)?; // memory for the blocks just taken
//! if let Some(copy) = copy {
//!     store.copy(&copy); // all copies, in order, before the first write
//! }
//! for layer in 0..2 {
//!     store.write(layer, beam.table().slot(position), &[1.0; 4], &[2.0; 4]);
//! }
//! # Ok::<(), rsgen_core::error::Error>(())
//! ```

mod capacity;
mod chain;
pub mod invariants;
mod kept;
mod layout;
mod pool;
mod preempt;
mod prefix;
mod reorder;
mod segment;
mod sequence;
mod shared;
mod shift;
mod slab;
mod store;
mod table;
#[cfg(test)]
mod tests;

pub use capacity::KvCapacity;
pub use kept::KeptBlocks;
pub use layout::{BLOCK_TOKENS, BlockCopy, KvDtype, KvLayout, VALUE_PLANE, blocks_for};
pub use pool::PoolStats;
pub use preempt::{Preempted, RecomputedTokens};
pub use reorder::{ReorderPlan, ReorderStep};
pub use sequence::{Adopted, SequenceCache};
pub use shared::{Reservation, SharedPool};
pub use shift::{BlockShift, KeyRotation};
pub use slab::{KvRows, TypedKv};
pub use store::{KvStore, KvView};
pub use table::BlockTable;
