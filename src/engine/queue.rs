//! The queue of rows that wait for a pass, and the choice of who leads it.
//!
//! Every caller waits on its own thread. The first that finds no leader leads one pass: it waits briefly for
//! callers that are about to return, takes rows of all waiting requests, computes them once, and wakes the
//! callers that are served. Each caller then advances its own searches. There is no background thread.
//!
//! ```text
//!  caller 1 ── hand_in(rows) ──▶ ┌───────┐                                ┌─▶ caller 1 advances its searches
//!  caller 2 ── hand_in(rows) ──▶ │ queue │ ── leader: one pass for all ───┼─▶ caller 2 …
//!  caller 3 ── hand_in(rows) ──▶ └───────┘    (caller 1, say)             └─▶ caller 3 …
//! ```

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::pending::SharedRows;
use super::sync::thread::{self, Thread};
use super::sync::{Instant, Mutex, MutexGuard};
use rsgen_core::{Error, OwnerPid, Result};
use rsgen_kernels::Work;
use rsgen_model::{Stage, Timing};

/// Polled at least every few milliseconds, on the thread that drives the work. Returns true to stop the work.
pub type Interrupt<'a> = dyn FnMut() -> bool + 'a;

/// Computes a pass. Returns false when no rows could be computed, because no request has room.
pub(super) type Lead<'a> = dyn FnMut(&mut Timing, &mut Interrupt<'_>) -> Result<bool> + 'a;

/// How often a waiting caller polls its interrupt.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A leader waits for returning callers at most the duration of the last pass divided by this.
const GATHERING_SHARE: u32 = 8;

/// How long a caller counts as streaming after its last token.
const STREAMING: Duration = Duration::from_millis(500);

/// Rows that wait, and their callers.
pub(super) struct Queue {
    state: Mutex<State>,
    /// The process that owns the lock. In a forked one no thread is left to unlock it.
    owner: OwnerPid,
}

#[derive(Default)]
struct State {
    /// In the order in which they were handed in.
    entries: Vec<Entry>,
    callers: HashMap<u64, CallerState>,
    next: u64,
    is_led: bool,
    /// The leader, while it gathers returning callers.
    gathering: Option<Thread>,
    /// The number of callers that a leader waits for.
    expected: usize,
    /// Whether rows were handed in or a caller left since the last pass was composed.
    has_changed: bool,
    /// Whether no request had room in the last pass and nothing has changed since. The next poll tries again.
    is_blocked: bool,
    /// How long the last pass took, and all of them.
    last_pass: Duration,
    all_passes: Duration,
    passes: u64,
}

/// The rows of one request.
struct Entry {
    number: u64,
    rows: SharedRows,
    caller: u64,
    status: Status,
    /// How long all passes had taken when it was handed in.
    since: Duration,
}

enum Status {
    Waiting,
    /// With the time of all passes computed meanwhile.
    Done(Result<Duration>),
}

#[derive(Default)]
struct CallerState {
    /// The thread, while it waits.
    waiting: Option<Thread>,
    /// When it got results; `None` once it has returned.
    out_since: Option<Instant>,
    /// Whether a leader waits for its return: it has results, and returned quickly the last time.
    is_expected: bool,
    /// Whether it returned too late the last time.
    is_slow: bool,
    /// When it last got a token of a stream.
    streamed: Option<Instant>,
}

/// Rows that wait, as the leader of a pass sees them.
pub(super) struct WaitingRows {
    pub(super) number: u64,
    pub(super) caller: u64,
    pub(super) rows: SharedRows,
}

/// A caller that hands in rows: a call or a stream. It leaves the queue on drop.
pub(super) struct Caller {
    queue: Arc<Queue>,
    pub(super) id: u64,
}

/// An entry in the queue, removed on drop. A pass that has begun with its rows goes on for the others.
pub(super) struct Ticket {
    queue: Arc<Queue>,
    number: u64,
}

/// The right to lead a pass. Dropping it wakes the next leader.
struct Leadership<'a> {
    queue: &'a Queue,
    /// Whether no request had room.
    was_blocked: bool,
}

impl Caller {
    pub(super) fn new(queue: &Arc<Queue>) -> Self {
        let mut state = queue.state.lock();
        let id = state.number();
        state.callers.insert(id, CallerState::default());
        drop(state);
        Self { queue: Arc::clone(queue), id }
    }

