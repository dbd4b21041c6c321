//! The crate's log as Python's loggers `rsgen.…`.
//!
//! A record can come while locks are held, and Python's loggers can run any code. So records wait until the call that wrote
//! them is back at the border. They are dropped when the program has not imported `logging`: then nobody listens.

use std::collections::VecDeque;

use log::{Level, LevelFilter, Log, Metadata, Record};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The most records that wait; the oldest give way.
const MOST_WAITING: usize = 256;

static LOGGER: Logger = Logger { waiting: Mutex::new(VecDeque::new()) };

struct Logger {
    /// Level, target and text.
    waiting: Mutex<VecDeque<(Level, String, String)>>,
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("rsgen")
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let mut waiting = self.waiting.lock();
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
    let waiting = std::mem::take(&mut *LOGGER.waiting.lock());
    if waiting.is_empty() {
        return;
    }
    for record in waiting {
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
