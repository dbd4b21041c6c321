//! Standard output and standard error: terminals or files, with colours or without, for people or programs.
//!
//! Colours follow `NO_COLOR` and `TERM=dumb`. Messages that cannot be written are dropped: there is nowhere
//! to report that.

use std::fmt::Display;
use std::io::{IsTerminal, Write, stderr, stdout};

use serde_json::json;

use super::output::SCHEMA_VERSION;
use crate::pictures::text::Look;
use rsgen_core::escape;

const DIM: &str = "\x1b[2m";
const RED: &str = "\x1b[1;31m";
const RESET: &str = "\x1b[0m";

/// The widths of a picture, and the most lines of one that stays.
const MIN_WIDTH: usize = 80;
const MAX_WIDTH: usize = 120;
const MAX_LINES: usize = 1000;

/// The two outputs of the command.
pub(super) struct Terminal {
    colors_output: bool,
    /// Whether messages may have colours.
    pub(super) colors_errors: bool,
    /// Whether standard error is a terminal.
    pub(super) is_interactive: bool,
    /// Whether errors are written as JSON.
    pub(super) json: bool,
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

    /// A text for standard output, dimmed where there are colours.
    pub(super) fn dimmed(&self, text: &str) -> String {
        if self.colors_output && !text.is_empty() { format!("{DIM}{text}{RESET}") } else { text.to_owned() }
    }

    /// Adds a line to a page: what it is about, dimmed, and the value.
    pub(super) fn add_line(&self, page: &mut String, name: &str, value: &str) {
        let (name, value) = (self.dimmed(&format!("{name:<13}")), escape::message(value));
        page.extend([&name, " ", &*value, "\n"]);
    }

    /// How pictures on standard output look.
    pub(super) fn look(&self) -> Look {
        let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        let size = stdout().is_terminal().then(terminal_size::terminal_size).flatten();
        let width = size.map(|(width, _)| usize::from(width.0)).or(columns).unwrap_or(80);
        Look {
            width: width.clamp(MIN_WIDTH, MAX_WIDTH),
            max_lines: MAX_LINES,
            unicode: is_utf8(|name| std::env::var(name).ok()),
            colors: self.colors_output,
        }
    }

    /// How pictures look that are drawn again and again in place; `None` where that is impossible.
    pub(super) fn live_look(&self) -> Option<Look> {
        let (width, height) = terminal_size::terminal_size().filter(|_| self.colors_output)?;
        // Lines that the terminal breaks could not be counted.
        if usize::from(width.0) < MIN_WIDTH {
            return None;
        }
        // The cursor stands on a line of its own below.
        Some(Look { max_lines: usize::from(height.0).saturating_sub(1).max(3), ..self.look() })
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

/// Whether the locale has UTF-8. A locale that nobody has set is no reason to draw without.
fn is_utf8(variable: impl Fn(&str) -> Option<String>) -> bool {
    let names = ["LC_ALL", "LC_CTYPE", "LANG"];
    let locale = names.into_iter().filter_map(variable).find(|locale| !locale.is_empty());
    locale.is_none_or(|locale| {
        let locale = locale.to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

/// Writes a line to standard error.
pub(super) fn say(message: impl Display) {
    let _ = writeln!(stderr(), "{message}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_variable_that_is_set_names_the_locale() {
        let locale = |set: &[(&str, &str)]| {
            let set: Vec<(String, String)> =
                set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            is_utf8(|name| set.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone()))
        };
        assert!(
            locale(&[])
                && locale(&[("LANG", "de_DE.UTF-8")])
                && locale(&[("LC_ALL", "C.utf8"), ("LANG", "C")])
        );
        assert!(
            !locale(&[("LANG", "C")])
                && !locale(&[("LC_CTYPE", "de_DE.ISO-8859-1"), ("LANG", "en_US.UTF-8")])
        );
        assert!(locale(&[("LC_ALL", ""), ("LANG", "en_US.utf-8")]));
    }
}
