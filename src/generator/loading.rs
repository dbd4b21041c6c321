//! Opening a model so that it can be given up at any time.
//!
//! Much of loading cannot ask whether it is still wanted: a library parses the tokenizer, the operating system reads
//! pages from a slow disk, all threads pack a large matrix. So a thread of its own loads, and the caller's thread asks,
//! and reports the progress. The one that loads ends at the next tensor when it is not wanted any more.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use super::{Generator, GeneratorOptions};
use crate::error::{Error, Result};
use crate::process::OwnerPid;

/// How often the caller is asked.
const ASK: Duration = Duration::from_millis(10);

/// Tells the loading thread that its result is not wanted any more, however the caller leaves.
#[derive(Default)]
struct Caller {
    gone: Arc<AtomicBool>,
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.gone.store(true, Ordering::Relaxed);
    }
}

impl Generator {
    /// [`Generator::open_with`], until `interrupted` says stop.
    ///
    /// # Errors
    /// As for [`Generator::open`], and `Cancelled`.
    pub fn open_interruptible(
        model: impl AsRef<str>,
        options: &GeneratorOptions,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Self> {
        let (model, owner, caller) = (model.as_ref().to_owned(), OwnerPid::current(), Caller::default());
        let (sender, news) = channel();
        let options_there = GeneratorOptions {
            progress: Some(Box::new(move |progress| {
                // Nobody listens any more when the caller has left.
                let _ = sender.send(progress);
            })),
            revision: options.revision.clone(),
            thread_pool: options.thread_pool.clone(),
            ..*options
        };
        let given_up = Arc::clone(&caller.gone);
        let loading = thread::Builder::new()
            .name("rsgen-load".to_owned())
            .spawn(move || Self::open_unless(&model, &options_there, &given_up))
            .map_err(|error| Error::capacity("could not start a thread to load with").with_source(error))?;
        loop {
            // A callback may have forked: nobody loads in the forked process.
            owner.check()?;
            match news.recv_timeout(ASK) {
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
