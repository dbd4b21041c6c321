//! Standard output and standard error: terminals or files, with colours or without, for people or programs.
//!
//! Colours follow `NO_COLOR` and `TERM=dumb`. Messages that cannot be written are dropped: there is nowhere to report
//! that.

use std::fmt::Display;
use std::io::{IsTerminal, Write, stderr, stdout};

use serde_json::json;

use super::output::SCHEMA_VERSION;

const DIM: &str = "\x1b[2m";
const RED: &str = "\x1b[1;31m";
const RESET: &str = "\x1b[0m";

/// The two outputs of the command.
pub(super) struct Terminal {
    colors_output: bool,
    colors_errors: bool,
    is_interactive: bool,
    json: bool,
}

impl Terminal {
    /// With `json`, errors are written as JSON.
    pub(super) fn new(json: bool) -> Self {
        let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let colors = !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        let is_interactive = stderr().is_terminal();
        Self {
            colors_output: colors && stdout().is_terminal(),
            colors_errors: colors && is_interactive,
            is_interactive,
            json,
        }
    }

    /// Whether standard error is a terminal.
    pub(super) fn is_interactive(&self) -> bool {
        self.is_interactive
    }

    /// Whether errors are written as JSON.
    pub(super) fn is_json(&self) -> bool {
        self.json
    }

    /// Whether messages may have colours.
    pub(super) fn colors_errors(&self) -> bool {
        self.colors_errors
    }

    /// A text for standard output, dimmed where there are colours.
    pub(super) fn dimmed(&self, text: &str) -> String {
        if self.colors_output && !text.is_empty() { format!("{DIM}{text}{RESET}") } else { text.to_owned() }
    }

    /// Writes a line to standard error, dimmed where there are colours.
    pub(super) fn note(&self, message: impl Display) {
        if self.colors_errors {
            say(format_args!("{DIM}{message}{RESET}"));
        } else {
            say(message);
        }
    }

    /// Writes an error to standard error.
    pub(super) fn error(&self, kind: &str, message: impl Display) {
        if self.json {
            let error = json!({"kind": kind, "message": message.to_string()});
            say(json!({"schema_version": SCHEMA_VERSION, "error": error}));
        } else {
            let (on, off) = if self.colors_errors { (RED, RESET) } else { ("", "") };
            say(format_args!("rsgen: {on}error:{off} {message}"));
        }
    }
}

/// Writes a line to standard error.
pub(super) fn say(message: impl Display) {
    let _ = writeln!(stderr(), "{message}");
}
