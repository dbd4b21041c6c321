//! The log of the library, on standard error: warnings, and more with `-v`; as JSON where errors are.
//!
//! When the process has a logger already, as it may in Python, that one is left in place.

use std::sync::OnceLock;

use log::{Level, LevelFilter, Log, Metadata, Record};
use serde_json::json;

use super::output::SCHEMA_VERSION;
use super::terminal::{Terminal, say};
use crate::engine::TIMING_TARGET;

#[derive(Debug)]
struct StderrLogger {
    json: bool,
    most: LevelFilter,
}

/// Lets the log of this crate through: warnings, from `-v` on information, from `-vv` on everything. What
/// `RSGEN_TIMING` asks for comes in any case.
pub(super) fn install(verbose: u8, terminal: &Terminal) {
    static LOGGER: OnceLock<StderrLogger> = OnceLock::new();
    let most = match verbose {
        0 => LevelFilter::Warn,
        1 => LevelFilter::Info,
        _ => LevelFilter::Trace,
    };
    if log::set_logger(LOGGER.get_or_init(|| StderrLogger { json: terminal.is_json(), most })).is_ok() {
        log::set_max_level(most.max(LevelFilter::Info));
    }
}

impl Log for StderrLogger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // The libraries below have nothing to say to a user, and who asks for timing wants to see it.
        let target = metadata.target();
        target.starts_with("rsgen") && (metadata.level() <= self.most || target == TIMING_TARGET)
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
