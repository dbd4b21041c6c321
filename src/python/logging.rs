//! The crate's log as Python's loggers `rsgen.…`.
//!
//! A record can come while locks are held, and Python's loggers can run any code. So records wait until the call that wrote
//! them is back at the border. They are dropped when the program has not imported `logging`: then nobody listens.

use std::collections::VecDeque;
use std::sync::MutexGuard;
use std::thread;

use log::{Level, LevelFilter, Log, Metadata, Record};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::sync::Mutex;

/// The most records that wait; the oldest give way.
const MOST_WAITING: usize = 256;

static LOGGER: Logger = Logger { waiting: Mutex::new(VecDeque::new()) };

/// Level, target and text.
type Waiting = VecDeque<(Level, String, String)>;

struct Logger {
    waiting: Mutex<Waiting>,
}

impl Logger {
    /// The records that wait. The lock is only ever held for a moment, unless a fork has copied it in that moment: then
    /// this process does without.
    fn waiting(&self) -> Option<MutexGuard<'_, Waiting>> {
        (0..1000).find_map(|_| {
            let waiting = self.waiting.try_lock();
            if waiting.is_none() {
                thread::yield_now();
            }
            waiting
        })
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
        let Some(mut waiting) = self.waiting() else { return };
        if waiting.len() == MOST_WAITING {
            waiting.pop_front();
        }
        waiting.push_back((record.level(), record.target().replace("::", "."), record.args().to_string()));
    }

    fn flush(&self) {}
}

/// Takes the log over, unless the process has another taker.
pub(super) fn install() {
    if log::set_logger(&LOGGER).is_ok() {
        log::set_max_level(LevelFilter::Debug);
    }
}

/// Hands the waiting records to Python. What a handler raises is Python's to report.
pub(super) fn flush(py: Python<'_>) {
    let waiting = LOGGER.waiting().map(|mut waiting| std::mem::take(&mut *waiting));
    for record in waiting.into_iter().flatten() {
        if let Err(error) = hand_over(py, &record) {
            error.write_unraisable(py, None);
            return;
        }
    }
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
