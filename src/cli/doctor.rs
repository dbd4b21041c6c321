//! `rsgen doctor`: the resources of this machine that rsgen uses, and whether a model fits, each with the
//! reason.
//!
//! The functions that open a model make these choices; here they are only reported.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::Shell;
use super::args::{LoadingArguments, OutputArguments};
use super::environment::{self, Origins};
use super::failure::Failure;
use super::model::ModelSource;
use super::numbers::{bytes, count};
use super::terminal::Terminal;
use crate::engine::{CacheReason, ThreadsReason};
use crate::generator::{Isa, IsaReason, Machine, MemoryPlan};
use rsgen_core::Choice;
use rsgen_model::weights::{HubCache, HubCacheReason, MemoryLimit};

const EXAMPLES: &str = "\
Examples:
  rsgen doctor
  rsgen doctor path/to/llama --dtype bfloat16 && echo it fits";

/// Show what is used of this machine, and whether a model fits
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct DoctorArguments {
    /// A folder, GGUF file or Hub id [default: bundled]
    #[arg(env = "RSGEN_MODEL")]
    model: Option<String>,
    #[command(flatten)]
    loading: LoadingArguments,
    #[command(flatten)]
    output: OutputArguments,
}

/// All fields, in the order of the output, as `--json` writes it.
#[derive(Serialize)]
struct Report {
    version: &'static str,
    features: Vec<&'static str>,
    architecture: &'static str,
    system: &'static str,
    isa: IsaReport,
    num_threads: Choice<usize, ThreadsReason>,
    /// `null` where the system does not report it.
    memory: Option<Choice<u64, MemoryLimit>>,
    /// The default limit of the KV cache of a very small model.
    kv_cache_bytes: Choice<usize, CacheReason>,
    hub_cache: HubCacheReport,
    environment: EnvironmentReport,
    model: ModelReport,
}

#[derive(Serialize)]
struct IsaReport {
    #[serde(flatten)]
    chosen: Choice<&'static str, IsaReason>,
    /// The fastest first.
    available: Vec<&'static str>,
}

#[derive(Serialize)]
struct HubCacheReport {
    #[serde(flatten)]
    folder: Choice<PathBuf, HubCacheReason>,
    exists: bool,
    models: Vec<String>,
}

/// Only names: a value may be a secret.
#[derive(Serialize)]
struct EnvironmentReport {
    variables: Vec<String>,
    /// Unknown variables, such as misspelt ones.
    unknown_variables: Vec<String>,
}

#[derive(Serialize)]
struct ModelReport {
    /// The folder or id, or the name of the bundled model.
    name: String,
    #[serde(flatten)]
    chosen_by: ModelReason,
    fits: bool,
    /// The reason why it does not fit or cannot be loaded.
    obstacle: Option<String>,
    weight_bytes: Option<u64>,
    kv_cache_bytes: Option<Choice<usize, CacheReason>>,
    kv_cache_tokens: Option<usize>,
}

#[derive(Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
enum ModelReason {
    Argument,
    Environment { variable: String },
    Bundled,
}

/// Writes the report. A model that does not fit or cannot be loaded is the error that opening it would be.
pub(super) fn run(arguments: &DoctorArguments, shell: &Shell<'_>) -> Result<(), Failure> {
    let &Shell { origins, bundled, terminal, .. } = shell;
    let machine = Machine::choose(&arguments.loading.options())?;
    if let Some(warning) = machine.warning() {
        log::warn!("{warning}");
    }
    let plan =
        ModelSource::choose(arguments.model.as_deref(), bundled).and_then(ModelSource::files).and_then(
            |files| Ok((files.name().to_owned(), MemoryPlan::of(&files, &arguments.loading.options())?)),
        );
    let report = Report::new(&machine, bundled.is_some(), ModelReport::new(arguments, origins, &plan));
    arguments.output.write(&report, || page(&report, terminal))?;
    plan.map(|_| ())
}

