//! Opens a model or a tokenizer so that the caller can cancel it at any time.
//!
//! Much of loading cannot poll an interrupt: a library parses the tokenizer, the operating system reads pages
//! from a slow disk, all threads pack a large matrix. So a second thread loads, while the caller's thread
//! polls the interrupt and reports progress. A cancelled load stops at the next part of a matrix or at the
//! next file, and the caller waits for that, though no longer than it may take to answer an interrupt.

use std::panic::resume_unwind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::open::{Progress, find_tokenizer};
use super::{Generator, GeneratorOptions, MemoryModel};
use rsgen_core::{Error, OwnerPid, Result};
use rsgen_text::Tokenizer;

/// How often the caller's interrupt is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// How long to wait for a cancelled load. Only the parser of a large tokenizer takes longer: it ends by
/// itself.
const CANCEL_TIMEOUT: Duration = Duration::from_millis(150);

/// Cancels the loading thread when it is dropped, however the caller returns, and waits for it.
struct CancelOnDrop {
    cancelled: Arc<AtomicBool>,
    receiver: Receiver<Progress>,
    owner: OwnerPid,
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.cancelled.store(true, Ordering::Relaxed);
        let deadline = Instant::now() + CANCEL_TIMEOUT;
        // A forked process has no loading thread. The sender is dropped at the end of the thread.
        while self.owner.is_current() {
            let left = deadline.saturating_duration_since(Instant::now());
            if self.receiver.recv_timeout(left).is_err() {
                return;
            }
        }
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
        let model = model.as_ref().to_owned();
        load_with(options, interrupted, move |options, cancelled| {
            Self::open_cancellable(&model, options, cancelled)
        })
    }
}

impl MemoryModel {
    /// [`Generator::from_memory`], until `interrupted` returns true.
    ///
    /// # Errors
    /// As for [`Generator::from_memory`], and `Cancelled`.
    pub fn open_interruptible(
        &self,
        options: &GeneratorOptions,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Generator> {
        let files = self.files();
        load_with(options, interrupted, move |options, cancelled| {
            Generator::from_files(&files, options, cancelled)
        })
    }
}

/// [`find_tokenizer`], until `interrupted` returns true.
///
/// # Errors
/// As for [`find_tokenizer`], and `Cancelled`.
pub fn find_tokenizer_interruptible(
    model: &str,
    revision: Option<&str>,
    cache_dir: Option<&Path>,
    interrupted: &mut dyn FnMut() -> bool,
) -> Result<Tokenizer> {
    let (model, revision) = (model.to_owned(), revision.map(str::to_owned));
    let cache_dir = cache_dir.map(Path::to_owned);
    load(interrupted, &|_| {}, move |_, _sender| {
        find_tokenizer(&model, revision.as_deref(), cache_dir.as_deref())
    })
}

/// Runs `work` on a thread of its own, with these options; their progress is reported on this thread.
pub(super) fn load_with<T: Send + 'static>(
    options: &GeneratorOptions,
    interrupted: &mut dyn FnMut() -> bool,
    work: impl FnOnce(&GeneratorOptions, &AtomicBool) -> Result<T> + Send + 'static,
) -> Result<T> {
    let mut own = GeneratorOptions {
        progress: None,
        revision: options.revision.clone(),
        cache_dir: options.cache_dir.clone(),
        assistant: options.assistant.clone(),
        adapter: options.adapter.clone(),
        tokenizer: options.tokenizer.clone(),
        thread_pool: options.thread_pool.clone(),
        ..*options
    };
    let report = |progress| {
        if let Some(report) = &options.progress {
            report(progress);
        }
    };
    load(interrupted, &report, move |cancelled, sender| {
        own.progress = Some(Box::new(move |progress| {
            // The receiver is gone when the caller has returned.
            let _ = sender.send(progress);
        }));
        work(&own, cancelled)
    })
}

/// Runs `work` on a thread of its own, which drops its sender at the end. `report` is called on this thread.
fn load<T: Send + 'static>(
    interrupted: &mut dyn FnMut() -> bool,
    report: &dyn Fn(Progress),
    work: impl FnOnce(&AtomicBool, Sender<Progress>) -> Result<T> + Send + 'static,
) -> Result<T> {
    let (sender, receiver) = channel();
    let loading = CancelOnDrop { cancelled: Arc::default(), receiver, owner: OwnerPid::current() };
    let cancelled = Arc::clone(&loading.cancelled);
    let thread = thread::Builder::new()
        .name("rsgen-load".to_owned())
        .spawn(move || work(&cancelled, sender))
        .map_err(|error| Error::capacity("could not start a thread to load with").with_source(error))?;
    loop {
        // A callback may have forked: the forked process has no loading thread.
        loading.owner.check()?;
        match loading.receiver.recv_timeout(POLL_INTERVAL) {
            Ok(progress) => report(progress),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return thread.join().unwrap_or_else(|panic| resume_unwind(panic));
            }
        }
        if interrupted() {
            return Err(Error::cancelled());
        }
    }
}
