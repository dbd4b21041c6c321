//! Panics, which are defects: reported to the log and in the exception, not on the standard error stream.

use std::cell::RefCell;
use std::panic;

thread_local! {
    /// Where this thread last panicked.
    static LOCATION: RefCell<Option<String>> = const { RefCell::new(None) };
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

/// Panics on purpose, for the tests. No release has them.
#[cfg(debug_assertions)]
pub(super) mod on_purpose {
    use std::cell::Cell;

    use pyo3::prelude::*;

    thread_local! {
        /// How many guarded functions this thread enters until one panics; 0 is none.
        static AFTER: Cell<u32> = const { Cell::new(0) };
    }

    /// Makes the n-th guarded function that this thread enters from now on panic; 0 takes that back. Returns
    /// what was left of the number before.
    #[pyfunction]
    #[pyo3(name = "_panic_after")]
    fn panic_after(calls: u32) -> u32 {
        AFTER.replace(calls)
    }

    pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
        // Not by `add_function`, which would make it one of the module's public names.
        module.setattr("_panic_after", wrap_pyfunction!(panic_after, module)?)
    }

    /// Called at the beginning of each guarded function.
    pub(crate) fn panic_if_due() {
        let left = AFTER.get();
        if left > 0 {
            AFTER.set(left - 1);
            assert!(left > 1, "a panic of the test");
        }
    }
}
