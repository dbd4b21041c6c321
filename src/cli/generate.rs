//! `rsgen generate`: continues a text, on the screen as it is written or as JSON at the end.

use std::io::stdout;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::args::GenerateArguments;
use super::failure::Failure;
use super::output::{RowPrinter, SCHEMA_VERSION, write_json};
use super::terminal::Terminal;
use super::{model, prompt};
use crate::engine::{GenerationOutput, Interrupt, TokenStream};
use crate::types::FinishReason;

pub(super) fn run(
    arguments: &GenerateArguments,
    bundled: Option<&Path>,
    terminal: &Terminal,
    interrupted: &mut Interrupt<'_>,
) -> Result<(), Failure> {
    let prompt = prompt::read(arguments.prompt.as_deref())?;
    let started = Instant::now();
    let generator = model::load(&arguments.model, bundled, terminal)?;
    let loading = started.elapsed();

    let config = arguments.decoding.generation_config();
    let num_rows = config.merged_over(generator.generation_config()).num_return_sequences.unwrap_or(1);
    let prepared = generator.call(prompt.as_str()).config(&config).prepare(true)?;
    for warning in prepared.warnings() {
        log::warn!("{warning}");
    }
    let mut stream = prepared.stream()?;

    if arguments.output.json {
        let result = read_to_end(&mut stream, interrupted);
        if let (Ok(()) | Err(Failure::Interrupted), Some(output)) = (&result, stream.output()) {
            write_json(&mut stdout().lock(), &Report::new(generator.name(), &prompt, output, loading))?;
        }
        return result;
    }
    let prompt = if arguments.no_prompt { String::new() } else { terminal.dimmed(&prompt) };
    write_text(&mut stream, prompt, num_rows, terminal, interrupted)?;
    if let (true, Some(output)) = (terminal.is_watched(), stream.output()) {
        terminal.note(summary(output));
    }
    Ok(())
}

pub(super) fn read_to_end(stream: &mut TokenStream, interrupted: &mut Interrupt<'_>) -> Result<(), Failure> {
    while stream.next_token(interrupted)?.is_some() {}
    Ok(())
}

/// Writes the rows in order, the first that is not complete as it is written. What was written before an error or an
/// interrupt stays, and ends with a line break.
pub(super) fn write_text(
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

/// One line about what it took.
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
    schema_version: u32,
    model: &'a str,
    prompt: &'a str,
    /// That of the first row.
    text: &'a str,
    texts: Vec<&'a str>,
    /// The generated ones, by row.
    token_ids: Vec<Vec<u32>>,
    finish_reasons: Vec<&'static str>,
    /// Of each generated token under the model's own logits, in nats, by row.
    logprobs: Vec<&'a [f32]>,
    /// `null` when nothing was drawn at random.
    seed: Option<u64>,
    usage: UsageReport,
    timings: TimingsReport,
}

#[derive(Serialize)]
struct UsageReport {
    prompt_tokens: usize,
    generated_tokens: usize,
}

#[derive(Serialize)]
struct TimingsReport {
    #[serde(rename = "load_seconds")]
    load: f64,
    #[serde(rename = "first_token_seconds")]
    first_token: f64,
    #[serde(rename = "total_seconds")]
    total: f64,
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
            schema_version: SCHEMA_VERSION,
            model,
            prompt,
            text: output.text(),
            texts: output.texts().collect(),
            token_ids: rows().map(|row| row.token_ids.iter().map(|token| token.0).collect()).collect(),
            finish_reasons: rows().map(|row| FinishReason::as_str(row.finish_reason)).collect(),
            logprobs: rows().map(|row| row.logprobs.as_slice()).collect(),
            seed: output.seeds.first().copied(),
            usage: UsageReport {
                prompt_tokens: output.usage.prompt_tokens,
                generated_tokens: output.usage.generated_tokens,
            },
            timings: TimingsReport {
                load: loading.as_secs_f64(),
                first_token: output.timings.first_token.as_secs_f64(),
                total: output.timings.total.as_secs_f64(),
            },
        }
    }
}
