//! The command `rsgen`: arguments in, text or JSON out, an exit code.
//!
//! Data goes to standard output, everything else to standard error. This module computes nothing. The caller
//! of [`run`] detects interrupts; programs use [`ctrl_c`].

mod adapters;
mod args;
#[cfg(feature = "serve")]
mod batch_files;
mod bench;
mod catalogue;
mod chat;
mod chat_commands;
mod completions;
mod conversation;
mod convert;
mod decoding;
mod detect;
mod doctor;
mod environment;
mod failure;
mod generate;
mod inspect;
mod interrupt;
mod logger;
mod model;
mod numbers;
mod output;
mod pack;
mod progress;
mod prompt;
mod run_batch;
mod score;
mod serve;
#[cfg(feature = "serve")]
mod served_models;
mod show;
mod terminal;
mod tokenize;
mod tokens;
mod translate;
mod wording;

use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use args::{Arguments, Subcommand};
use environment::Origins;
use failure::Failure;
pub use interrupt::ctrl_c;
use terminal::Terminal;

use crate::engine::Interrupt;

/// Runs the command with these arguments, of which the first is the program's name, and returns its exit
/// code.
///
/// `bundled` is the folder of the story model, for callers that carry it as files; without it the model that
/// is built in by the feature `bundled` is used. `interrupted` is polled every few milliseconds, for the
/// first time when cancellable work begins. A caller may install its signal handler then, so that the signal
/// itself ends everything before, such as waiting for standard input.
///
/// | exit code | meaning |
/// |---|---|
/// | 0 | all went well, or the reader of the output had enough |
/// | 1 | an error on the way, also of some lines of several |
/// | 2 | the arguments make no sense |
/// | 3 | the model cannot be loaded |
/// | 4 | memory or the KV cache does not suffice |
/// | 70 | a defect of rsgen |
/// | 130 | interrupted |
pub fn run(
    arguments: impl IntoIterator<Item = OsString>,
    bundled: Option<&Path>,
    interrupted: &mut dyn FnMut() -> bool,
) -> i32 {
    let line: Vec<OsString> = arguments.into_iter().collect();
    let terminal = &Terminal::new(environment::asks_for_json(&line));
    let work = AssertUnwindSafe(|| {
        let (arguments, origins) = environment::parse(&line).map_err(Failure::Arguments)?;
        logger::install(arguments.verbose, terminal);
        if !matches!(arguments.subcommand, Subcommand::Doctor(_)) {
            environment::warn_of_unknown_variables();
        }
        let shell = Shell { origins: &origins, bundled, terminal, interrupted };
        run_subcommand(&arguments, shell).map_err(|failure| failure.explained(&origins))
    });
    match catch_unwind(work).unwrap_or_else(|panic| Err(panic.into())) {
        Ok(()) => 0,
        Err(failure) => {
            failure.report(terminal);
            failure.exit_code()
        }
    }
}

/// What every subcommand has besides its arguments.
struct Shell<'a> {
    origins: &'a Origins,
    /// The folder of the model to use where none is named.
    bundled: Option<&'a Path>,
    terminal: &'a Terminal,
    interrupted: &'a mut Interrupt<'a>,
}

fn run_subcommand(arguments: &Arguments, shell: Shell<'_>) -> Result<(), Failure> {
    match &arguments.subcommand {
        Subcommand::Generate(arguments) => generate::run(arguments, shell),
        Subcommand::Chat(arguments) => chat::run(arguments, shell),
        Subcommand::Serve(arguments) => serve::run(arguments, shell),
        Subcommand::RunBatch(arguments) => run_batch::run(arguments, shell),
        Subcommand::Pack(arguments) => pack::run(arguments, shell),
        Subcommand::Convert(arguments) => convert::run(arguments, shell.interrupted),
        Subcommand::Score(arguments) => score::run(arguments, shell),
        Subcommand::Translate(arguments) => translate::run(arguments, shell),
        Subcommand::Detect(arguments) => detect::run(arguments, shell.bundled),
        Subcommand::Show(arguments) => show::run(arguments, shell.terminal),
        Subcommand::Tokenize(arguments) => tokenize::run(arguments, &shell),
        Subcommand::Inspect(arguments) => inspect::run(arguments, &shell),
        Subcommand::Doctor(arguments) => doctor::run(arguments, &shell),
        Subcommand::Bench(arguments) => bench::run(arguments, shell),
        Subcommand::Completions(arguments) => completions::run(arguments),
    }
}

#[cfg(test)]
mod tests;
