//! `rsgen show`: draws a trace; and the pictures of `rsgen generate`.

mod live;

use std::io::{Write, stdout};
use std::path::PathBuf;

use clap::Args;

use super::args::OutputArguments;
use super::failure::Failure;
use super::output::write_json;
use super::prompt;
use super::terminal::Terminal;
use crate::engine::trace::Trace;
use crate::pictures::{Pictures, View};

pub(super) use live::draw;

const EXAMPLES: &str = "\
Examples:
  rsgen generate --num-beams 3 --output-events --json \"One day\" > trace.json
  rsgen show trace.json
  rsgen show --html trace.json > trace.html";

/// Draw how a text was found, from a trace
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ShowArguments {
    /// A trace; `-`: standard input
    ///
    /// `save_trace` writes it in Python, and `rsgen generate --json --output-events` in the shell.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Write a page of HTML instead of text
    #[arg(long, env = "RSGEN_HTML")]
    html: bool,
    #[command(flatten)]
    pictures: PictureArguments,
    #[command(flatten)]
    output: OutputArguments,
}

/// The pictures to draw.
#[derive(Debug, Args)]
#[command(next_help_heading = "Pictures")]
pub(super) struct PictureArguments {
    /// Draw the probability of each token
    #[arg(long, env = "RSGEN_SHOW_PROBS", hide_short_help = true)]
    show_probs: bool,
    /// Draw the tree of beams
    #[arg(long, env = "RSGEN_SHOW_BEAMS", hide_short_help = true)]
    show_beams: bool,
    /// Draw accepted and rejected drafts
    #[arg(long, env = "RSGEN_SHOW_DRAFT", hide_short_help = true)]
    show_draft: bool,
}

impl PictureArguments {
    /// The requested pictures.
    pub(super) fn views(&self) -> Vec<View> {
        let all =
            [(View::Beams, self.show_beams), (View::Drafts, self.show_draft), (View::Probs, self.show_probs)];
        all.into_iter().filter(|(_, is_wanted)| *is_wanted).map(|(view, _)| view).collect()
    }
}

pub(super) fn run(arguments: &ShowArguments, terminal: &Terminal) -> Result<(), Failure> {
    let trace = Trace::from_json(&prompt::read_file("FILE", &arguments.file)?)?;
    let mut out = stdout().lock();
    if arguments.output.json {
        return Ok(write_json(&mut out, &trace)?);
    }
    let pictures = Pictures::of(&trace.events);
    let wanted = arguments.pictures.views();
    let views = if wanted.is_empty() { pictures.views() } else { wanted };
    if arguments.html {
        out.write_all(b"<!doctype html><meta charset=\"utf-8\"><title>rsgen</title>")?;
        out.write_all(pictures.html(&views).as_bytes())?;
        out.write_all(b"\n")?;
    } else {
        out.write_all(live::text(&pictures, &views, &terminal.look()).as_bytes())?;
    }
    out.flush()?;
    Ok(())
}
