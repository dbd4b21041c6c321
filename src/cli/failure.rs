//! Why the command did not do what it was asked for: one message, one exit code.

use std::io;

use clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;

use super::terminal::{Terminal, say};
use crate::error::{Error, ErrorKind};

const RUNTIME: i32 = 1;
const USAGE: i32 = 2;
const LOAD: i32 = 3;
const CAPACITY: i32 = 4;
/// A defect of this crate: `EX_SOFTWARE` of sysexits.h.
pub(super) const INTERNAL: i32 = 70;
/// What a shell reports for a program that SIGINT ended.
const INTERRUPTED: i32 = 130;

/// Why the command ended early.
#[derive(Debug)]
pub(super) enum Failure {
    /// The arguments cannot be understood, or ask for help.
    Arguments(clap::Error),
    /// An error of the library.
    Library(Error),
    /// Standard output cannot be written.
    Output(io::Error),
    /// The user interrupted the work.
    Interrupted,
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
                ErrorKind::Input | ErrorKind::Numerical | ErrorKind::Callback | ErrorKind::Fork => RUNTIME,
            },
            // The reader has had enough, as `head` does: nothing is wrong.
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => 0,
            Self::Output(_) => RUNTIME,
            Self::Interrupted => INTERRUPTED,
        }
    }

    /// Writes the message to standard error, or the help that was asked for to standard output.
    pub(super) fn report(&self, terminal: &Terminal) {
        match self {
            // Help, asked for or not. A reader that closes the pipe in the middle of it has had enough.
            Self::Arguments(error)
                if !error.use_stderr() || error.kind() == DisplayHelpOnMissingArgumentOrSubcommand =>
            {
                let _ = error.print();
            }
            Self::Arguments(error) => {
                let message = error.render();
                if terminal.colors_errors() {
                    say(format_args!("rsgen: {}", message.ansi().to_string().trim_end()));
                } else {
                    say(format_args!("rsgen: {}", message.to_string().trim_end()));
                }
            }
            Self::Library(error) => terminal.error(error),
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            Self::Output(error) => {
                terminal.error(format_args!("standard output cannot be written: {error}"));
            }
            Self::Interrupted => {}
        }
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
