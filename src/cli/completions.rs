//! `rsgen completions`: the script that lets a shell complete subcommands and options.

use clap::Args;
use clap_complete::Shell;
use serde::Serialize;

use super::args::OutputArguments;
use super::environment;
use super::failure::Failure;

const EXAMPLES: &str = "\
Examples:
  source <(rsgen completions bash)
  rsgen completions zsh > ~/.zfunc/_rsgen
  rsgen completions fish > ~/.config/fish/completions/rsgen.fish";

/// Print the script that completes this command in a shell
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct CompletionsArguments {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
    #[command(flatten)]
    output: OutputArguments,
}

/// What `--json` writes.
#[derive(Serialize)]
struct Report {
    shell: String,
    script: String,
}

pub(super) fn run(arguments: &CompletionsArguments) -> Result<(), Failure> {
    // In memory first: the generator panics when it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut environment::command(), "rsgen", &mut script);
    let (shell, script) = (arguments.shell.to_string(), String::from_utf8_lossy(&script).into_owned());
    let report = Report { shell, script };
    Ok(arguments.output.write(&report, || report.script.clone())?)
}
