//! Threads of this extension while the process ends.
//!
//! Once the interpreter finalizes, it ends every other thread that attaches to it, in the middle of whatever
//! frames are on its stack; with frames of Rust among them that aborts the process. Daemon threads that
//! compute and the threads that serve event loops would do so. So an `atexit` handler, which runs just
//! before, waits for the active threads, those attached to Python in frames of this extension, and parks
//! every thread that wants to become active.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use super::errors::guarded;

/// How long the end of the process waits for active threads, such as those in a callback that sleeps.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// `process << 32 | number of active threads`. A forked process begins with none: it has no other threads.
static ACTIVE: AtomicU64 = AtomicU64::new(0);
/// The process that is shutting down, or 0.
static SHUTTING_DOWN: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// Whether this thread shuts the process down: it alone may still become active.
    static IS_FINALIZER: Cell<bool> = const { Cell::new(false) };
}

/// Counts a thread as active: attached to Python in a frame of this extension.
pub(super) struct Active(());

/// An active thread that has detached itself for a while.
struct Detached(());

impl Active {
    /// `None` when the process is ending.
    pub(super) fn enter() -> Option<Self> {
        // Counted before the check, so that the shutdown waits for threads that still passed it.
        let active = Self::count();
        (!is_ending()).then_some(active)
    }

    fn count() -> Self {
        change(1);
        Self(())
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        change(-1);
    }
}

impl Drop for Detached {
    fn drop(&mut self) {
        match Active::enter() {
            Some(active) => std::mem::forget(active),
            None => park_forever(),
        }
    }
}

/// Whether the process is shutting down, and this thread with it.
pub(super) fn is_ending() -> bool {
    let ending = SHUTTING_DOWN.load(Ordering::SeqCst);
    ending != 0 && ending == std::process::id() && !IS_FINALIZER.get()
}

/// Waits for the end of the process. Nothing on this thread's stack is dropped.
fn park_forever() -> ! {
    loop {
        std::thread::park();
    }
}

/// Runs the body of a function that Python calls.
pub(super) fn inside<T>(body: impl FnOnce() -> T) -> T {
    let Some(_active) = Active::enter() else {
        Python::attach(|py| py.detach(|| -> () { park_forever() }));
        unreachable!("a parked thread does not come back");
    };
    body()
}

/// Runs work detached from Python, within [`inside`].
pub(super) fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    py.detach(|| {
        change(-1);
        let _detached = Detached(());
        work()
    })
}

/// Runs a piece of Python for work that is detached, or for a thread that is not Python's. `None` when the
/// process is ending.
pub(super) fn attached<T>(body: impl FnOnce(Python<'_>) -> T) -> Option<T> {
    let _active = Active::enter()?;
    Some(Python::attach(body))
}

/// Registers [`end`] to run before the interpreter finalizes.
pub(super) fn prepare(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let end = wrap_pyfunction!(end, module)?;
    module.py().import("atexit")?.call_method1("register", (end,))?;
    Ok(())
}

/// Parks new threads and waits for the active ones.
#[guarded]
#[pyfunction]
fn end(py: Python<'_>) -> PyResult<()> {
    IS_FINALIZER.set(true);
    SHUTTING_DOWN.store(std::process::id(), Ordering::SeqCst);
    let start = Instant::now();
    detached(py, || {
        while num_active() > 0 && start.elapsed() < SHUTDOWN_TIMEOUT {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    Ok(())
}

fn num_active() -> u32 {
    let (process, count) = unpack(ACTIVE.load(Ordering::SeqCst));
    if process == std::process::id() { count } else { 0 }
}

fn change(by: i32) {
    let here = std::process::id();
    let changed = |word| {
        let (process, count) = unpack(word);
        let count = if process == here { count } else { 0 };
        Some(u64::from(here) << 32 | u64::from(count.saturating_add_signed(by)))
    };
    // It always changes the word.
    let _ = ACTIVE.fetch_update(Ordering::SeqCst, Ordering::SeqCst, changed);
}

fn unpack(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}
