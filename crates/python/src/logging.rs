//! The bridge from the crate's log to Python's loggers `rsgen.…`.
//!
//! A record can come while locks are held, and Python's loggers can run any code. So records are queued until
//! the call that wrote them returns to Python. They are dropped when the program has not imported `logging`:
//! then nobody listens.

use std::collections::VecDeque;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use log::{Level, LevelFilter, Log, Metadata, Record};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::exit::attached;
use super::signals::keep;
use rsgen::engine::{GenerationOutput, TIMING_TARGET, Usage};
use rsgen_core::escape;
use rsgen_core::sync::Mutex;

/// The most records in the queue; the oldest make room.
const MAX_QUEUED: usize = 256;

/// How long a thread waits for the lock of the queue before it takes it as copied by a fork.
const MAX_WAIT: Duration = Duration::from_secs(2);

static LOGGER: Logger = Logger { queue: Mutex::new(VecDeque::new()), given_up: AtomicBool::new(false) };

/// Level, target and text.
type Queue = VecDeque<(Level, String, String)>;

struct Logger {
    queue: Mutex<Queue>,
    /// Whether the lock was waited for in vain.
    given_up: AtomicBool,
}

impl Logger {
    /// The queue. Its lock is held for a moment, or for as long as the thread that holds it waits for a
    /// processor. A fork in that moment copies a lock that nobody releases: then this process does without.
    fn queue(&self) -> Option<MutexGuard<'_, Queue>> {
        if let Some(queue) = self.queue.try_lock() {
            return Some(queue);
        }
        let deadline = Instant::now() + MAX_WAIT;
        while !self.given_up.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_micros(20));
            if let Some(queue) = self.queue.try_lock() {
                return Some(queue);
            }
            self.given_up.fetch_or(Instant::now() > deadline, Ordering::Relaxed);
        }
        None
    }
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("rsgen")
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let text = record.args().to_string();
        // A profile has lines of its own.
        let text = if record.target() == TIMING_TARGET { text } else { escape::message(&text).into_owned() };
        // The crates below are parts of the package: `rsgen_model::weights` is `rsgen.model.weights`.
        let name = record.target().replacen("rsgen_", "rsgen::", 1).replace("::", ".");
        let Some(mut queue) = self.queue() else { return };
        // More than that are there when a handler has ended a call, and left some.
        while queue.len() >= MAX_QUEUED {
            queue.pop_front();
        }
        queue.push_back((record.level(), name, text));
    }

    fn flush(&self) {}
}

/// Becomes the logger of the process, unless it has one.
pub(super) fn install() {
    if log::set_logger(&LOGGER).is_ok() {
        log::set_max_level(LevelFilter::Debug);
    }
}

/// Hands the queued records to Python. What a handler raises is Python's to report, unless it is to end the
/// call: then the records that are left wait for the next call.
pub(super) fn flush(py: Python<'_>) {
    let mut records = LOGGER.queue().map(|mut queue| std::mem::take(&mut *queue)).unwrap_or_default();
    while let Some(record) = records.pop_front() {
        let Err(error) = hand_over(py, &record) else { continue };
        if error.is_instance_of::<PyException>(py) {
            error.write_unraisable(py, None);
        } else {
            keep::<()>(py, Err(error));
            if let Some(mut queue) = LOGGER.queue() {
                records.append(&mut queue);
                *queue = records;
            }
            return;
        }
    }
}

/// [`flush`] for work that is detached, if there is anything in the queue.
pub(super) fn flush_detached() {
    if LOGGER.queue().is_some_and(|queue| !queue.is_empty()) {
        attached(flush);
    }
}

/// Logs a call that has ended.
pub(super) fn ended(name: &str, output: &GenerationOutput) {
    let Usage { prompt_tokens, cached_prompt_tokens, generated_tokens } = output.usage;
    let seconds = output.timings.total.as_secs_f64();
    let mut reasons: Vec<_> = output.rows.iter().map(|row| row.generated.finish_reason.as_str()).collect();
    reasons.sort_unstable();
    reasons.dedup();
    log::debug!(
        target: "rsgen",
        "{name}: {} rows, {prompt_tokens} prompt tokens ({cached_prompt_tokens} cached), {generated_tokens} generated in \
         {seconds:.3} s, {:.1} tokens/s; finished by {}",
        output.rows.len(),
        generated_tokens as f64 / seconds.max(f64::EPSILON),
        reasons.join(", ")
    );
}

fn hand_over(py: Python<'_>, (level, target, text): &(Level, String, String)) -> PyResult<()> {
    let modules = py.import("sys")?.getattr("modules")?.cast_into::<PyDict>()?;
    let Some(logging) = modules.get_item("logging")? else { return Ok(()) };
    let root = logging.call_method1("getLogger", ("rsgen",))?;
    if !root.call_method0("hasHandlers")?.is_truthy()? {
        // Without any handler Python would write warnings to the standard error stream.
        root.call_method1("addHandler", (logging.getattr("NullHandler")?.call0()?,))?;
    }
    let level = match level {
        Level::Error => 40,
        Level::Warn => 30,
        Level::Info => 20,
        Level::Debug | Level::Trace => 10,
    };
    logging.call_method1("getLogger", (target,))?.call_method1("log", (level, "%s", text))?;
    Ok(())
}
