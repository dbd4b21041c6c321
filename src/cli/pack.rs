//! `rsgen pack`: writes a model with quantized weights, which opens at once.

use std::path::PathBuf;
use std::sync::OnceLock;

use clap::Args;
use serde::Serialize;

use super::Shell;
use super::args::{OutputArguments, Weights, one_of, positive};
use super::failure::Failure;
use super::model::show;
use super::numbers;
use super::progress::shows_bars;
use crate::generator::{GeneratorOptions, PackReport, choices, pack_interruptible};
use rsgen_core::escape;

const EXAMPLES: &str = "\
Examples:
  rsgen pack path/to/llama llama-int4 --dtype int4
  rsgen generate --model llama-int4 \"Once upon a time\"";

/// Write a model with quantized weights, which opens quickly
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct PackArguments {
    /// A folder, GGUF file or Hub id
    model: String,
    /// The folder to write, a new one
    out: PathBuf,
    /// float32, bfloat16, float16, int8 or int4 weights
    #[arg(long, value_name = "TYPE", env = "RSGEN_DTYPE", hide_default_value = true)]
    #[arg(value_parser = one_of(choices::DTYPE), default_value = "auto", hide_possible_values = true)]
    dtype: Weights,
    /// A LoRA adapter of PEFT, merged while loading
    #[arg(long, value_name = "FOLDER", env = "RSGEN_ADAPTER")]
    adapter: Option<String>,
    /// How many threads [default: all cores]
    #[arg(long, alias = "threads", value_name = "N", env = "RSGEN_NUM_THREADS", value_parser = positive)]
    num_threads: Option<usize>,
    #[command(flatten)]
    output: OutputArguments,
}

/// What was written, as `--json` tells it.
#[derive(Serialize)]
struct Report<'a> {
    out: &'a str,
    dtype: &'static str,
    bytes_before: u64,
    bytes: u64,
}

pub(super) fn run(arguments: &PackArguments, shell: Shell<'_>) -> Result<(), Failure> {
    let Shell { terminal, interrupted, .. } = shell;
    let mut options = GeneratorOptions {
        dtype: arguments.dtype,
        num_threads: arguments.num_threads,
        adapter: arguments.adapter.clone(),
        ..GeneratorOptions::default()
    };
    if shows_bars(terminal) {
        let bar = OnceLock::new();
        options.progress = Some(Box::new(move |progress| show(&bar, progress)));
    }
    let packed = pack_interruptible(&arguments.model, &arguments.out, &options, interrupted)?;
    let PackReport { dtype, bytes_before, bytes, .. } = packed;
    let out = arguments.out.to_string_lossy();
    let report = Report { out: &out, dtype: dtype.name(), bytes_before, bytes };
    let text = || {
        let (before, after) = (numbers::bytes(bytes_before), numbers::bytes(bytes));
        format!("{}: {dtype}, {after}, from {before}\n", escape::message(&out))
    };
    Ok(arguments.output.write(&report, text)?)
}
