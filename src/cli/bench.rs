//! `rsgen bench`: measures the peak rates of this machine, and the speed of a model on it.
//!
//! Prompts are made up, and end-of-sequence tokens are disabled: speed does not depend on the text.

use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;

use super::Shell;
use super::args::{LoadingArguments, OutputArguments, positive};
use super::decoding::help;
use super::failure::Failure;
use super::model;
use super::numbers::bytes;
use super::terminal::Terminal;
use crate::engine::Interrupt;
use crate::generator::{Generator, Isa, Limits, Machine};
use rsgen_core::{FinishReason, Result, TokenId};
use rsgen_generation::stopping::{StopContext, StoppingCriterion};
use rsgen_generation::{GenerationConfig, OneOrMany};

const EXAMPLES: &str = "\
Examples:
  rsgen bench path/to/llama --compute-dtype bfloat16
  rsgen bench --limits";

/// The tokens of a prompt, limited by the context.
const PROMPT_TOKENS: usize = 128;
/// The tasks of a prompt: in models with an encoder a pass of it, in others up to the first new token.
const ENCODER: &str = "encoder";
const PREFILL: &str = "prefill";

/// Measure how fast this machine is, and a model on it
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct BenchArguments {
    /// A folder, GGUF file or Hub id [default: bundled]
    #[arg(env = "RSGEN_MODEL")]
    model: Option<String>,

    /// Measure the machine alone
    #[arg(long, env = "RSGEN_LIMITS")]
    limits: bool,
    /// Tokens of each prompt [default: 128]
    #[arg(long, value_name = "N", env = "RSGEN_PROMPT_TOKENS", value_parser = positive)]
    prompt_tokens: Option<usize>,
    /// New tokens after the first
    #[arg(long, value_name = "N", env = "RSGEN_NEW_TOKENS", value_parser = positive, default_value = "32")]
    new_tokens: usize,
    /// How many texts side by side
    #[arg(long, value_name = "N", env = "RSGEN_BATCH_SIZE", value_parser = positive, default_value = "8")]
    #[arg(hide_short_help = true)]
    batch_size: usize,
    #[arg(long, value_name = "N", env = "RSGEN_NUM_BEAMS", value_parser = positive, default_value = "4")]
    #[arg(hide_short_help = true, help = help("num_beams"))]
    num_beams: usize,
    /// How often; the best counts
    #[arg(long, value_name = "N", env = "RSGEN_REPEATS", value_parser = positive, default_value = "3")]
    #[arg(hide_short_help = true)]
    repeats: usize,

    #[command(flatten)]
    loading: LoadingArguments,
    #[command(flatten)]
    output: OutputArguments,
}

/// All fields, in the order of the output, as `--json` writes it.
#[derive(Serialize)]
struct Report {
    isa: &'static str,
    num_threads: usize,
    limits: Limits,
    /// `null` with `--limits`.
    model: Option<ModelReport>,
}

#[derive(Serialize)]
struct ModelReport {
    name: String,
    load_seconds: f64,
    /// The bytes of weights that each pass reads.
    matrix_bytes: usize,
    tasks: Vec<Measured>,
}

/// A task to measure.
#[derive(Clone, Copy, Serialize)]
struct Task {
    #[serde(rename = "task")]
    name: &'static str,
    prompt_tokens: usize,
    batch_size: usize,
    num_beams: usize,
}

/// The time of a task.
#[derive(Serialize)]
struct Measured {
    #[serde(flatten)]
    task: Task,
    /// The tokens of the prompt in `encoder` and `prefill`; else the new ones of all texts.
    tokens: usize,
    seconds: f64,
    tokens_per_second: f64,
}

pub(super) fn run(arguments: &BenchArguments, shell: Shell<'_>) -> Result<(), Failure> {
    let Shell { bundled, terminal, interrupted, .. } = shell;
    let machine = Machine::choose(&arguments.loading.options())?;
    let mut report = Report {
        isa: machine.isa.map(Isa::name).value,
        num_threads: machine.num_threads.value,
        limits: machine.limits()?,
        model: None,
    };
    if !arguments.limits {
        let begin = Instant::now();
        let loading = LoadingArguments { no_prefix_caching: true, ..arguments.loading.clone() };
        let generator = model::load(arguments.model.as_deref(), &loading, None, bundled, terminal)?;
        report.model = Some(ModelReport {
            name: generator.name().to_owned(),
            load_seconds: begin.elapsed().as_secs_f64(),
            matrix_bytes: generator.engine().model().matrix_bytes(),
            tasks: arguments
                .tasks(&generator)
                .into_iter()
                .map(|task| arguments.measure(&generator, task, interrupted))
                .collect::<Result<_>>()?,
        });
    }
    Ok(arguments.output.write(&report, || page(&report, terminal))?)
}

