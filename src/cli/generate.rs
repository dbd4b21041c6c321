//! `rsgen generate`: continues a text, or each line of a file; streams the text, or writes JSON at the end.

use std::collections::BTreeMap;
use std::io::{Write, stdout};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::Shell;
use super::args::{GenerateArguments, ModelArguments};
use super::failure::Failure;
use super::output::{RowPrinter, or_stop, write_report};
use super::terminal::Terminal;
use super::wording;
use super::{catalogue, model, progress, prompt, show};
use crate::engine::trace::TimedEvent;
use crate::engine::{GenerationOutput, Interrupt, TokenStream, Usage};
use crate::generator::{Call, Generator, Prepared, Prompts};
use rsgen_core::{Error, FinishReason, TokenId};
use rsgen_generation::{GenerationConfig, SequenceScores, TokenTrie, TrieEntry};

pub(super) fn run(arguments: &GenerateArguments, shell: Shell<'_>) -> Result<(), Failure> {
    let Shell { bundled, terminal, interrupted, .. } = shell;
    if arguments.prompts.is_some() && !arguments.pictures.views().is_empty() {
        return Err(Error::config(
            "the pictures show one text, but `--prompts` gives several; draw them from the traces of `--json \
             --output-events` with `rsgen show`",
        )
        .into());
    }
    let lines = arguments.prompts.as_deref().map(prompt::read_lines).transpose()?;
    let prompt = if lines.is_some() { String::new() } else { prompt::read(arguments.prompt.as_deref())? };
    let started = Instant::now();
    let ModelArguments { named, loading } = &arguments.model;
    let generator =
        model::load(named.model.as_deref(), loading, Some(&arguments.assistant), bundled, terminal)?;
    let open = |path| catalogue::open("allowed_sequences", path, interrupted);
    let catalogue = arguments.allowed_sequences.as_ref().map(open).transpose()?;
    let job = Job { arguments, generator: &generator, catalogue, loading: started.elapsed(), terminal };
    match lines {
        Some(lines) if lines.texts.is_empty() => Ok(()),
        Some(lines) => job.continue_lines(&lines, interrupted),
        None => job.continue_text(&prompt, interrupted),
    }
}

/// The task, with its model and outputs.
struct Job<'a> {
    arguments: &'a GenerateArguments,
    generator: &'a Generator,
    catalogue: Option<Arc<TokenTrie>>,
    loading: Duration,
    terminal: &'a Terminal,
}

