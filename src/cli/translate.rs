//! `rsgen translate`: translates each line of a file, line for line.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Write, stdout};
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use serde::Serialize;

use super::Shell;
use super::args::{AssistantArguments, ModelArguments, OUTPUT, OutputArguments};
use super::decoding::DecodingArguments;
use super::failure::Failure;
use super::output::{or_stop, write_report};
use super::terminal::Terminal;
use super::{generate, model, progress, prompt, wording};
use crate::engine::Interrupt;
use crate::generator::{Call, Generator};
use rsgen_core::{Error, Result};

/// The lines that are encoded at a time.
const CHUNK: usize = 1024;

const EXAMPLES: &str = "\
Examples:
  rsgen translate --model path/to/nllb --to deu_Latn --glossary terms.tsv a.txt";

/// Translate each line of a file
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct TranslateArguments {
    /// A file with a text on each line; `-` or nothing: standard input
    file: Option<PathBuf>,
    /// The language of the texts
    #[arg(long, value_name = "LANGUAGE", env = "RSGEN_FROM")]
    from: Option<String>,
    /// The language to translate into
    #[arg(long, value_name = "LANGUAGE", env = "RSGEN_TO")]
    to: Option<String>,

    #[command(flatten)]
    decoding: DecodingArguments,
    /// Translate lines sentence by sentence
    #[arg(long, env = "RSGEN_SPLIT_SENTENCES")]
    split_sentences: bool,
    #[command(flatten)]
    model: ModelArguments,
    #[command(flatten)]
    assistant: AssistantArguments,
    #[command(flatten)]
    written: OutputArguments,
    /// The file to write; `-`: standard output
    #[arg(short, long, value_name = "FILE", env = "RSGEN_OUTPUT", help_heading = OUTPUT)]
    output: Option<PathBuf>,
    /// Go on with a file that has some of the answers
    #[arg(long, env = "RSGEN_RESUME", help_heading = OUTPUT, requires = "output")]
    resume: bool,
}

pub(super) fn run(arguments: &TranslateArguments, shell: Shell<'_>) -> std::result::Result<(), Failure> {
    let Shell { bundled, terminal, interrupted, .. } = shell;
    let lines = prompt::read_lines(arguments.file.as_deref().unwrap_or(Path::new("-")))?;
    let ModelArguments { named, loading } = &arguments.model;
    let generator =
        model::load(named.model.as_deref(), loading, Some(&arguments.assistant), bundled, terminal)?;
    // A wrong field is told before an existing file is replaced.
    drop(arguments.call(&generator, vec!["a"]).prepare_possible(true, interrupted)?);
    let (out, done) = arguments.out(lines.texts.len())?;
    let mut job = Job { arguments, generator: &generator, terminal, out, failed: 0 };
    job.translate(&lines, done, interrupted)?;
    match job.failed {
        0 => Ok(()),
        failed => Err(Failure::Lines { failed, total: lines.texts.len() }),
    }
}

impl TranslateArguments {
    /// The call that translates texts.
    fn call<'a>(&self, generator: &'a Generator, texts: Vec<&str>) -> Call<'a> {
        let call = generator.call(texts).config(&self.decoding.0);
        let call = call.translation(self.from.as_deref(), self.to.as_deref());
        if self.split_sentences { call.split_sentences() } else { call }
    }

    /// What is written to, and the lines that it has already.
    fn out(&self, most: usize) -> Result<(Box<dyn Write>, usize)> {
        let Some(file) = self.output.as_deref().filter(|file| *file != Path::new("-")) else {
            return Ok((Box::new(stdout().lock()), 0));
        };
        let cannot = |what: &str, error: io::Error| {
            let message = format!("`--output`: {} cannot be {what}; name another file", file.display());
            Error::input(message).with_source(error)
        };
        let mut done = 0;
        if self.resume && file.exists() {
            let before = std::fs::read_to_string(file).map_err(|error| cannot("read", error))?;
            if !before.is_empty() && !before.ends_with('\n') {
                return Err(Error::input(format!(
                    "`--resume`: the last line of {} must end with a line break; remove that line",
                    file.display()
                )));
            }
            done = before.lines().count();
            if done > most {
                return Err(Error::input(format!(
                    "`--resume`: {} has {done} lines, but the texts are {most}; is it the output of another file?",
                    file.display()
                )));
            }
        }
        let mut options = OpenOptions::new();
        options.create(true).write(true).append(self.resume).truncate(!self.resume);
        let opened = options.open(file).map_err(|error| cannot("written", error))?;
        Ok((Box::new(opened), done))
    }
}

