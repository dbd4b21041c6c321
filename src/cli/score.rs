//! `rsgen score`: the log-probabilities of a text, by token and in total.

use std::io::{self, BufWriter, Write, stdout};

use clap::Args;
use serde::Serialize;

use super::Shell;
use super::args::{ModelArguments, OUTPUT, OutputArguments};
use super::decoding::help;
use super::failure::Failure;
use super::output::{or_stop, write_report};
use super::terminal::Terminal;
use super::wording;
use super::{model, progress, prompt, tokens};
use crate::engine::TokenScore;
use crate::generator::Prompt;
use rsgen_core::{Result, TokenId};
use rsgen_text::Tokenizer;

const EXAMPLES: &str = "\
Examples:
  rsgen score \"Once upon a time\"
  rsgen score --totals - < sentences.txt | sort -g";

/// Show how likely a text is, token by token
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ScoreArguments {
    /// The text; `-` or nothing: each line of standard input is one
    text: Option<String>,

    /// Leave special tokens out
    #[arg(long, env = "RSGEN_NO_SPECIAL_TOKENS", hide_short_help = true)]
    no_special_tokens: bool,
    #[arg(long, value_name = "N", env = "RSGEN_TOP_LOGPROBS", help = help("top_logprobs"), default_value = "0", hide_default_value = true)]
    top_logprobs: usize,

    #[command(flatten)]
    model: ModelArguments,
    #[command(flatten)]
    output: OutputArguments,
    /// A line each: log-probability, perplexity, tokens, text
    #[arg(long, env = "RSGEN_TOTALS", help_heading = OUTPUT)]
    totals: bool,
}

pub(super) fn run(arguments: &ScoreArguments, shell: Shell<'_>) -> Result<(), Failure> {
    let Shell { bundled, terminal, interrupted, .. } = shell;
    let lines = prompt::read_texts(arguments.text.as_deref())?;
    let texts = &lines.texts;
    let are_lines = matches!(arguments.text.as_deref(), None | Some("-"));

    let ModelArguments { named, loading } = &arguments.model;
    let generator = model::load(named.model.as_deref(), loading, None, bundled, terminal)?;
    let tokenizer = generator.tokenizer()?;
    let prompts = texts.iter().enumerate().map(|(index, text)| {
        if let Some(error) = lines.error(index) {
            Err(error)
        } else if arguments.no_special_tokens {
            tokenizer.encode(text, false).map(Prompt::Ids)
        } else {
            Ok(Prompt::Text(text.clone()))
        }
    });
    let out = BufWriter::new(stdout().lock());
    let mut printer = Printer { out, arguments, model: generator.name(), tokenizer, terminal };
    let (bar, mut failed_lines, mut failed) = (progress::of_texts(terminal, texts.len()), 0, None);
    let mut done = |index: usize, scores: Result<Vec<TokenScore>>| {
        bar.inc(1);
        match scores {
            Ok(scores) => or_stop(bar.suspend(|| printer.write(index, &texts[index], &scores)), &mut failed),
            // The other lines go on.
            Err(error) if are_lines => {
                failed_lines += 1;
                let message = format!("line {}: {}", index + 1, wording::told(&error));
                bar.suspend(|| terminal.error(error.kind().as_str(), message));
                Ok(())
            }
            Err(error) => Err(error),
        }
    };
    let result = generator.score_texts(prompts, arguments.top_logprobs, interrupted, &mut done);
    bar.finish_and_clear();
    match failed {
        Some(error) => return Err(error.into()),
        None => result?,
    }
    match failed_lines {
        0 => Ok(()),
        failed => Err(Failure::Lines { failed, total: texts.len() }),
    }
}

/// Writes the scores.
struct Printer<'a, W: Write> {
    out: W,
    arguments: &'a ScoreArguments,
    model: &'a str,
    tokenizer: &'a Tokenizer,
    terminal: &'a Terminal,
}