impl Job<'_> {
    /// A call with the options of all.
    fn call<'a>(&'a self, prompts: impl Into<Prompts>, config: &'a GenerationConfig) -> Call<'a> {
        let call = self.generator.call(prompts).config(config);
        match &self.catalogue {
            Some(trie) => call.allowed_sequences(Arc::clone(trie)),
            None => call,
        }
    }

    fn continue_text(&self, prompt: &str, interrupted: &mut Interrupt<'_>) -> Result<(), Failure> {
        let (views, json) = (self.arguments.pictures.views(), self.arguments.output.json);
        let mut config = self.arguments.decoding.0.clone();
        if !views.is_empty() {
            config.output_events = Some(true);
        }
        let prepared = self.call(prompt, &config).prepare(true, interrupted)?;
        if !views.is_empty() && !json {
            let output = show::draw(prepared, &views, self.terminal, interrupted)?;
            if self.terminal.is_interactive {
                self.terminal.note(summary(&output));
            }
            return Ok(());
        }
        let shown = self.shown(prompt);
        let write =
            |output: &GenerationOutput| write_report(&mut stdout().lock(), &self.report(prompt, output));
        let write_json = json.then_some(&write as &dyn Fn(&_) -> _);
        let output = reply(prepared, shown, write_json, self.terminal, interrupted)?;
        if self.terminal.is_interactive && !json {
            self.terminal.note(summary(&output));
        }
        Ok(())
    }

    /// Continues each line. A line that fails is reported, and the others go on.
    fn continue_lines(&self, lines: &prompt::Lines, interrupted: &mut Interrupt<'_>) -> Result<(), Failure> {
        let report = |line: usize, error: &Error| {
            let message = format!("line {}: {}", line + 1, wording::told(error));
            self.terminal.error(error.kind().as_str(), message);
        };
        let (total, mut readable) = (lines.texts.len(), Vec::with_capacity(lines.texts.len()));
        for line in 0..total {
            match lines.error(line) {
                Some(error) => report(line, &error),
                None => readable.push(line),
            }
        }
        let lines = &lines.texts;
        if readable.is_empty() {
            return Err(Failure::Lines { failed: total, total });
        }
        let prompts: Vec<&str> = readable.iter().map(|&line| &*lines[line]).collect();
        let call = self.call(prompts, &self.arguments.decoding.0);
        let (prepared, impossible) = call.prepare_possible(true, interrupted)?;
        warn(&prepared);
        for (index, error) in &impossible {
            report(readable[*index], error);
        }
        let is_possible = |place: &usize| impossible.iter().all(|(index, _)| index != place);
        let possible: Vec<usize> =
            (0..readable.len()).filter(is_possible).map(|place| readable[place]).collect();

        let bar = progress::of_texts(self.terminal, possible.len());
        let rows_each = prepared.num_rows() / possible.len().max(1);
        let numbers = possible.iter().flat_map(|line| (1..=rows_each).map(move |row| line * rows_each + row));
        let mut printer =
            RowPrinter::new(stdout().lock(), String::new(), possible.len() * rows_each, self.terminal)
                .numbered(numbers.collect(), lines.len() * rows_each);
        // Objects that wait for those of earlier lines, and the index of the next one.
        let (mut waiting, mut next) = (BTreeMap::new(), 0);
        let json = self.arguments.output.json;
        if !json {
            bar.suspend(|| printer.start())?;
        }
        let mut failed = None;
        let result = prepared.run_each(interrupted, &mut |index, output| {
            let prompt = &lines[possible[index]];
            let written = bar.suspend(|| {
                if json {
                    let mut line = Vec::new();
                    write_report(&mut line, &self.report(prompt, output))?;
                    waiting.insert(index, line);
                    while let Some(line) = waiting.remove(&next) {
                        next += 1;
                        stdout().write_all(&line)?;
                    }
                    return stdout().flush();
                }
                let rows = output.texts().zip(index * rows_each..);
                let mut rows = rows.map(|(text, row)| (row, self.shown(prompt) + text));
                rows.try_for_each(|(row, text)| printer.push(row, &text, true))
            });
            bar.inc(1);
            or_stop(written, &mut failed)
        });
        bar.finish_and_clear();
        if let Some(error) = failed {
            return Err(error.into());
        }
        result?;
        match total - possible.len() {
            0 => Ok(()),
            failed => Err(Failure::Lines { failed, total }),
        }
    }

    /// The prompt as it is shown before the text; a source is not its beginning.
    fn shown(&self, prompt: &str) -> String {
        if self.arguments.no_prompt || self.generator.has_encoder() {
            String::new()
        } else {
            self.terminal.dimmed(prompt)
        }
    }

    fn report<'a>(&'a self, prompt: &'a str, output: &'a GenerationOutput) -> Report<'a> {
        Report::new(self.generator.name(), prompt, output, self.loading)
    }
}

/// Prints warnings about likely mistakes.
pub(super) fn warn(prepared: &Prepared<'_>) {
    for warning in prepared.warnings() {
        log::warn!("{}", wording::warning(warning));
    }
}

/// Writes an output as JSON.
type WriteJson<'a> = dyn Fn(&GenerationOutput) -> std::io::Result<()> + 'a;

/// Runs a call of a single prompt. Streams its text, or writes its output with `write_json` at the end, also
/// after an interrupt.
pub(super) fn reply(
    prepared: Prepared<'_>,
    prompt: String,
    write_json: Option<&WriteJson<'_>>,
    terminal: &Terminal,
    interrupted: &mut Interrupt<'_>,
) -> Result<GenerationOutput, Failure> {
    warn(&prepared);
    let num_rows = prepared.num_rows();
    let mut stream = prepared.stream()?;
    let result = match write_json {
        Some(_) => read_to_end(&mut stream, interrupted),
        None => write_text(&mut stream, prompt, num_rows, terminal, interrupted),
    };
    if let (Ok(()) | Err(Failure::Interrupted), Some(output), Some(write)) =
        (&result, stream.output(), write_json)
    {
        write(output)?;
    }
    result?;
    stream.into_output().map_err(Failure::from)
}

fn read_to_end(stream: &mut TokenStream, interrupted: &mut Interrupt<'_>) -> Result<(), Failure> {
    while stream.next_token(interrupted)?.is_some() {}
    Ok(())
}

/// Writes the rows in order, streaming the first incomplete one. After an error or an interrupt, ends the
/// text so far with a line break.
fn write_text(
    stream: &mut TokenStream,
    prompt: String,
    num_rows: usize,
    terminal: &Terminal,
    interrupted: &mut Interrupt<'_>,
) -> Result<(), Failure> {
    let mut printer = RowPrinter::new(stdout().lock(), prompt, num_rows, terminal);
    printer.start()?;
    let result = loop {
        match stream.next_token(interrupted) {
            Ok(Some(token)) => printer.push(token.index, &token.text, token.finish_reason.is_some())?,
            Ok(None) => break Ok(()),
            Err(error) => break Err(error.into()),
        }
    };
    printer.finish()?;
    result
}

