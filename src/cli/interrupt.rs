//! Polls Ctrl-C, for programs of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Returns whether Ctrl-C was pressed since the last call: the `interrupted` of [`run`](super::run) for a
/// program.
///
/// The first call installs the handler. A second Ctrl-C before the next call ends the process at once with
/// exit code 130.
pub fn ctrl_c() -> impl FnMut() -> bool {
    let mut flag: Option<Arc<AtomicBool>> = None;
    move || flag.get_or_insert_with(flag_of_interrupts).swap(false, Ordering::Relaxed)
}

fn flag_of_interrupts() -> Arc<AtomicBool> {
    let flag = Arc::new(AtomicBool::new(false));
    #[cfg(unix)]
    {
        use signal_hook::{consts::SIGINT, flag as hook};
        // Without the handlers Ctrl-C still ends the program, though in the middle of a line.
        let _ = hook::register_conditional_shutdown(SIGINT, 130, Arc::clone(&flag))
            .and_then(|_| hook::register(SIGINT, Arc::clone(&flag)));
    }
    flag
}
