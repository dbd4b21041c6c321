//! The log of the library, on standard error: warnings, and more with `-v`; as JSON where errors are.
//!
//! A logger that the process already has, as it may in Python, stays.

use std::sync::OnceLock;

use log::{Level, LevelFilter, Log, Metadata, Record};
use serde_json::json;

use super::output::SCHEMA_VERSION;
use super::terminal::{Terminal, say};
use crate::engine::TIMING_TARGET;
use rsgen_core::escape;

#[derive(Debug)]
struct StderrLogger {
    json: bool,
    most: LevelFilter,
}

/// Enables the log of this crate: warnings, information from `-v` on, everything from `-vv` on. Profiles of
/// `RSGEN_TIMING` are always shown.
pub(super) fn install(verbose: u8, terminal: &Terminal) {
    static LOGGER: OnceLock<StderrLogger> = OnceLock::new();
    let most = match verbose {
        0 => LevelFilter::Warn,
        1 => LevelFilter::Info,
        _ => LevelFilter::Trace,
    };
    if log::set_logger(LOGGER.get_or_init(|| StderrLogger { json: terminal.json, most })).is_ok() {
        log::set_max_level(most.max(LevelFilter::Info));
    }
}

/// The object that the server writes of a request.
fn of_request(record: &Record<'_>) -> Option<serde_json::Value> {
    #[cfg(feature = "serve")]
    if record.target() == crate::serve::REQUEST_TARGET {
        return serde_json::from_str(&record.args().to_string()).ok();
    }
    let _ = record;
    None
}

impl Log for StderrLogger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // Hides the logs of other libraries, and always shows requested profiles.
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
            let message = record.args().to_string();
            // A profile has lines of its own.
            let message =
                if record.target() == TIMING_TARGET { message.into() } else { escape::message(&message) };
            if self.json {
                let entry = match of_request(record) {
                    Some(request) => json!({"level": name, "request": request}),
                    None => json!({"level": name, "message": message}),
                };
                say(json!({"schema_version": SCHEMA_VERSION, "log": entry}));
            } else {
                say(format_args!("rsgen: {name}: {message}"));
            }
        }
    }

    fn flush(&self) {}
}
