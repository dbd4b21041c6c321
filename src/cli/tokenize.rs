//! `rsgen tokenize`: the tokens of a text with their offsets, or the text of token ids, without loading
//! weights.

use std::io::{BufWriter, Write, stdout};
use std::ops::Range;

use clap::Args;
use serde::Serialize;

use super::Shell;
use super::args::{NamedModelArguments, OUTPUT, OutputArguments};
use super::failure::Failure;
use super::model::ModelSource;
use super::output::write_report;
use super::terminal::Terminal;
use super::{prompt, tokens};
use crate::generator::open_tokenizer;
use rsgen_core::{Error, Result, TokenId};
use rsgen_text::Tokenizer;

const EXAMPLES: &str = "\
Examples:
  rsgen tokenize \"Once upon a time\"
  rsgen tokenize --ids \"Once upon a time\" | rsgen tokenize --decode -";

/// Show the tokens of a text, or the text of tokens
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct TokenizeArguments {
    /// The text, or with --decode ids; `-` or nothing: read standard input
    text: Option<String>,

    /// The other way round: ids to text
    #[arg(long, env = "RSGEN_DECODE")]
    decode: bool,
    /// Leave special tokens out
    #[arg(long, env = "RSGEN_NO_SPECIAL_TOKENS")]
    no_special_tokens: bool,

    #[command(flatten)]
    model: NamedModelArguments,
    #[command(flatten)]
    output: OutputArguments,
    /// Only the ids, on one line
    #[arg(long, env = "RSGEN_IDS", help_heading = OUTPUT)]
    ids: bool,
}

pub(super) fn run(arguments: &TokenizeArguments, shell: &Shell<'_>) -> Result<(), Failure> {
    let &Shell { bundled, terminal, .. } = shell;
    let given = prompt::read_text(arguments.text.as_deref())?;
    let files = ModelSource::choose(arguments.model.model.as_deref(), bundled)?.files()?;
    let tokenizer = open_tokenizer(&files)?.ok_or_else(|| {
        Error::load(format!(
            "{} has no tokenizer; choose a model folder with a tokenizer.json or a tokenizer.model",
            files.name()
        ))
    })?;
    let mut out = BufWriter::new(stdout().lock());
    let model = files.name();
    if arguments.decode {
        let ids = parse_ids(&given)?;
        check_ids(&tokenizer, &ids)?;
        let text = tokenizer.decode(&ids, arguments.no_special_tokens)?;
        if arguments.output.json {
            let token_ids = tokens::numbers(ids);
            write_report(&mut out, &Decoded { model, token_ids, text })?;
        } else {
            writeln!(out, "{text}")?;
        }
    } else {
        let tokens_with_offsets = tokenizer.encode_with_offsets(&given, !arguments.no_special_tokens)?;
        if arguments.output.json {
            write_report(&mut out, &Encoded::new(model, &given, &tokenizer, &tokens_with_offsets))?;
        } else if arguments.ids {
            let ids: Vec<String> = tokens_with_offsets.iter().map(|(id, _)| id.to_string()).collect();
            writeln!(out, "{}", ids.join(" "))?;
        } else {
            write_table(&mut out, &tokenizer, &tokens_with_offsets, terminal)?;
        }
    }
    out.flush()?;
    Ok(())
}

/// Ids between spaces, commas or brackets, as this subcommand and JSON write them.
pub(super) fn parse_ids(text: &str) -> Result<Vec<TokenId>> {
    let is_between = |letter: char| letter.is_whitespace() || [',', '[', ']'].contains(&letter);
    let words = text.split(is_between).filter(|word| !word.is_empty());
    let ids = words.map(|word| {
        word.parse().map(TokenId).map_err(|_| {
            Error::input(format!(
                "token ids must be numbers from 0 to {}, got {word:?}; see --decode",
                u32::MAX
            ))
        })
    });
    ids.collect()
}

/// Rejects ids that are not tokens: skipping them, as `decode` does, would hide a mistake.
pub(super) fn check_ids(tokenizer: &Tokenizer, ids: &[TokenId]) -> Result<()> {
    match ids.iter().find(|id| tokenizer.token(**id).is_none()) {
        None => Ok(()),
        Some(id) => Err(Error::input(format!(
            "token ids must be in the model's vocabulary, 0 to {}, got {id}; was the text encoded by another tokenizer?",
            tokenizer.len().saturating_sub(1)
        ))),
    }
}

fn write_table(
    out: &mut impl Write,
    tokenizer: &Tokenizer,
    tokens_with_offsets: &[(TokenId, Option<Range<usize>>)],
    terminal: &Terminal,
) -> std::io::Result<()> {
    writeln!(out, "{}", terminal.dimmed("     id  characters  token"))?;
    for (id, offsets) in tokens_with_offsets {
        let offsets =
            offsets.as_ref().map(|offsets| format!("{}..{}", offsets.start, offsets.end)).unwrap_or_default();
        writeln!(out, "{id:>7}  {offsets:>10}  {}", tokens::shown(tokenizer, *id))?;
    }
    Ok(())
}

/// What `--json` writes; the lists have an entry for each token.
#[derive(Serialize)]
struct Encoded<'a> {
    model: &'a str,
    text: &'a str,
    token_ids: Vec<u32>,
    /// As the vocabulary writes them.
    tokens: Vec<Option<&'a str>>,
    /// The text that each adds in the middle of a text.
    bytes: Vec<&'a [u8]>,
    /// The first character and the one after the last; `null` for tokens that were added around the text.
    offsets: Vec<Option<[usize; 2]>>,
}

/// What `--decode --json` writes.
#[derive(Serialize)]
struct Decoded<'a> {
    model: &'a str,
    token_ids: Vec<u32>,
    text: String,
}

impl<'a> Encoded<'a> {
    fn new(
        model: &'a str,
        text: &'a str,
        tokenizer: &'a Tokenizer,
        tokens_with_offsets: &[(TokenId, Option<Range<usize>>)],
    ) -> Self {
        let ids = || tokens_with_offsets.iter().map(|(id, _)| *id);
        let offsets = tokens_with_offsets.iter().map(|(_, offsets)| offsets.as_ref());
        Self {
            model,
            text,
            token_ids: tokens::numbers(ids()),
            tokens: tokens::names(tokenizer, ids()),
            bytes: ids().map(|id| tokenizer.token_bytes(id).unwrap_or_default()).collect(),
            offsets: offsets.map(|offsets| offsets.map(|offsets| [offsets.start, offsets.end])).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_they_are_written() {
        let expected = [0, 17, u32::MAX].map(TokenId);
        for text in ["0 17 4294967295", "[0, 17, 4294967295]", "\n0,17\t4294967295 "] {
            assert_eq!(parse_ids(text).unwrap(), expected);
        }
        assert_eq!(parse_ids("[]").unwrap(), []);
        for wrong in ["a", "-1", "4294967296", "1.0", "1;2"] {
            assert!(parse_ids(wrong).unwrap_err().to_string().contains(&format!("got {wrong:?}")));
        }
    }
}
