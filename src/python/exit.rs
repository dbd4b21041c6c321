//! Threads of this extension while the process ends.
//!
//! When the interpreter has begun to end, it ends every other thread that asks for it, in the middle of whatever
//! frames are on its stack; with frames of Rust among them that aborts the process. Daemon threads that compute and the
//! threads that serve event loops would do so. So `atexit`, which runs just before, closes a door: threads that are
//! inside, attached to Python in frames of this extension, are waited for, and those that want in stand still instead.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use super::errors::guarded;

/// How long the end of the process waits for threads that are inside, such as those in a callback that sleeps.
const PATIENCE: Duration = Duration::from_secs(1);

/// `process << 32 | threads that are inside`. A forked process begins with none: their owners are not in it.
static INSIDE: AtomicU64 = AtomicU64::new(0);
/// The process that is ending, or 0.
static ENDING: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// Whether this is the thread that ends the process: it alone may still come and go.
    static ENDS_IT: Cell<bool> = const { Cell::new(false) };
}

/// A thread that is attached to Python in a frame of this extension.
pub(super) struct Inside(());

/// A thread that has detached itself meanwhile.
struct Outside(());

impl Inside {
    /// `None` when the process is ending.
    pub(super) fn enter() -> Option<Self> {
        // Counted before the door is looked at, so that whoever closes it waits for those who still got through.
        let inside = Self::count();
        (!is_ending()).then_some(inside)
    }

    fn count() -> Self {
        change(1);
        Self(())
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        change(-1);
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        match Inside::enter() {
            Some(inside) => std::mem::forget(inside),
            None => stand_still(),
        }
    }
}

/// Whether the process is ending, and this thread with it.
pub(super) fn is_ending() -> bool {
    let ending = ENDING.load(Ordering::SeqCst);
    ending != 0 && ending == std::process::id() && !ENDS_IT.get()
}

/// Waits for the end of the process, which nothing on this thread's stack survives.
fn stand_still() -> ! {
    loop {
        std::thread::park();
    }
}

/// Runs the body of a function that Python calls.
pub(super) fn inside<T>(body: impl FnOnce() -> T) -> T {
    let Some(_inside) = Inside::enter() else {
        Python::attach(|py| py.detach(|| -> () { stand_still() }));
        unreachable!("a thread that stands still does not come back");
    };
    body()
}

/// Runs work detached from Python, within [`inside`].
pub(super) fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    py.detach(|| {
        change(-1);
        let _outside = Outside(());
        work()
    })
}

/// Runs a piece of Python for work that is detached, or for a thread that is not Python's. `None` when the process is
/// ending.
pub(super) fn attached<T>(body: impl FnOnce(Python<'_>) -> T) -> Option<T> {
    let _inside = Inside::enter()?;
    Some(Python::attach(body))
}

/// Has [`end`] run before the interpreter ends.
pub(super) fn prepare(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let end = wrap_pyfunction!(end, module)?;
    module.py().import("atexit")?.call_method1("register", (end,))?;
    Ok(())
}

/// Closes the door and waits for those who are inside.
#[pyfunction]
fn end(py: Python<'_>) -> PyResult<()> {
    guarded(|| {
        ENDS_IT.set(true);
        ENDING.store(std::process::id(), Ordering::SeqCst);
        let start = Instant::now();
        detached(py, || {
            while num_inside() > 0 && start.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        Ok(())
    })
}

fn num_inside() -> u32 {
    let (process, count) = unpack(INSIDE.load(Ordering::SeqCst));
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
    let _ = INSIDE.fetch_update(Ordering::SeqCst, Ordering::SeqCst, changed);
}

fn unpack(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}
