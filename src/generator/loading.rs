//! Opens a model so that the caller can cancel it at any time.
//!
//! Much of loading cannot poll an interrupt: a library parses the tokenizer, the operating system reads pages from a
//! slow disk, all threads pack a large matrix. So a second thread loads, while the caller's thread polls the
//! interrupt and reports progress. A cancelled load stops at the next tensor.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use super::{Generator, GeneratorOptions};
use crate::error::{Error, Result};
use crate::process::OwnerPid;

/// How often the caller's interrupt is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Cancels the loading thread when it is dropped, however the caller returns.
#[derive(Default)]
struct CancelOnDrop {
    cancelled: Arc<AtomicBool>,
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }
}

impl Generator {
    /// [`Generator::open_with`], until `interrupted` returns true.
    ///
    /// # Errors
    /// As for [`Generator::open`], and `Cancelled`.
    pub fn open_interruptible(
        model: impl AsRef<str>,
        options: &GeneratorOptions,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Self> {
        let (model, owner, cancel) =
            (model.as_ref().to_owned(), OwnerPid::current(), CancelOnDrop::default());
        let (sender, receiver) = channel();
        let loading_options = GeneratorOptions {
            progress: Some(Box::new(move |progress| {
                // The receiver is gone when the caller has returned.
                let _ = sender.send(progress);
            })),
            revision: options.revision.clone(),
            cache_dir: options.cache_dir.clone(),
            thread_pool: options.thread_pool.clone(),
            ..*options
        };
        let cancelled = Arc::clone(&cancel.cancelled);
        let loading = thread::Builder::new()
            .name("rsgen-load".to_owned())
            .spawn(move || Self::open_cancellable(&model, &loading_options, &cancelled))
            .map_err(|error| Error::capacity("could not start a thread to load with").with_source(error))?;
        loop {
            // A callback may have forked: the forked process has no loading thread.
            owner.check()?;
            match receiver.recv_timeout(POLL_INTERVAL) {
                Ok(progress) => {
                    if let Some(report) = &options.progress {
                        report(progress);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return loading.join().unwrap_or_else(|panic| resume_unwind(panic));
                }
            }
            if interrupted() {
                return Err(Error::cancelled());
            }
        }
    }
}
