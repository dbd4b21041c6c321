//! The command as users run it: its own process, its outputs, its exit codes. A file for each subcommand, and one for
//! all of them.
#![cfg(all(feature = "cli", feature = "bundled"))]
#![expect(clippy::unwrap_used, reason = "the helpers of tests fail as tests do")]

mod adapters;
mod bench;
mod chat;
mod completions;
mod convert;
mod detect;
mod doctor;
mod every_subcommand;
mod exit_codes;
mod generate;
mod inspect;
mod score;
#[cfg(feature = "serve")]
mod serve;
mod show;
mod support;
mod tokenize;
