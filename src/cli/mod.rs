//! The command `rsgen`: arguments in, text or JSON out, an exit code.
//!
//! Data goes to standard output, everything else to standard error. Nothing is computed here, and no signal handler is
//! installed: whoever calls [`run`] says how an interrupt is noticed.

mod args;
mod failure;
mod generate;
mod inspect;
mod logger;
mod model;
mod output;
mod prompt;
mod terminal;

use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use clap::{CommandFactory, FromArgMatches};

use args::{Arguments, Verb};
use failure::{Failure, INTERNAL};
use terminal::Terminal;

/// Runs the command with these arguments, of which the first is the program's name, and returns its exit code.
///
/// `bundled` is the folder of the story model, for callers that carry it as files; without it the model that is built in
/// by the feature `bundled` is used. `interrupted` is asked for the first time when work begins that can be ended early,
/// and then every few milliseconds: a caller may wait until then with installing a signal handler, so that everything
/// before, such as waiting for standard input, ends by the signal itself.
///
/// | exit code | meaning |
/// |---|---|
/// | 0 | all went well, or the reader of the output had enough |
/// | 1 | an error on the way |
/// | 2 | the arguments make no sense |
/// | 3 | the model cannot be loaded |
/// | 4 | memory or the KV cache does not suffice |
/// | 70 | a defect of rsgen |
/// | 130 | interrupted |
pub fn run(
    arguments: impl IntoIterator<Item = OsString>,
    bundled: Option<PathBuf>,
    interrupted: &mut dyn FnMut() -> bool,
) -> i32 {
    let terminal = &Terminal::new();
    let work = AssertUnwindSafe(move || match parse(arguments) {
        Ok(arguments) => {
            logger::install(arguments.verbose);
            match arguments.verb {
                Verb::Generate(arguments) => {
                    generate::run(&arguments, bundled.as_deref(), terminal, interrupted)
                }
                Verb::Inspect(arguments) => inspect::run(&arguments, bundled.as_deref(), terminal),
            }
        }
        Err(error) => Err(Failure::Arguments(error)),
    });
    match catch_unwind(work) {
        Ok(Ok(())) => 0,
        Ok(Err(failure)) => {
            failure.report(terminal);
            failure.exit_code()
        }
        // The panic's own message has been printed.
        Err(_) => INTERNAL,
    }
}

fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Arguments, clap::Error> {
    // The name is fixed, so that help is the same however Python starts the program.
    let command = Arguments::command().no_binary_name(true).bin_name("rsgen");
    let mut command_of_errors = command.clone();
    let matches = command.try_get_matches_from(arguments.into_iter().skip(1))?;
    Arguments::from_arg_matches(&matches).map_err(|error| error.format(&mut command_of_errors))
}

#[cfg(test)]
mod tests;
