//! The log of the library, on standard error: warnings, and more with `-v`; as JSON where errors are.
//!
//! When the process has a logger already, as it may in Python, that one is left in place.

use std::sync::OnceLock;

use log::{Level, LevelFilter, Log, Metadata, Record};
use serde_json::json;

use super::output::SCHEMA_VERSION;
use super::terminal::{Terminal, say};

#[derive(Debug)]
struct StderrLogger {
    json: bool,
}

/// Lets the log of this crate through: warnings, from `-v` on information, from `-vv` on everything.
pub(super) fn install(verbose: u8, terminal: &Terminal) {
    static LOGGER: OnceLock<StderrLogger> = OnceLock::new();
    if log::set_logger(LOGGER.get_or_init(|| StderrLogger { json: terminal.is_json() })).is_ok() {
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
            if self.json {
                let entry = json!({"level": name, "message": record.args().to_string()});
                say(json!({"schema_version": SCHEMA_VERSION, "log": entry}));
            } else {
                say(format_args!("rsgen: {name}: {}", record.args()));
            }
        }
    }

    fn flush(&self) {}
}
