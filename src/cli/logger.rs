//! The log of the library, on standard error: warnings, and more with `-v`.
//!
//! When the process has a logger already, as it may in Python, that one is left in place.

use std::io::{Write, stderr};

use log::{Level, LevelFilter, Log, Metadata, Record};

struct StderrLogger;

/// Lets the log of this crate through: warnings, from `-v` on information, from `-vv` on everything.
pub(super) fn install(verbose: u8) {
    if log::set_logger(&StderrLogger).is_ok() {
        log::set_max_level(match verbose {
            0 => LevelFilter::Warn,
            1 => LevelFilter::Info,
            _ => LevelFilter::Trace,
        });
    }
}

impl Log for StderrLogger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // The libraries below have nothing to say to a user.
        metadata.target().starts_with("rsgen")
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let name = match record.level() {
                Level::Error => "error",
                Level::Warn => "warning",
                Level::Info => "info",
                Level::Debug => "debug",
                Level::Trace => "trace",
            };
            let _ = writeln!(stderr(), "rsgen: {name}: {}", record.args());
        }
    }

    fn flush(&self) {}
}
