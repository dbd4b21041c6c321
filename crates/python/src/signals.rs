//! Interruptible work, detached from Python.
//!
//! Python records a signal and runs its handler at the next check. So the work polls every few milliseconds,
//! and checks at most every [`INTERVAL`]. The interval spans all work of a thread, so that a list of a
//! million quick items is checked as often as a single long one. Python runs handlers in the main thread
//! only; in others a check does nothing.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyException, PyRuntimeError};
use pyo3::prelude::*;

use super::errors::to_python;
use super::exit::{attached, detached, is_ending};
use rsgen::engine::Interrupt;
use rsgen_core::error::{Error, Result};
use rsgen_core::process::OwnerPid;

/// The interval between checks of Python's signals.
pub(super) const INTERVAL: Duration = Duration::from_millis(50);

/// How long a thread keeps others from running Python: twice as long as they wait before they ask for it. Only who
/// has asked is certain to get it; a shorter time would wake the others each time, and leave none of them a turn.
const SLICE: Duration = Duration::from_millis(10);

thread_local! {
    /// Whether this thread runs signal handlers in the middle of a pass.
    static HANDLING: Cell<bool> = const { Cell::new(false) };
    /// See [`keep`].
    static KEPT: Cell<Option<PyErr>> = const { Cell::new(None) };
    /// The flag that ends what this thread computes, within [`cancellable`].
    static CANCELLED: RefCell<Option<Arc<AtomicBool>>> = const { RefCell::new(None) };
    /// When this thread last let others run Python.
    static RAN: Cell<Option<Instant>> = const { Cell::new(None) };
    /// The time of this thread's last check.
    static LOOKED: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Whether a check of Python's signals is due.
fn is_due() -> bool {
    LOOKED.get().is_none_or(|looked| looked.elapsed() >= INTERVAL)
}

/// Runs `work`, which computes, detached from Python. When a signal handler raises, as that of Ctrl-C does,
/// the work ends and the exception comes out.
pub(super) fn interruptible<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(&mut Interrupt<'_>) -> Result<T> + Send,
) -> PyResult<T> {
    // The pass that the handler interrupts holds the model, so a further pass in this thread would wait for
    // ever.
    if HANDLING.get() {
        return Err(PyRuntimeError::new_err(
            "a signal handler cannot compute while it interrupts a computation; raise an exception, or set a flag and \
             compute later",
        ));
    }
    polled(py, work)
}

/// Runs `work`, whose computations end with `CancelledError` once the flag is set.
pub(super) fn cancellable<T>(flag: &Arc<AtomicBool>, work: impl FnOnce() -> T) -> T {
    /// Restores the previous flag, also when the work panics.
    struct Within(Option<Arc<AtomicBool>>);

    impl Drop for Within {
        fn drop(&mut self) {
            CANCELLED.set(self.0.take());
        }
    }

    let _within = Within(CANCELLED.replace(Some(Arc::clone(flag))));
    work()
}

/// [`interruptible`] for work without the model, which a signal handler may do as well.
pub(super) fn polled<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(&mut Interrupt<'_>) -> Result<T> + Send,
) -> PyResult<T> {
    look(py)?;
    let (mut raised, owner) = (None, OwnerPid::current());
    let cancelled = CANCELLED.with_borrow(Clone::clone);
    let result = detached(py, || {
        work(&mut || {
            // Later polls of the same work give the same answer.
            if raised.is_some() || cancelled.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed)) {
                return true;
            }
            if is_ending() || !is_due() {
                return is_ending();
            }
            raised = attached(|py| {
                // A handler may have forked.
                check_signals(py).and_then(|()| owner.check().map_err(|error| to_python(py, error))).err()
            })
            .flatten();
            raised.is_some()
        })
    });
    match raised {
        Some(exception) => Err(exception),
        None => result.map_err(|error| to_python(py, error)),
    }
}

/// Runs pending signal handlers if a check is due: for loops over quick items that create Python objects.
///
/// # Errors
/// What a handler raises.
pub(super) fn look(py: Python<'_>) -> PyResult<()> {
    if is_due() { check_signals(py) } else { Ok(()) }
}

/// Runs pending signal handlers, lets other threads run Python now and then, and notices the end of [`cancellable`]
/// work: for loops that go through an argument item by item.
///
/// # Errors
/// What a handler raises; `CancelledError`.
pub(super) fn between(py: Python<'_>) -> PyResult<()> {
    py.check_signals()?;
    if RAN.get().is_some_and(|ran| ran.elapsed() < SLICE) {
        return Ok(());
    }
    detached(py, || ());
    RAN.set(Some(Instant::now()));
    let cancelled =
        CANCELLED.with_borrow(|flag| flag.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed)));
    if cancelled { Err(to_python(py, Error::cancelled())) } else { Ok(()) }
}

/// The value of a result where an error cannot be returned, such as within a message. An exception that is no
/// `Exception`, such as a `KeyboardInterrupt`, is stored, and raised when the exported function returns.
pub(super) fn keep<T>(py: Python<'_>, result: PyResult<T>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            if !error.is_instance_of::<PyException>(py) {
                KEPT.set(Some(error));
            }
            None
        }
    }
}

/// Takes the stored exception.
pub(super) fn take_kept() -> Option<PyErr> {
    KEPT.take()
}

/// Runs the handlers of pending signals.
///
/// # Errors
/// What a handler raises.
pub(super) fn check_signals(py: Python<'_>) -> PyResult<()> {
    /// Restores the previous value: a handler may itself be interrupted.
    struct Handling(bool);

    impl Drop for Handling {
        fn drop(&mut self) {
            HANDLING.set(self.0);
        }
    }

    LOOKED.set(Some(Instant::now()));
    let _handling = Handling(HANDLING.replace(true));
    py.check_signals()
}
