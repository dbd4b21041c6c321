//! The requests that may hold cache blocks, and which of them gives them up when they run out.
//!
//! A request begins with the blocks of its prompts and grows. When there are none left, the youngest gives
//! all of its own to an older one, and is computed again from its tokens when its turn comes; no result
//! depends on that. So the oldest always goes on. A request that nobody reads makes room for everybody. One
//! with attention sinks has set aside all that it can need and keeps it, since its tokens do not say what its
//! blocks hold.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::pending::{PendingRows, SharedRows};
use super::sync::Mutex;

/// How long a request must have been left alone before it makes room for older and younger ones.
const IDLE: Duration = Duration::from_secs(1);

/// All requests of an engine.
#[derive(Default)]
pub(super) struct Residents {
    all: Mutex<Vec<Resident>>,
    /// How often a request has lost its blocks.
    preemptions: AtomicU64,
}

struct Resident {
    rows: Weak<Mutex<PendingRows>>,
    /// Alive until the rows have returned their blocks.
    holds: Weak<()>,
}

/// What became of the wish for blocks.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// Another request has given up its blocks.
    Made,
    /// Others hold blocks which they will return.
    Later,
    /// Nobody else holds any.
    Never,
}

impl Residents {
    /// Adds a request.
    pub(super) fn add(&self, rows: PendingRows) -> SharedRows {
        let holds = Arc::downgrade(&rows.holds);
        let rows = Arc::new(Mutex::new(rows));
        let mut all = self.all.lock();
        if all.len() == all.capacity() {
            all.retain(|resident| resident.holds.strong_count() > 0);
        }
        all.push(Resident { rows: Arc::downgrade(&rows), holds });
        rows
    }

    /// How often a request has lost its blocks.
    pub(super) fn preemptions(&self) -> u64 {
        self.preemptions.load(Ordering::Relaxed)
    }

    /// Takes the blocks of another request for `one`, which is locked and arrived as number `age`: of the
    /// youngest after it, or of the youngest that nobody reads. Those with rows in this `pass` keep theirs.
    pub(super) fn make_room(&self, one: &SharedRows, age: u64, pass: u64) -> Room {
        let (mut all, mut others_hold) = (Vec::new(), false);
        for Resident { rows, holds } in &*self.all.lock() {
            match rows.upgrade() {
                Some(rows) => all.push(rows),
                // It is being dropped.
                None => others_hold |= holds.strong_count() > 0,
            }
        }
        let mut victim: Option<(u64, &SharedRows)> = None;
        for shared in all.iter().filter(|other| !Arc::ptr_eq(other, one)) {
            let Some(rows) = shared.try_lock() else {
                // It begins a step.
                others_hold = true;
                continue;
            };
            if !rows.holds_blocks() {
                continue;
            }
            if rows.keeps_blocks() {
                // Nobody waits for one that nobody reads.
                others_hold |= rows.idle_for() < IDLE;
                continue;
            }
            others_hold = true;
            let may = rows.last_pass != pass && (rows.age > age || rows.idle_for() >= IDLE);
            if may && victim.is_none_or(|(youngest, _)| rows.age > youngest) {
                victim = Some((rows.age, shared));
            }
        }
        match victim.and_then(|(_, shared)| shared.try_lock()) {
            Some(mut rows) => {
                rows.preempt();
                self.preemptions.fetch_add(1, Ordering::Relaxed);
                Room::Made
            }
            None if others_hold => Room::Later,
            None => Room::Never,
        }
    }
}
