//! A mutex-protected pool, and reservations that return their blocks on drop.
//!
//! Each sequence holds a handle of the pool, because it returns its blocks when it is dropped, on any thread.
//! The lock is held for a few additions and never across a pass. Only [`SequenceCache`](super::SequenceCache)
//! takes blocks, so none can leak.

use std::fmt;
use std::sync::{Arc, MutexGuard};

use super::capacity::KvCapacity;
use super::pool::{BlockPool, PoolStats, ReservationId};
use rsgen_core::error::Result;
use rsgen_core::process::OwnerPid;
use rsgen_core::sync::Mutex;

/// A handle of a block pool; clones refer to the same pool.
#[derive(Clone)]
pub struct SharedPool(Arc<Shared>);

struct Shared {
    capacity: KvCapacity,
    blocks: Mutex<BlockPool>,
    /// The process whose threads may hold the lock. In a forked one no thread is left to unlock it.
    owner: OwnerPid,
}

impl SharedPool {
    /// A pool that owns no block yet and grows up to `capacity`.
    pub fn new(capacity: KvCapacity) -> Self {
        let blocks = Mutex::new(BlockPool::new(capacity));
        Self(Arc::new(Shared { capacity, blocks, owner: OwnerPid::current() }))
    }

    /// The limits of the pool.
    pub fn capacity(&self) -> KvCapacity {
        self.0.capacity
    }

    /// Blocks the pool has grown to so far: those the store must have memory for.
    pub fn num_blocks(&self) -> usize {
        self.lock().blocks.len()
    }

    /// The current state of the pool; all zero in a forked process.
    pub fn stats(&self) -> PoolStats {
        self.lock_at_home().map_or_else(PoolStats::default, |pool| pool.stats())
    }

    /// Changes the most blocks of the pool to `limit`, less what is no whole segment, and drops free blocks
    /// beyond. While blocks beyond it are used or reserved, the limit stays higher. Returns the new limit, at
    /// most the capacity.
    pub fn set_limit(&self, limit: usize) -> usize {
        let mut pool = self.lock();
        pool.set_limit(limit);
        pool.limit
    }

    /// Sets `blocks` blocks aside, so that sequences made [`within`](super::SequenceCache::within) the
    /// reservation cannot run out before they hold that many at once. Constant time; no memory is taken.
    ///
    /// # Errors
    /// `Capacity` when fewer are available; the message tells needed, free and total blocks. `Fork` in a
    /// forked process.
    pub fn reserve(&self, blocks: usize) -> Result<Reservation> {
        self.0.owner.check()?;
        let id = self.lock().reserve(blocks)?;
        Ok(Reservation { pool: self.clone(), id })
    }

    /// Whether the pool can ever have `blocks` blocks.
    ///
    /// # Errors
    /// `Capacity` when its limit is lower; `Fork` in a forked process.
    pub fn check_limit(&self, blocks: usize) -> Result<()> {
        self.0.owner.check()?;
        self.lock().check_limit(blocks)
    }

    /// Whether both are handles of one pool.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Never hold this while dropping a sequence or a reservation: they lock, too.
    pub(super) fn lock(&self) -> MutexGuard<'_, BlockPool> {
        self.0.blocks.lock()
    }

    /// The lock for drops; `None` in a forked process.
    pub(super) fn lock_at_home(&self) -> Option<MutexGuard<'_, BlockPool>> {
        self.0.owner.is_current().then(|| self.lock())
    }
}

impl fmt::Debug for SharedPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never waits for the lock: panicking code prints it as well.
        let stats = self.0.blocks.try_lock().map(|pool| pool.stats());
        f.debug_tuple("SharedPool").field(&stats).finish()
    }
}

/// Blocks set aside for one request.
///
/// Its sequences draw blocks from it, and released blocks return to it, so a request within its reservation
/// can fork and roll back freely. Beyond the reservation its sequences compete with all others. Dropping it
/// returns the remaining blocks to the pool; the sequences keep theirs.
#[derive(Debug)]
#[must_use = "dropping it gives the blocks back"]
pub struct Reservation {
    pool: SharedPool,
    id: ReservationId,
}

impl Reservation {
    /// Blocks that were set aside.
    pub fn size(&self) -> usize {
        self.pool.lock().accounts[&self.id].size
    }

    /// Blocks that can still be drawn.
    pub fn remaining(&self) -> usize {
        self.pool.lock().accounts[&self.id].remaining()
    }

    /// The pool they are in.
    pub fn pool(&self) -> &SharedPool {
        &self.pool
    }