impl<W: Write> Printer<'_, W> {
    /// Writes the scores of a text, before the next one is computed.
    fn write(&mut self, index: usize, text: &str, scores: &[TokenScore]) -> io::Result<()> {
        let Self { out, arguments, model, tokenizer, terminal } = self;
        let totals = Totals::of(scores);
        if arguments.output.json {
            let has_top_logprobs = arguments.top_logprobs > 0;
            let details = (!arguments.totals).then(|| Details::new(tokenizer, scores, has_top_logprobs));
            return write_report(out, &Report { model, text, details, totals });
        }
        if arguments.totals {
            let Totals { total_logprob, perplexity, scored_tokens } = totals;
            let perplexity = perplexity.map_or("-".to_owned(), |perplexity| format!("{perplexity:.4}"));
            writeln!(out, "{total_logprob:.4}\t{perplexity}\t{scored_tokens}\t{text}")?;
        } else {
            if index > 0 {
                writeln!(out)?;
            }
            write_table(out, tokenizer, scores, &totals, terminal)?;
        }
        out.flush()
    }
}

fn write_table(
    out: &mut impl Write,
    tokenizer: &Tokenizer,
    scores: &[TokenScore],
    totals: &Totals,
    terminal: &Terminal,
) -> io::Result<()> {
    writeln!(out, "{}", terminal.dimmed("     id   logprob    rank  token"))?;
    for (index, score) in scores.iter().enumerate() {
        let (logprob, rank) = match index {
            0 => Default::default(),
            _ => (format!("{:.4}", score.logprob), score.rank.to_string()),
        };
        let token = tokens::shown(tokenizer, score.token_id);
        write!(out, "{:>7}  {logprob:>8}  {rank:>6}  {token}", score.token_id)?;
        for (index, (token, logprob)) in score.top_logprobs.iter().enumerate() {
            let sign = if index == 0 { "  likeliest: " } else { ", " };
            write!(out, "{sign}{} {logprob:.4}", tokens::shown(tokenizer, *token))?;
        }
        writeln!(out)?;
    }
    let Totals { total_logprob, perplexity, scored_tokens } = totals;
    let perplexity = perplexity.map(|perplexity| format!(", perplexity {perplexity:.4}")).unwrap_or_default();
    writeln!(out, "{scored_tokens} tokens scored: log-probability {total_logprob:.4}{perplexity}")
}

/// What `--json` writes for each text.
#[derive(Serialize)]
struct Report<'a> {
    model: &'a str,
    text: &'a str,
    #[serde(flatten)]
    details: Option<Details<'a>>,
    #[serde(flatten)]
    totals: Totals,
}

/// Lists with an entry for each token.
#[derive(Serialize)]
struct Details<'a> {
    token_ids: Vec<u32>,
    /// As the vocabulary writes them.
    tokens: Vec<Option<&'a str>>,
    /// In nats; `null` for the first token, which nothing predicts.
    logprobs: Vec<Option<f32>>,
    /// 1 for the most likely token; `null` for the first one.
    ranks: Vec<Option<usize>>,
    /// With `--top-logprobs`: pairs of an id and its log-probability; none for the first token.
    #[serde(skip_serializing_if = "Option::is_none")]
    top_logprobs: Option<Vec<&'a [(TokenId, f32)]>>,
}

/// The text as a whole.
#[derive(Serialize)]
struct Totals {
    total_logprob: f64,
    /// `null` when no token is predicted.
    perplexity: Option<f64>,
    /// The number of predicted tokens: all but the first.
    scored_tokens: usize,
}

impl<'a> Details<'a> {
    fn new(tokenizer: &'a Tokenizer, scores: &'a [TokenScore], has_top_logprobs: bool) -> Self {
        let ids = || scores.iter().map(|score| score.token_id);
        let predicted = || scores.iter().enumerate().map(|(index, score)| (index > 0).then_some(score));
        Self {
            token_ids: tokens::numbers(ids()),
            tokens: tokens::names(tokenizer, ids()),
            logprobs: predicted().map(|score| score.map(|score| score.logprob)).collect(),
            ranks: predicted().map(|score| score.map(|score| score.rank)).collect(),
            top_logprobs: has_top_logprobs
                .then(|| scores.iter().map(|score| &score.top_logprobs[..]).collect()),
        }
    }
}

impl Totals {
    fn of(scores: &[TokenScore]) -> Self {
        let total_logprob: f64 = scores.iter().map(|score| f64::from(score.logprob)).sum();
        let scored_tokens = scores.len().saturating_sub(1);
        let perplexity = (scored_tokens > 0).then(|| (-total_logprob / scored_tokens as f64).exp());
        Self { total_logprob, perplexity, scored_tokens }
    }
}
