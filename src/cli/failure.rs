//! The failures of the command: one message and one exit code each.

use std::any::Any;
use std::{fmt, io};

use clap::error::ErrorKind::{DisplayHelpOnMissingArgumentOrSubcommand, UnknownArgument};
use clap::error::{ContextKind, ContextValue};

use super::environment::Origins;
use super::terminal::{Terminal, say};
use super::wording;
use rsgen_core::{Error, ErrorKind};

const RUNTIME: i32 = 1;
const USAGE: i32 = 2;
const LOAD: i32 = 3;
const CAPACITY: i32 = 4;
/// A defect of this crate: `EX_SOFTWARE` of sysexits.h.
const INTERNAL: i32 = 70;
/// The exit code of a program that SIGINT ended, as shells report it.
const INTERRUPTED: i32 = 130;

/// Why the command failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The arguments are invalid, or request help.
    Arguments(clap::Error),
    /// An error of the library.
    Library(Error),
    /// Some of several lines failed, and each has been reported.
    Lines { failed: usize, total: usize },
    /// Standard output cannot be written.
    Output(io::Error),
    /// The user interrupted the work.
    Interrupted,
    /// A panic with this message, which has been printed.
    Panic(String),
}

impl Failure {
    pub(super) fn exit_code(&self) -> i32 {
        match self {
            Self::Arguments(error) => error.exit_code(),
            Self::Library(error) => match error.kind() {
                ErrorKind::Config => USAGE,
                ErrorKind::Load => LOAD,
                ErrorKind::Capacity => CAPACITY,
                ErrorKind::Internal => INTERNAL,
                ErrorKind::Cancelled => INTERRUPTED,
                _ => RUNTIME,
            },
            // The reader has closed the pipe, as `head` does: not an error.
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => 0,
            Self::Output(_) | Self::Lines { .. } => RUNTIME,
            Self::Interrupted => INTERRUPTED,
            Self::Panic(_) => INTERNAL,
        }
    }

    /// Adds the environment variable that caused the failure.
    pub(super) fn explained(self, origins: &Origins) -> Self {
        match self {
            Self::Library(error) => Self::Library(origins.explain(error)),
            other => other,
        }
    }

    /// Writes the message to standard error, or requested help to standard output.
    pub(super) fn report(&self, terminal: &Terminal) {
        let kind = match self {
            Self::Arguments(_) => "usage",
            Self::Library(error) => error.kind().as_str(),
            Self::Lines { .. } => ErrorKind::Input.as_str(),
            Self::Output(_) => "output",
            Self::Interrupted => ErrorKind::Cancelled.as_str(),
            Self::Panic(_) => ErrorKind::Internal.as_str(),
        };
        match self {
            // A reader may close the pipe in the middle of the help.
            Self::Arguments(error) if !error.use_stderr() => {
                let _ = error.print();
            }
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            _ if terminal.json => terminal.error(kind, self),
            Self::Arguments(error) if error.kind() == DisplayHelpOnMissingArgumentOrSubcommand => {
                let _ = error.print();
            }
            Self::Arguments(error) => {
                let message = error.render();
                let remedy = remedy(error).map_or_else(String::new, |remedy| format!("\n\n{remedy}"));
                if terminal.colors_errors {
                    say(format_args!("rsgen: {}{remedy}", message.ansi().to_string().trim_end()));
                } else {
                    say(format_args!("rsgen: {}{remedy}", message.to_string().trim_end()));
                }
            }
            Self::Library(_) | Self::Lines { .. } | Self::Output(_) => terminal.error(kind, self),
            // The user knows, and the panic was printed.
            Self::Interrupted | Self::Panic(_) => {}
        }
    }
}

/// What to do about words beside a text, which is one argument, and about a model that is an argument.
fn remedy(error: &clap::Error) -> Option<&'static str> {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg) else { return None };
    let Some(ContextValue::StyledStr(usage)) = error.get(ContextKind::Usage) else { return None };
    let usage = usage.to_string();
    let takes = |arguments: [&str; 2]| arguments.iter().any(|argument| usage.contains(argument));
    match word.as_str() {
        _ if error.kind() != UnknownArgument => None,
        "--model" if takes(["[MODEL]", "<MODEL>"]) => {
            Some("the model is this command's argument, without `--model`")
        }
        word if !word.starts_with('-') && takes(["[PROMPT]", "[TEXT]"]) => {
            Some("a text of several words is one argument: put it in quotes")
        }
        _ => None,
    }
}

/// The message of an error about arguments, on one line and without the usage.
fn plain(error: &clap::Error) -> String {
    if error.kind() == DisplayHelpOnMissingArgumentOrSubcommand {
        return "no subcommand is given; see rsgen --help".to_owned();
    }
    let text = error.render().to_string();
    let parts = text.trim_start_matches("error: ").split("\n\n").map(str::trim);
    let parts = parts.filter(|part| !part.starts_with("Usage:") && !part.starts_with("For more information"));
    let parts = parts.filter(|part| !part.is_empty()).chain(remedy(error));
    parts.collect::<Vec<_>>().join("; ").replace("\n  ", " ")
}

/// The message without its prefix.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arguments(error) => f.write_str(&plain(error)),
            Self::Library(error) => f.write_str(&wording::told(error)),
            Self::Lines { failed, total } => write!(f, "{failed} of {total} lines failed"),
            Self::Output(error) => write!(f, "standard output cannot be written: {error}"),
            Self::Interrupted => f.write_str("interrupted"),
            Self::Panic(message) => f.write_str(message),
        }
    }
}

impl From<Box<dyn Any + Send>> for Failure {
    fn from(panic: Box<dyn Any + Send>) -> Self {
        let message = panic.downcast_ref::<String>().map(String::as_str);
        let message = message.or_else(|| panic.downcast_ref::<&str>().copied());
        Self::Panic(message.unwrap_or("a panic").to_owned())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        if error.kind() == ErrorKind::Cancelled { Self::Interrupted } else { Self::Library(error) }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}