/// The task, with its model and output.
struct Job<'a> {
    arguments: &'a TranslateArguments,
    generator: &'a Generator,
    terminal: &'a Terminal,
    out: Box<dyn Write>,
    /// The lines that could not be translated.
    failed: usize,
}

impl Job<'_> {
    /// Translates the lines after those that are done.
    fn translate(
        &mut self,
        lines: &prompt::Lines,
        done: usize,
        interrupted: &mut Interrupt<'_>,
    ) -> std::result::Result<(), Failure> {
        let (started, words) = (Instant::now(), |lines: &[String]| -> usize {
            lines.iter().map(|line| line.split_whitespace().count()).sum()
        });
        let bar = progress::of_texts(self.terminal, lines.texts.len() - done);
        for first in (done..lines.texts.len()).step_by(CHUNK) {
            self.translate_chunk(lines, first, &bar, interrupted)?;
        }
        let lines = &lines.texts;
        bar.finish_and_clear();
        if self.terminal.is_interactive && !self.arguments.written.json {
            let (words, seconds) = (words(&lines[done..]), started.elapsed().as_secs_f64());
            let rate = words as f64 / seconds.max(1e-9);
            self.terminal
                .note(format!("{} lines, {words} words, {rate:.0} words a second", lines.len() - done));
        }
        Ok(())
    }

    /// Translates a chunk of lines from this index on. Blank ones stay as they are.
    fn translate_chunk(
        &mut self,
        all: &prompt::Lines,
        first: usize,
        bar: &indicatif::ProgressBar,
        interrupted: &mut Interrupt<'_>,
    ) -> std::result::Result<(), Failure> {
        let lines = &all.texts[first..all.texts.len().min(first + CHUNK)];
        let is_text = |&line: &usize| !lines[line].trim().is_empty() && all.error(first + line).is_none();
        let wanted: Vec<usize> = (0..lines.len()).filter(is_text).collect();
        // Translations that wait for those of earlier lines; those that are no text or fail, at once.
        let mut waiting: BTreeMap<usize, String> = BTreeMap::new();
        for line in (0..lines.len()).filter(|line| wanted.binary_search(line).is_err()) {
            let Some(error) = all.error(first + line) else {
                waiting.insert(line, lines[line].clone());
                continue;
            };
            self.report(first + line, &error);
            waiting.insert(line, String::new());
            self.failed += 1;
        }
        let mut next = 0;
        if !wanted.is_empty() {
            let texts: Vec<&str> = wanted.iter().map(|&line| &*lines[line]).collect();
            let call = self.arguments.call(self.generator, texts);
            let (prepared, impossible) = call.prepare_possible(true, interrupted)?;
            generate::warn(&prepared);
            for (index, error) in &impossible {
                let line = wanted[*index];
                self.report(first + line, error);
                waiting.insert(line, String::new());
            }
            self.failed += impossible.len();
            let is_possible = |place: &usize| impossible.iter().all(|(index, _)| index != place);
            let possible: Vec<usize> =
                (0..wanted.len()).filter(is_possible).map(|place| wanted[place]).collect();
            let mut failed = None;
            let result = prepared.run_each(interrupted, &mut |index, output| {
                // A translation is a line.
                waiting.insert(possible[index], output.text().replace(['\n', '\r'], " "));
                bar.inc(1);
                or_stop(bar.suspend(|| self.write(lines, &mut waiting, &mut next)), &mut failed)
            });
            if let Some(error) = failed {
                return Err(error.into());
            }
            result?;
        }
        Ok(self.write(lines, &mut waiting, &mut next)?)
    }

    /// Says why a line is not translated.
    fn report(&self, line: usize, error: &Error) {
        self.terminal.error(error.kind().as_str(), format!("line {}: {}", line + 1, wording::told(error)));
    }

    /// Writes the lines from `next` on that are there.
    fn write(
        &mut self,
        lines: &[String],
        waiting: &mut BTreeMap<usize, String>,
        next: &mut usize,
    ) -> io::Result<()> {
        while let Some(translation) = waiting.remove(next) {
            if self.arguments.written.json {
                write_report(&mut self.out, &Report { text: &lines[*next], translation: &translation })?;
            } else {
                writeln!(self.out, "{translation}")?;
            }
            *next += 1;
        }
        self.out.flush()
    }
}

/// What `--json` writes for each line.
#[derive(Serialize)]
struct Report<'a> {
    text: &'a str,
    translation: &'a str,
}
