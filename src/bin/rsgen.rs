//! The program `rsgen`: the command line of the library, and the signal handler that belongs to a program alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn main() {
    let mut flag: Option<Arc<AtomicBool>> = None;
    let mut interrupted = || flag.get_or_insert_with(flag_of_interrupts).swap(false, Ordering::Relaxed);
    std::process::exit(rsgen::cli::run(std::env::args_os(), None, &mut interrupted));
}

/// A flag that Ctrl-C sets. A second one, before anybody has looked at the first, ends the program at once.
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
