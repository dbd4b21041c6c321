//! `rsgen convert`: writes a model with safetensors in place of `pytorch_model.bin` or GGUF files, or as a GGUF file.

use std::io::{Write, stdout};
use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::args::OutputArguments;
use super::failure::Failure;
use super::numbers::bytes;
use super::output::{SCHEMA_VERSION, write_json};
use crate::engine::Interrupt;
use crate::generator::convert_interruptible;
use rsgen_core::escape;

const EXAMPLES: &str = "\
Examples:
  rsgen convert path/to/opt opt-safetensors
  rsgen convert Qwen3-0.6B-Q8_0.gguf qwen3-safetensors
  rsgen convert path/to/qwen3 qwen3.gguf";

/// Write the weights of a model as safetensors, or a model as GGUF
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ConvertArguments {
    /// A folder, GGUF file or Hub cache id
    model: String,
    /// The folder to write, or the .gguf file; a new one
    out: PathBuf,
    #[command(flatten)]
    output: OutputArguments,
}

pub(super) fn run(arguments: &ConvertArguments, interrupted: &mut Interrupt<'_>) -> Result<(), Failure> {
    let report = convert_interruptible(&arguments.model, &arguments.out, interrupted)?;
    let out = arguments.out.to_string_lossy();
    let mut to = stdout().lock();
    if arguments.output.json {
        let report = json!({
            "schema_version": SCHEMA_VERSION, "out": out, "num_files": report.num_files, "bytes": report.bytes
        });
        write_json(&mut to, &report)?;
    } else {
        let (out, files) = (escape::message(&out), if report.num_files == 1 { "file" } else { "files" });
        writeln!(to, "{out}: {} {files}, {}", report.num_files, bytes(report.bytes))?;
        to.flush()?;
    }
    Ok(())
}