/// One line with the number of tokens and the time.
pub(super) fn summary(output: &GenerationOutput) -> String {
    let tokens = output.usage.generated_tokens;
    let seconds = output.timings.total.as_secs_f64();
    let rate = if seconds > 0.0 { tokens as f64 / seconds } else { 0.0 };
    let seed = output.seeds.first().map(|seed| format!(", seed {seed}")).unwrap_or_default();
    format!("{tokens} tokens in {seconds:.2} s, {rate:.0} tokens/s{seed}")
}

/// What `--json` writes.
#[derive(Serialize)]
pub(super) struct Report<'a> {
    model: &'a str,
    prompt: &'a str,
    /// The text of the first row.
    text: &'a str,
    texts: Vec<&'a str>,
    /// The generated tokens, by row.
    token_ids: Vec<Vec<u32>>,
    finish_reasons: Vec<&'static str>,
    /// The log-probability of each generated token under the model's own logits, in nats, by row.
    logprobs: Vec<&'a [f32]>,
    /// With beams, by row.
    #[serde(skip_serializing_if = "Option::is_none")]
    sequences_scores: Option<Vec<f32>>,
    /// With `--allowed-sequences`: the entry that each row is, with its log-probability; `null` for one that was cut, or that is
    /// the same as a better one.
    #[serde(skip_serializing_if = "Option::is_none")]
    entries: Option<Vec<Option<Entry<'a>>>>,
    /// With `--top-logprobs`: by row and token, pairs of an id and its log-probability.
    #[serde(skip_serializing_if = "Option::is_none")]
    top_logprobs: Option<Vec<RowTopLogprobs<'a>>>,
    /// With `--output-scores`: by row (with beams by beam), token and vocabulary.
    #[serde(skip_serializing_if = "Option::is_none")]
    scores: Option<Vec<&'a [Vec<f32>]>>,
    /// With `--output-logits`: as `scores`.
    #[serde(skip_serializing_if = "Option::is_none")]
    logits: Option<Vec<&'a [Vec<f32>]>>,
    /// With `--output-events`.
    #[serde(skip_serializing_if = "Option::is_none")]
    events: Option<&'a [TimedEvent]>,
    /// `null` without sampling.
    seed: Option<u64>,
    usage: Usage,
    timings: TimingsReport,
}

/// An entry of the catalogue.
#[derive(Serialize)]
struct Entry<'a> {
    #[serde(flatten)]
    entry: &'a TrieEntry,
    /// That of its tokens and of the end.
    logprob: f64,
}

impl<'a> Entry<'a> {
    /// The entries of the rows of an output.
    fn of(output: &'a GenerationOutput) -> Option<Vec<Option<Self>>> {
        let logprob = |row: usize| output.rows[row].generated.logprobs.iter().copied().map(f64::from).sum();
        let named = |(row, entry): (usize, &'a Option<TrieEntry>)| {
            entry.as_ref().map(|entry| Self { entry, logprob: logprob(row) })
        };
        output.entries.as_ref().map(|entries| entries.iter().enumerate().map(named).collect())
    }
}

/// The most probable tokens of each token of a row.
type RowTopLogprobs<'a> = Vec<&'a [(TokenId, f32)]>;

#[derive(Serialize)]
struct TimingsReport {
    #[serde(rename = "load_seconds")]
    load: f64,
    #[serde(rename = "first_token_seconds")]
    first_token: f64,
    #[serde(rename = "total_seconds")]
    total: f64,
    #[serde(rename = "encoder_seconds")]
    encoder: f64,
}

impl<'a> Report<'a> {
    pub(super) fn new(
        model: &'a str,
        prompt: &'a str,
        output: &'a GenerationOutput,
        loading: Duration,
    ) -> Self {
        let rows = || output.rows.iter().map(|row| &row.generated);
        Self {
            model,
            prompt,
            text: output.text(),
            texts: output.texts().collect(),
            token_ids: rows().map(|row| row.token_ids.iter().map(|token| token.0).collect()).collect(),
            finish_reasons: rows().map(|row| FinishReason::as_str(row.finish_reason)).collect(),
            logprobs: rows().map(|row| row.logprobs.as_slice()).collect(),
            sequences_scores: rows().map(|row| row.score).collect(),
            entries: Entry::of(output),
            top_logprobs: (0..output.rows.len()).map(|row| output.top_logprobs(row)).collect(),
            scores: output
                .sequences
                .iter()
                .map(|sequence: &SequenceScores| sequence.scores.as_deref())
                .collect(),
            logits: output
                .sequences
                .iter()
                .map(|sequence: &SequenceScores| sequence.logits.as_deref())
                .collect(),
            events: output.events.as_deref(),
            seed: output.seeds.first().copied(),
            usage: output.usage,
            timings: TimingsReport {
                load: loading.as_secs_f64(),
                first_token: output.timings.first_token.as_secs_f64(),
                total: output.timings.total.as_secs_f64(),
                encoder: output.timings.encoder.as_secs_f64(),
            },
        }
    }
}