    /// Adds rows to the queue.
    pub(super) fn hand_in(&self, rows: &SharedRows) -> Ticket {
        let mut state = self.queue.state.lock();
        let number = state.number();
        state.come_back(self.id);
        let (rows, since) = (Arc::clone(rows), state.all_passes);
        let entry = Entry { number, rows, caller: self.id, status: Status::Waiting, since };
        state.entries.push(entry);
        state.has_changed = true;
        if state.is_blocked {
            state.wake_next();
        }
        drop(state);
        Ticket { queue: Arc::clone(&self.queue), number }
    }

    /// Waits until some of its rows are computed or have failed; leads passes when nobody else does.
    ///
    /// # Errors
    /// `Cancelled` when `interrupted` returns true; its rows stay in the queue as long as their tickets.
    /// `Fork`.
    pub(super) fn wait(
        &self,
        timing: &mut Timing,
        interrupted: &mut Interrupt<'_>,
        lead: &mut Lead<'_>,
    ) -> Result<()> {
        let mut has_polled = false;
        self.queue.owner.check()?;
        self.queue.state.lock().room_may_have_come();
        loop {
            self.queue.owner.check()?;
            let turn = self.queue.state.lock().turn(self.id, has_polled);
            match turn {
                Turn::Served => return Ok(()),
                Turn::Lead => {
                    let mut leadership = Leadership { queue: &self.queue, was_blocked: false };
                    self.queue.gather(interrupted)?;
                    timing.lap(Stage::Wait, Work::default);
                    leadership.was_blocked = !lead(timing, interrupted)?;
                    has_polled = false;
                }
                Turn::Wait => {
                    thread::park_timeout(POLL_INTERVAL);
                    timing.lap(Stage::Wait, Work::default);
                    has_polled = true;
                    if interrupted() {
                        self.queue.state.lock().leave(self.id);
                        return Err(Error::cancelled());
                    }
                }
            }
        }
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let Some(mut state) = self.queue.lock_at_home() else { return };
        state.come_back(self.id);
        // Its requests may have returned blocks that others wait for.
        state.leave(self.id);
        state.callers.remove(&self.id);
    }
}

impl Ticket {
    /// The outcome, with the time of all passes since the rows were handed in; `None` while they wait.
    pub(super) fn result(&self) -> Option<Result<Duration>> {
        let mut state = self.queue.state.lock();
        let place = state.place(self.number)?;
        let entry = &mut state.entries[place];
        match std::mem::replace(&mut entry.status, Status::Waiting) {
            Status::Waiting => None,
            Status::Done(result) => {
                state.entries.remove(place);
                Some(result)
            }
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let entry = self.queue.lock_at_home().and_then(|mut state| {
            let place = state.place(self.number)?;
            Some(state.entries.remove(place))
        });
        // Dropping the last handle of the rows frees their blocks: not under the lock of the queue.
        drop(entry);
    }
}

impl Drop for Leadership<'_> {
    fn drop(&mut self) {
        let mut state = self.queue.state.lock();
        state.is_led = false;
        state.gathering = None;
        if self.was_blocked && !state.has_changed {
            state.is_blocked = true;
        } else {
            state.wake_next();
        }
    }
}

/// What a caller does next.
enum Turn {
    Served,
    Lead,
    Wait,
}

impl Default for Queue {
    fn default() -> Self {
        Self { state: Mutex::default(), owner: OwnerPid::current() }
    }
}

