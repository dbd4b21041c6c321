//! The requests that may hold cache blocks, and the choice of whom to preempt when blocks run out.
//!
//! A request begins with the blocks of its prompts and grows. When blocks run out, the youngest request is
//! preempted: it frees all its blocks for an older one, and computes them again from its tokens when its turn
//! comes. No result depends on that, and the oldest request always makes progress. A request that nobody
//! reads is preempted for any other. One with attention sinks reserves all that it can need and is never
//! preempted, because its blocks cannot be computed from its tokens.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::pending::{PendingRows, SharedRows};
use super::sync::Mutex;

/// After this time without a reader, a request may be preempted for any other.
const IDLE: Duration = Duration::from_secs(1);

/// All requests of an engine.
#[derive(Default)]
pub(super) struct Residents {
    all: Mutex<Vec<Resident>>,
    /// The number of preemptions so far.
    preemptions: AtomicU64,
}

struct Resident {
    rows: Weak<Mutex<PendingRows>>,
    /// Alive until the rows have returned their blocks.
    holds: Weak<()>,
}

/// The result of a search for blocks.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// Another request was preempted.
    Made,
    /// Other requests hold blocks that they will return.
    Later,
    /// No other request holds any.
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

    /// The number of preemptions so far.
    pub(super) fn preemptions(&self) -> u64 {
        self.preemptions.load(Ordering::Relaxed)
    }

    /// Preempts a request to make room for `one`, which is locked and of this `age`: the youngest of those
    /// that are younger or that nobody reads. Requests with rows in this `pass` are spared.
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
                // Nobody waits for a request that nobody reads.
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
