//! `rsgen score`: how likely a text is, token by token and in all.

use std::io::{BufWriter, Write, stdout};
use std::path::Path;

use clap::Args;
use serde::Serialize;

use super::args::{ModelArguments, OUTPUT, OutputArguments};
use super::failure::Failure;
use super::output::{SCHEMA_VERSION, write_json};
use super::terminal::Terminal;
use super::{model, prompt, tokens};
use crate::engine::{Interrupt, TokenScore};
use crate::error::{Result, ResultExt as _};
use crate::generator::{Generator, Prompt};
use crate::text::Tokenizer;

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
    #[arg(long, env = "RSGEN_NO_SPECIAL_TOKENS")]
    no_special_tokens: bool,

    #[command(flatten)]
    model: ModelArguments,
    #[command(flatten)]
    output: OutputArguments,
    /// A line each: log-probability, perplexity, tokens, text
    #[arg(long, env = "RSGEN_TOTALS", help_heading = OUTPUT)]
    totals: bool,
}

pub(super) fn run(
    arguments: &ScoreArguments,
    bundled: Option<&Path>,
    terminal: &Terminal,
    interrupted: &mut Interrupt<'_>,
) -> Result<(), Failure> {
    let texts = prompt::read_texts(arguments.text.as_deref())?;
    let is_line = matches!(arguments.text.as_deref(), None | Some("-"));

    let generator = model::load(&arguments.model, bundled, terminal)?;
    let tokenizer = generator.tokenizer()?;
    let mut out = BufWriter::new(stdout().lock());
    for (index, text) in texts.iter().enumerate() {
        let scores = score(&generator, text, arguments.no_special_tokens, interrupted);
        let scores = if is_line { scores.context(|| format!("line {}", index + 1)) } else { scores }?;
        let totals = Totals::of(&scores);
        if arguments.output.json {
            let details = (!arguments.totals).then(|| Details::new(tokenizer, &scores));
            let model = generator.name();
            write_json(&mut out, &Report { schema_version: SCHEMA_VERSION, model, text, details, totals })?;
        } else if arguments.totals {
            let Totals { total_logprob, perplexity, scored_tokens } = totals;
            let perplexity = perplexity.map_or("-".to_owned(), |perplexity| format!("{perplexity:.4}"));
            writeln!(out, "{total_logprob:.4}\t{perplexity}\t{scored_tokens}\t{text}")?;
        } else {
            if index > 0 {
                writeln!(out)?;
            }
            write_table(&mut out, tokenizer, &scores, &totals, terminal)?;
        }
        // A result is out before the next one is computed.
        out.flush()?;
    }
    Ok(())
}

fn score(
    generator: &Generator,
    text: &str,
    no_special_tokens: bool,
    interrupted: &mut Interrupt<'_>,
) -> Result<Vec<TokenScore>> {
    let prompt = if no_special_tokens {
        Prompt::Ids(generator.tokenizer()?.encode(text, false)?)
    } else {
        Prompt::Text(text.to_owned())
    };
    generator.token_scores(prompt, interrupted)
}

fn write_table(
    out: &mut impl Write,
    tokenizer: &Tokenizer,
    scores: &[TokenScore],
    totals: &Totals,
    terminal: &Terminal,
) -> std::io::Result<()> {
    writeln!(out, "{}", terminal.dimmed("     id   logprob    rank  token"))?;
    for (index, score) in scores.iter().enumerate() {
        let (logprob, rank) = match index {
            0 => Default::default(),
            _ => (format!("{:.4}", score.logprob), score.rank.to_string()),
        };
        let token = tokens::shown(tokenizer, score.token_id);
        writeln!(out, "{:>7}  {logprob:>8}  {rank:>6}  {token}", score.token_id)?;
    }
    let Totals { total_logprob, perplexity, scored_tokens } = totals;
    let perplexity = perplexity.map(|perplexity| format!(", perplexity {perplexity:.4}")).unwrap_or_default();
    writeln!(out, "{scored_tokens} tokens scored: log-probability {total_logprob:.4}{perplexity}")
}

/// What `--json` writes for each text.
#[derive(Serialize)]
struct Report<'a> {
    schema_version: u32,
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
}

/// The text as a whole.
#[derive(Serialize)]
struct Totals {
    total_logprob: f64,
    /// `null` when no token is predicted.
    perplexity: Option<f64>,
    /// The tokens that are predicted: all but the first.
    scored_tokens: usize,
}

impl<'a> Details<'a> {
    fn new(tokenizer: &'a Tokenizer, scores: &[TokenScore]) -> Self {
        let ids = || scores.iter().map(|score| score.token_id);
        let predicted = || scores.iter().enumerate().map(|(index, score)| (index > 0).then_some(score));
        Self {
            token_ids: tokens::numbers(ids()),
            tokens: tokens::names(tokenizer, ids()),
            logprobs: predicted().map(|score| score.map(|score| score.logprob)).collect(),
            ranks: predicted().map(|score| score.map(|score| score.rank)).collect(),
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
