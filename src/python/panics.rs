//! Panics, which are defects: told to the log and to the exception, and not to the standard error stream.

use std::cell::RefCell;
use std::panic;

thread_local! {
    /// Where this thread has panicked last.
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Takes the place of the message that Rust writes. It concerns the Rust code of this extension alone.
pub(super) fn install() {
    panic::set_hook(Box::new(|info| {
        PLACE.set(info.location().map(ToString::to_string));
        log::error!(target: "rsgen::panic", "{info}");
    }));
}

/// Where this thread has panicked, asked once for each panic. That of a helper thread is in the log only.
pub(super) fn last_place() -> Option<String> {
    PLACE.take()
}