impl Report {
    /// `is_package` is whether this is the command of the Python package, which has the bundled models as
    /// files.
    fn new(machine: &Machine, is_package: bool, model: ModelReport) -> Self {
        let features = [
            ("bundled", cfg!(feature = "bundled")),
            ("cli", true),
            ("python", is_package),
            ("serve", cfg!(feature = "serve")),
        ];
        let hub_cache = HubCache::choose();
        Self {
            version: env!("CARGO_PKG_VERSION"),
            features: features.into_iter().filter(|(_, is_on)| *is_on).map(|(name, _)| name).collect(),
            architecture: std::env::consts::ARCH,
            system: std::env::consts::OS,
            isa: IsaReport {
                chosen: machine.isa.map(Isa::name),
                available: Isa::available().into_iter().map(Isa::name).collect(),
            },
            num_threads: machine.num_threads,
            memory: machine.memory.clone(),
            kv_cache_bytes: machine.default_kv_cache_bytes(),
            hub_cache: HubCacheReport {
                exists: hub_cache.value.folder().is_dir(),
                models: hub_cache.value.models(),
                folder: hub_cache.map(|cache| cache.folder().to_owned()),
            },
            environment: EnvironmentReport {
                variables: environment::given_variables(),
                unknown_variables: environment::unknown_variables(),
            },
            model,
        }
    }
}

impl ModelReport {
    fn new(
        arguments: &DoctorArguments,
        origins: &Origins,
        plan: &Result<(String, MemoryPlan), Failure>,
    ) -> Self {
        let found = plan.as_ref().ok();
        let named = arguments.model.clone();
        let chosen_by = match (&named, origins.variable("model")) {
            (_, Some(variable)) => ModelReason::Environment { variable: variable.to_owned() },
            (Some(_), None) => ModelReason::Argument,
            (None, None) => ModelReason::Bundled,
        };
        Self {
            name: found.map(|(name, _)| name.clone()).or(named).unwrap_or_default(),
            chosen_by,
            fits: found.is_some(),
            obstacle: plan.as_ref().err().map(ToString::to_string),
            weight_bytes: found.map(|(_, plan)| plan.weight_bytes),
            kv_cache_bytes: found.map(|(_, plan)| plan.kv_cache_bytes),
            kv_cache_tokens: found.map(|(_, plan)| plan.kv_cache_tokens),
        }
    }
}

/// The report for people: a line for each entry, its name dimmed.
fn page(report: &Report, terminal: &Terminal) -> String {
    let mut page = String::new();
    let mut line = |name: &str, value: &str| terminal.add_line(&mut page, name, value);
    let Report { version, architecture, system, .. } = report;
    line("rsgen", &format!("{version} for {architecture} {system}, with {}", report.features.join(", ")));
    let IsaReport { chosen, available } = &report.isa;
    line("instructions", &format!("{}: {}; there are {}", chosen.value, chosen.reason, available.join(", ")));
    let Choice { value, reason } = &report.num_threads;
    line(
        "threads",
        &match reason {
            ThreadsReason::Argument => format!("{value}: given by --num-threads"),
            _ => format!("{value}: {reason}"),
        },
    );
    line(
        "memory",
        &match &report.memory {
            Some(memory) => format!("{} available: {}", bytes(memory.value), memory.reason),
            None => "unknown: the system does not say".to_owned(),
        },
    );
    let cache = &report.kv_cache_bytes;
    line("KV cache", &format!("up to {}: {}", bytes(cache.value as u64), cache.reason));
    let HubCacheReport { folder, exists, models } = &report.hub_cache;
    let held = if *exists { format!("{} models", models.len()) } else { "not there".to_owned() };
    line("Hub cache", &format!("{}: {}; {held}", folder.value.display(), folder.reason));
    let EnvironmentReport { variables, unknown_variables } = &report.environment;
    line(
        "environment",
        &if variables.is_empty() { "no RSGEN_ variable".to_owned() } else { variables.join(", ") },
    );
    for name in unknown_variables {
        line("", &format!("{name}: unknown variable; is it misspelt?"));
    }
    let model = &report.model;
    line(
        "model",
        &match &model.chosen_by {
            ModelReason::Argument => model.name.clone(),
            ModelReason::Environment { variable } => format!("{}: named by {variable}", model.name),
            ModelReason::Bundled if model.name.is_empty() => "none is named".to_owned(),
            ModelReason::Bundled => format!("{}: the bundled one, since none is named", model.name),
        },
    );
    match (model.weight_bytes, &model.kv_cache_bytes, model.kv_cache_tokens) {
        (Some(weights), Some(cache), Some(tokens)) => {
            let (weights, cache, tokens) = (bytes(weights), bytes(cache.value as u64), count(tokens as u64));
            line(
                "fits",
                &format!("yes: {weights} of weights, and up to {cache} of KV cache for {tokens} tokens"),
            );
        }
        _ => line("fits", &format!("no: {}", model.obstacle.as_deref().unwrap_or("unknown"))),
    }
    page
}
