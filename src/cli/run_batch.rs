//! `rsgen run-batch`: the requests of a file, in OpenAI's batch format.

use std::path::PathBuf;

use clap::Args;

use super::args::{AssistantArguments, ModelArguments, OutputArguments, positive};

const EXAMPLES: &str = "\
Examples:
  rsgen run-batch requests.jsonl part0.jsonl --shard 0/4 --resume";

/// Answer the requests of a file, in OpenAI's batch format
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct RunBatchArguments {
    /// The requests, a JSON object on each line; - for standard input
    input: PathBuf,
    /// The file for the answers
    answers: PathBuf,
    /// Every N-th request, from the I-th on
    #[arg(long, value_name = "I/N", env = "RSGEN_SHARD")]
    shard: Option<String>,
    /// Go on with a file that has some of the answers
    #[arg(long, env = "RSGEN_RESUME")]
    resume: bool,
    /// How many requests run at a time
    #[arg(long, value_name = "N", env = "RSGEN_CONCURRENCY", value_parser = positive, default_value = "16", hide_short_help = true)]
    concurrency: usize,
    /// A catalogue for `allowed_sequences`; may repeat
    #[arg(
        long,
        value_name = "NAME=PATH",
        env = "RSGEN_CATALOGUE",
        value_delimiter = ',',
        hide_short_help = true
    )]
    catalogue: Vec<String>,
    #[command(flatten)]
    model: ModelArguments,
    #[command(flatten)]
    assistant: AssistantArguments,
    #[command(flatten)]
    output: OutputArguments,
}

#[cfg(feature = "serve")]
pub(super) use with_server::run;

#[cfg(feature = "serve")]
mod with_server {
    use std::collections::HashSet;
    use std::time::Instant;

    use serde::Serialize;
    use serde_json::Value;

    use super::super::Shell;
    use super::super::batch_files::{Requests, Shard, open_answers};
    use super::super::catalogue::open_named;
    use super::super::failure::Failure;
    use super::super::model;
    use super::super::progress::{bar, shows_bars};
    use super::{ModelArguments, RunBatchArguments};
    use crate::serve::{BatchOptions, run_batch};
    use rsgen_core::{Error, ErrorKind};

    /// What `--json` writes at the end.
    #[derive(Serialize)]
    struct Report {
        /// The requests of this part of the file.
        requests: usize,
        /// Those that an earlier run has answered.
        answered_before: usize,
        /// Those that this one has, of which `failed` with an error.
        answered: usize,
        failed: usize,
        seconds: f64,
    }

    pub(in super::super) fn run(arguments: &RunBatchArguments, shell: Shell<'_>) -> Result<(), Failure> {
        let Shell { bundled, terminal, interrupted, .. } = shell;
        let shard = arguments.shard.as_deref().map_or(Ok(Shard::WHOLE), |shard| {
            shard.parse().map_err(|why| Error::config(format!("is {shard:?}, but {why}")).about("shard"))
        })?;
        let requests = Requests::open(&arguments.input, shard)?;
        let mut answers = open_answers(&arguments.answers, arguments.resume, &requests)?;
        let (count, answered_before) = (requests.len(), answers.rows().len());
        let mut report = Report { requests: count, answered_before, answered: 0, failed: 0, seconds: 0.0 };
        if count > answered_before {
            let ModelArguments { named, loading } = &arguments.model;
            let catalogues = open_named(&arguments.catalogue, interrupted)?;
            let generator =
                model::load(named.model.as_deref(), loading, Some(&arguments.assistant), bundled, terminal)?;
            let shows = shows_bars(terminal);
            let progress =
                shows.then(|| bar(count as u64, "{wide_bar} {pos}/{len} requests, {per_sec}, {eta} left"));
            let progress = progress.map(|bar| bar.with_position(answered_before as u64));
            progress.iter().for_each(indicatif::ProgressBar::reset_eta);
            let start = Instant::now();
            let mut requests = requests.without(answers.rows().keys().cloned().collect());
            let mut ignored = HashSet::new();
            let result = run_batch(
                generator,
                BatchOptions { concurrency: arguments.concurrency, catalogues },
                &mut requests,
                &mut |answer| {
                    answers.write(answer.custom_id.clone(), &answer.to_json())?;
                    report.answered += 1;
                    let aside = |say: &dyn Fn()| progress.as_ref().map_or_else(say, |bar| bar.suspend(say));
                    for name in answer.ignored {
                        if !ignored.contains(&name) {
                            let id = rsgen_core::escape::name(&answer.custom_id);
                            let known =
                                "is no field of a request and has no effect; leave it out, or mend its name";
                            aside(&|| terminal.note(format_args!("{id}: `{name}` {known}")));
                            ignored.insert(name);
                        }
                    }
                    if answer.status_code != 200 {
                        report.failed += 1;
                        let body: Value = serde_json::from_str(&answer.body).unwrap_or_default();
                        let message = body["error"]["message"].as_str().unwrap_or("no answer");
                        let message = format!("{}: {message}", answer.custom_id);
                        aside(&|| terminal.error("input", rsgen_core::escape::message(&message)));
                    }
                    if let Some(bar) = &progress {
                        bar.inc(1);
                    }
                    Ok(())
                },
                interrupted,
            );
            report.seconds = start.elapsed().as_secs_f64();
            progress.iter().for_each(indicatif::ProgressBar::finish_and_clear);
            if let Err(error) = result {
                if error.kind() == ErrorKind::Cancelled {
                    let done = answered_before + report.answered;
                    terminal.note(format_args!("{done} of {count} are answered; --resume goes on"));
                }
                return Err(error.into());
            }
        }
        arguments.output.write(&report, || text(&report))?;
        match report.failed {
            0 => Ok(()),
            failed => Err(Failure::Lines { failed, total: report.answered }),
        }
    }

    fn text(report: &Report) -> String {
        let Report { answered, answered_before, seconds, .. } = report;
        let before = match answered_before {
            0 => String::new(),
            before => format!("{before} were answered before; "),
        };
        let rate = if *seconds > 0.0 { *answered as f64 / seconds } else { 0.0 };
        format!("{before}{answered} answered in {seconds:.1} s, {rate:.1} a second\n")
    }
}

#[cfg(not(feature = "serve"))]
pub(super) fn run(_: &RunBatchArguments, _: super::Shell<'_>) -> Result<(), super::failure::Failure> {
    Err(super::serve::without_server())
}