impl BenchArguments {
    fn tasks(&self, generator: &Generator) -> [Task; 4] {
        let room = match generator.engine().model().encoder() {
            Some(encoder) => encoder.max_source_len().unwrap_or(usize::MAX),
            None => generator.config().context_len().saturating_sub(1 + self.new_tokens).max(1),
        };
        let prompt_tokens = self.prompt_tokens.unwrap_or(PROMPT_TOKENS.min(room));
        // With an encoder the prompt is the source, and the decoder's own prompt is a token.
        let name = if generator.has_encoder() { ENCODER } else { PREFILL };
        let one = Task { name, prompt_tokens, batch_size: 1, num_beams: 1 };
        [
            one,
            Task { name: "decode", ..one },
            Task { name: "decode", batch_size: self.batch_size, ..one },
            Task { name: "beams", num_beams: self.num_beams, ..one },
        ]
    }

    /// The best of several runs. The first step belongs to the prompt, and so to `prefill`; with an encoder
    /// to no task.
    fn measure(
        &self,
        generator: &Generator,
        task: Task,
        interrupted: &mut Interrupt<'_>,
    ) -> Result<Measured> {
        let is_prompt = task.name == ENCODER || task.name == PREFILL;
        let new_tokens = if is_prompt { 0 } else { self.new_tokens };
        let mut config = GenerationConfig::new().max_new_tokens(1 + new_tokens).do_sample(false);
        config = config.num_beams(task.num_beams);
        config.num_return_sequences = Some(1);
        config.eos_token_id = Some(OneOrMany::Many(Vec::new()));
        let mut best = Duration::MAX;
        for _ in 0..self.repeats {
            let model = generator.engine().model();
            let vocab_size =
                model.encoder().map_or(model.vocab_size(), rsgen_model::Encoder::source_vocab_size);
            let prompts = prompts(task, vocab_size);
            let first_step = Arc::new(FirstStep::default());
            let call = generator.call(prompts).config(&config).criterion(Arc::clone(&first_step) as _);
            let output = call.prepare(false, interrupted)?.run(interrupted)?;
            let since_first_step = first_step.0.get().map_or(Duration::ZERO, Instant::elapsed);
            best = best.min(match task.name {
                ENCODER => output.timings.encoder,
                PREFILL => output.timings.total,
                _ => since_first_step,
            });
        }
        let tokens = if is_prompt { task.prompt_tokens } else { task.batch_size * new_tokens };
        let seconds = best.as_secs_f64();
        Ok(Measured { task, tokens, seconds, tokens_per_second: tokens as f64 / seconds.max(1e-9) })
    }
}

/// Records the time of the first step of a search. Beams have their first token later: when all of them agree
/// on it.
#[derive(Default)]
struct FirstStep(OnceLock<Instant>);

impl StoppingCriterion for FirstStep {
    fn name(&self) -> &'static str {
        "first_step"
    }

    fn should_stop(&self, _row: &StopContext<'_>) -> Result<Option<FinishReason>> {
        self.0.get_or_init(Instant::now);
        Ok(None)
    }
}

/// Different tokens for each text.
fn prompts(task: Task, vocab_size: usize) -> Vec<Vec<TokenId>> {
    let token = |text: usize, index: usize| TokenId(((text * 7919 + index * 104_729) % vocab_size) as u32);
    (0..task.batch_size)
        .map(|text| (0..task.prompt_tokens).map(|index| token(text + 1, index)).collect())
        .collect()
}

/// The report for people.
fn page(report: &Report, terminal: &Terminal) -> String {
    let mut page = String::new();
    let mut line = |name: &str, value: &str| terminal.add_line(&mut page, name, value);
    line("instructions", report.isa);
    line("threads", &report.num_threads.to_string());
    line("limits", &report.limits.to_string());
    let Some(model) = &report.model else { return page };
    let read = bytes(model.matrix_bytes as u64);
    line("model", &format!("{}, loaded in {:.2} s, {read} read in a pass", model.name, model.load_seconds));
    let header = "\ntask     prompt  texts  beams   tokens/s       ms";
    let _ = writeln!(page, "{}", terminal.dimmed(header));
    for Measured { task, seconds, tokens_per_second, .. } in &model.tasks {
        let Task { name, prompt_tokens, batch_size, num_beams } = task;
        let _ = writeln!(
            page,
            "{name:<8} {prompt_tokens:>6} {batch_size:>6} {num_beams:>6} {tokens_per_second:>10.1} {:>8.2}",
            1e3 * seconds
        );
    }
    page
}