impl Queue {
    /// The lock for drops; `None` in a forked process.
    fn lock_at_home(&self) -> Option<MutexGuard<'_, State>> {
        self.owner.is_current().then(|| self.state.lock())
    }

    /// Waits for the callers that the last pass has served and that usually return quickly.
    fn gather(&self, interrupted: &mut Interrupt<'_>) -> Result<()> {
        let start = Instant::now();
        loop {
            let mut state = self.state.lock();
            let left = (state.last_pass / GATHERING_SHARE).saturating_sub(start.elapsed());
            if left.is_zero() {
                state.give_up();
            }
            if state.expected == 0 {
                state.gathering = None;
                return Ok(());
            }
            state.gathering = Some(thread::current());
            drop(state);
            thread::park_timeout(left.min(POLL_INTERVAL));
            if interrupted() {
                return Err(Error::cancelled());
            }
        }
    }

    /// Appends all waiting entries to the list, in the order in which they were handed in.
    pub(super) fn waiting(&self, into: &mut Vec<WaitingRows>) {
        let mut state = self.state.lock();
        state.has_changed = false;
        let waiting = state.entries.iter().filter(|entry| matches!(entry.status, Status::Waiting));
        into.extend(waiting.map(|entry| WaitingRows {
            number: entry.number,
            caller: entry.caller,
            rows: Arc::clone(&entry.rows),
        }));
    }

    /// Whether somebody reads a stream.
    pub(super) fn is_streaming(&self) -> bool {
        let state = self.state.lock();
        let mut streamed = state.callers.values().filter_map(|caller| caller.streamed);
        streamed.any(|last| last.elapsed() < STREAMING)
    }

    /// Notes that rows are computed or have failed, and wakes their caller.
    pub(super) fn done(&self, number: u64, result: Result<()>, is_streamed: bool) {
        let mut state = self.state.lock();
        let Some(place) = state.place(number) else { return };
        let State { entries, callers, expected, all_passes, .. } = &mut *state;
        let entry = &mut entries[place];
        entry.status = Status::Done(result.map(|()| all_passes.saturating_sub(entry.since)));
        let Some(caller) = callers.get_mut(&entry.caller) else { return };
        let now = Instant::now();
        if caller.out_since.is_none() {
            caller.out_since = Some(now);
            caller.is_expected = !caller.is_slow;
            *expected += usize::from(caller.is_expected);
        }
        if is_streamed {
            caller.streamed = Some(now);
        }
        if let Some(thread) = &caller.waiting {
            thread.unpark();
        }
    }

    /// Notes how long a pass took.
    pub(super) fn took(&self, elapsed: Duration) {
        let mut state = self.state.lock();
        state.last_pass = elapsed;
        state.all_passes += elapsed;
        state.passes += 1;
    }

    /// How many passes there were.
    pub(super) fn passes(&self) -> u64 {
        self.state.lock().passes
    }
}

impl State {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// The index of an entry, unless it has left.
    fn place(&self, number: u64) -> Option<usize> {
        self.entries.binary_search_by_key(&number, |entry| entry.number).ok()
    }

    /// Marks a caller as returned, or gone for good; wakes the leader that gathers if it was the last one.
    fn come_back(&mut self, id: u64) {
        let limit = self.last_pass / GATHERING_SHARE;
        let Some(caller) = self.callers.get_mut(&id) else { return };
        let Some(since) = caller.out_since.take() else { return };
        caller.is_slow = since.elapsed() > limit;
        self.expected -= usize::from(std::mem::take(&mut caller.is_expected));
        if self.expected == 0
            && let Some(leader) = &self.gathering
        {
            leader.unpark();
        }
    }

    /// Stops gathering: the callers that have not returned are slow.
    fn give_up(&mut self) {
        for caller in self.callers.values_mut().filter(|caller| caller.is_expected) {
            (caller.is_expected, caller.is_slow) = (false, true);
        }
        self.expected = 0;
    }

    /// The caller's next turn. Makes it the leader if rows wait and nobody leads; after a poll (`has_polled`)
    /// even if no request had room in the last pass.
    fn turn(&mut self, id: u64, has_polled: bool) -> Turn {
        let (mut is_served, mut waits) = (false, false);
        for entry in &self.entries {
            let is_done = matches!(entry.status, Status::Done(_));
            is_served |= is_done && entry.caller == id;
            waits |= !is_done;
        }
        if is_served {
            self.leave(id);
            return Turn::Served;
        }
        // It may have handed in nothing since its last results, because its other requests wait.
        self.come_back(id);
        self.is_blocked &= !has_polled;
        let leads = waits && !self.is_led && !self.is_blocked;
        let Some(caller) = self.callers.get_mut(&id) else { return Turn::Served };
        caller.waiting = (!leads).then(thread::current);
        self.is_led |= leads;
        if leads { Turn::Lead } else { Turn::Wait }
    }

    /// Unblocks the queue when a caller begins to wait: its finished requests may have freed blocks.
    fn room_may_have_come(&mut self) {
        self.has_changed = true;
        self.is_blocked = false;
    }

    /// A caller stops waiting. It may have been woken to lead, so another one is woken.
    fn leave(&mut self, id: u64) {
        if let Some(caller) = self.callers.get_mut(&id) {
            caller.waiting = None;
        }
        self.has_changed = true;
        self.wake_next();
    }

    /// Wakes a waiting caller to lead the next pass, unless there is a leader.
    fn wake_next(&mut self) {
        if self.is_led {
            return;
        }
        self.is_blocked = false;
        let mut waiting = self.entries.iter().filter(|entry| matches!(entry.status, Status::Waiting));
        let next = waiting.find_map(|entry| self.callers.get(&entry.caller)?.waiting.as_ref());
        next.inspect(|thread| thread.unpark());
    }
}
