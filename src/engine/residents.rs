//! The requests that may hold cache blocks, and which of them gives them up when they run out.
//!
//! A request begins with the blocks of its prompts and grows. When there are none left, the youngest gives all of its own to
//! an older one, and is computed again from its tokens when its turn comes; no result depends on that. So the oldest always
//! goes on. A request that nobody reads makes room for everybody.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::pending::{PendingRows, SharedRows};
use crate::sync::Mutex;

/// How long a request must have been left alone before it makes room for older and younger ones.
const IDLE: Duration = Duration::from_secs(1);

/// All requests of an engine.
#[derive(Default)]
pub(super) struct Residents(Mutex<Vec<Weak<Mutex<PendingRows>>>>);

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
        let rows = Arc::new(Mutex::new(rows));
        let mut all = self.0.lock();
        if all.len() == all.capacity() {
            all.retain(|rows| rows.strong_count() > 0);
        }
        all.push(Arc::downgrade(&rows));
        rows
    }

    /// Takes the blocks of another request for `one`, which is locked and arrived as number `age`: of the youngest after it, or
    /// of the youngest that nobody reads. Those with rows in this `pass` keep theirs.
    pub(super) fn make_room(&self, one: &SharedRows, age: u64, pass: u64) -> Room {
        let all: Vec<SharedRows> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        let (mut victim, mut others_hold): (Option<(u64, &SharedRows)>, bool) = (None, false);
        for shared in all.iter().filter(|other| !Arc::ptr_eq(other, one)) {
            let Some(rows) = shared.try_lock() else {
                // It begins a step.
                others_hold = true;
                continue;
            };
            if !rows.holds_blocks() {
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
                Room::Made
            }
            None if others_hold => Room::Later,
            None => Room::Never,
        }
    }
}