    pub(super) fn id(&self) -> ReservationId {
        self.id
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(mut pool) = self.pool.lock_at_home() {
            pool.unreserve(self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::cache::invariants::check;
    use crate::cache::tests::pool_of;
    use crate::cache::{BLOCK_TOKENS, SequenceCache};
    use rsgen_core::error::ErrorKind;

    #[test]
    fn the_pool_grows_in_segments_and_ends_at_the_maximum() {
        let pool = SharedPool::new(pool_of(7).capacity().with_segment_blocks(4));
        let mut sequence = SequenceCache::new(&pool);
        let mut grown = vec![pool.num_blocks()];
        for _ in 0..7 {
            sequence.append(BLOCK_TOKENS).unwrap();
            grown.push(pool.num_blocks());
        }
        assert_eq!(grown, [0, 4, 4, 4, 4, 7, 7, 7]);
        assert!(sequence.append(1).is_err());
        assert_eq!(pool.num_blocks(), 7);
    }

    #[test]
    fn a_refusal_tells_needed_free_and_total_in_tokens_and_bytes() {
        let pool = pool_of(4);
        let bytes = pool.capacity().layout().bytes_per_block();
        let mut first = SequenceCache::new(&pool);
        first.append(2 * BLOCK_TOKENS).unwrap();
        let _reservation = pool.reserve(1).unwrap();

        let error = SequenceCache::new(&pool).append(65).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Capacity);
        assert_eq!(
            error.to_string(),
            format!(
                "the KV cache does not suffice: 3 blocks (96 tokens, {} bytes) needed, 1 block (32 tokens, {bytes} bytes) \
                 free, 4 blocks (128 tokens, {} bytes) in total; raise `kv_cache_bytes` to {}, wait for running requests \
                 to end, or ask for shorter or fewer sequences",
                3 * bytes,
                4 * bytes,
                6 * bytes
            )
        );
        let hopeless = pool.reserve(usize::MAX).unwrap_err().to_string();
        assert!(!hopeless.contains("wait"), "{hopeless}");
    }

    #[test]
    fn reserved_blocks_are_kept_from_others_and_drawn_first() {
        let pool = pool_of(5);
        let reservation = pool.reserve(3).unwrap();
        assert!(pool.reserve(3).is_err());
        let mut stranger = SequenceCache::new(&pool);
        stranger.append(2 * BLOCK_TOKENS).unwrap();
        assert!(stranger.append(1).is_err(), "the rest is reserved");

        let mut sequence = SequenceCache::within(&reservation);
        sequence.append(3 * BLOCK_TOKENS).unwrap();
        assert_eq!((reservation.size(), reservation.remaining()), (3, 0));
        assert!(sequence.append(1).is_err(), "beyond the reservation nothing is free");
        drop(stranger);
        sequence.append(1).unwrap();
        check(&pool, [sequence.table()]).unwrap();
    }

    #[test]
    fn released_blocks_come_back_to_their_reservation() {
        let pool = pool_of(4);
        let reservation = pool.reserve(3).unwrap();
        let mut sequence = SequenceCache::within(&reservation);
        sequence.append(3 * BLOCK_TOKENS).unwrap();
        let fork = sequence.fork();
        sequence.truncate(1);
        assert_eq!(reservation.remaining(), 0, "the fork still holds all blocks");
        drop(fork);
        assert_eq!(reservation.remaining(), 2);

        let mut stranger = SequenceCache::new(&pool);
        stranger.append(BLOCK_TOKENS).unwrap();
        assert!(stranger.append(1).is_err(), "a rolled back block is not up for grabs");
        sequence.append(2 * BLOCK_TOKENS).unwrap();
    }

    #[test]
    fn a_dropped_reservation_gives_back_its_rest_and_leaves_what_is_in_use() {
        let pool = pool_of(4);
        let reservation = pool.reserve(4).unwrap();
        let mut sequence = SequenceCache::within(&reservation);
        sequence.append(1).unwrap();
        drop(reservation);
        assert_eq!((pool.stats().reserved_blocks, pool.stats().available_blocks), (0, 3));
        // The id of the dropped reservation is carried on and must mean nothing.
        sequence.append(3 * BLOCK_TOKENS).unwrap();
        check(&pool, [sequence.table()]).unwrap();
        drop(sequence);
        assert_eq!((pool.stats().used_blocks, pool.stats().available_blocks), (0, 4));
    }

    #[test]
    fn threads_that_share_a_pool_leave_it_whole() {
        let pool = pool_of(48);
        // Reserving eight each, before any of them takes more, leaves sixteen to compete for: some appends
        // are refused.
        let reservations: Vec<_> = (0..4).map(|_| pool.reserve(8).unwrap()).collect();
        thread::scope(|scope| {
            for (id, reservation) in reservations.into_iter().enumerate() {
                scope.spawn(move || {
                    for round in 0..500 {
                        let mut parent = SequenceCache::within(&reservation);
                        parent.append((round * 7 + id) % 100 + 1).unwrap();
                        let mut children: Vec<_> = (0..4).map(|_| parent.fork()).collect();
                        for child in &mut children {
                            let before = child.len();
                            if let Err(error) = child.append(round % 130) {
                                assert_eq!(error.kind(), ErrorKind::Capacity);
                                assert_eq!(child.len(), before);
                            }
                        }
                        parent.truncate(round % 40);
                    }
                    assert_eq!(reservation.remaining(), 8);
                });
            }
        });
        assert_eq!((pool.stats().used_blocks, pool.stats().available_blocks), (0, 48));
        check(&pool, []).unwrap();
    }
}
