//! Ctrl-C as a question, for what is a program of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Says whether Ctrl-C was pressed since it was last asked: the `interrupted` of [`run`](super::run) for a program.
///
/// The handler is installed when it is asked for the first time. A second Ctrl-C, before it is asked again, ends the process
/// at once with exit code 130.
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
