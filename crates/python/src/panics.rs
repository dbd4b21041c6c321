//! Panics, which are defects: reported to the log and in the exception, not on the standard error stream.

use std::cell::{Cell, RefCell};
use std::panic;

use pyo3::prelude::*;

thread_local! {
    /// Where this thread last panicked.
    static LOCATION: RefCell<Option<String>> = const { RefCell::new(None) };
    /// How many guarded functions this thread enters until one panics for a test; 0 is none.
    static PANIC_AFTER: Cell<u32> = const { Cell::new(0) };
}

/// Makes the n-th function of the extension that this thread enters from now on panic; 0 takes that back.
///
/// It is for the tests of the package.
///
/// Args:
///     calls (int): The number of the function.
///
/// Returns:
///     int: What was left of the number before.
#[pyfunction]
#[pyo3(name = "_panic_after")]
pub(super) fn panic_after(calls: u32) -> u32 {
    PANIC_AFTER.replace(calls)
}

/// Called at the beginning of each guarded function.
pub(super) fn panic_if_due() {
    let left = PANIC_AFTER.get();
    if left > 0 {
        PANIC_AFTER.set(left - 1);
        assert!(left > 1, "a panic of the test");
    }
}

/// Replaces the message that Rust writes. It concerns the Rust code of this extension alone.
pub(super) fn install() {
    panic::set_hook(Box::new(|info| {
        LOCATION.set(info.location().map(ToString::to_string));
        log::error!(target: "rsgen::panic", "{info}");
    }));
}

/// Takes the location where this thread last panicked. That of a helper thread is in the log only.
pub(super) fn last_location() -> Option<String> {
    LOCATION.take()
}
