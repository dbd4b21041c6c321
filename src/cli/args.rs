//! What can be said on the command line, and in the environment instead.
//!
//! Options of generation have transformers' names in kebab case. Only types are checked here: whether a value is
//! possible is decided where the request is planned, with the same messages as in Rust and Python. Groups of options
//! that several verbs share are structs to flatten; what is the same for all options is done by `environment`.

use clap::{Args, Parser, Subcommand, ValueEnum};

use super::bench::BenchArguments;
use super::chat::ChatArguments;
use super::completions::CompletionsArguments;
use super::doctor::DoctorArguments;
use super::score::ScoreArguments;
use super::tokenize::TokenizeArguments;
use crate::generation::{GenerationConfig, OneOrMany};
use crate::generator::GeneratorOptions;
use crate::tensor::{ComputeDtype, DType};

const ABOUT: &str = "Text generation on CPUs: transformers' generate(), exact to the token";

const EXAMPLES: &str = "\
Examples:
  rsgen generate \"Once upon a time\"
  rsgen generate --do-sample --top-p 0.9 --seed 7 \"The little fox\"
  rsgen inspect path/to/llama";

const GENERATE_EXAMPLES: &str = "\
Examples:
  rsgen generate --do-sample --top-p 0.9 --seed 7 \"The little fox\"
  echo \"Once upon a time\" | rsgen generate --json
  RSGEN_TOP_P=0.9 RSGEN_DO_SAMPLE=1 rsgen generate --model path/to/llama \"One day\"";

const INSPECT_EXAMPLES: &str = "\
Examples:
  rsgen inspect path/to/llama
  rsgen inspect HuggingFaceTB/SmolLM2-135M --json";

/// The command line.
#[derive(Debug, Parser)]
#[command(name = "rsgen", version, about = ABOUT, after_help = EXAMPLES, max_term_width = 100)]
#[command(subcommand_required = true, arg_required_else_help = true, disable_help_subcommand = true)]
pub(super) struct Arguments {
    #[command(subcommand)]
    pub(super) verb: Verb,
    /// Say more on standard error; -vv says most
    #[arg(short, long, global = true, action = clap::ArgAction::Count, env = "RSGEN_VERBOSE")]
    pub(super) verbose: u8,
}

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    Generate(Box<GenerateArguments>),
    Chat(Box<ChatArguments>),
    Score(ScoreArguments),
    Tokenize(TokenizeArguments),
    Inspect(InspectArguments),
    Doctor(DoctorArguments),
    Bench(BenchArguments),
    Completions(CompletionsArguments),
}

/// Continue a text
#[derive(Debug, Args)]
#[command(after_help = GENERATE_EXAMPLES)]
pub(super) struct GenerateArguments {
    /// The text to continue; `-` or nothing: read standard input
    pub(super) prompt: Option<String>,

    #[command(flatten)]
    pub(super) decoding: DecodingArguments,
    #[command(flatten)]
    pub(super) model: ModelArguments,
    #[command(flatten)]
    pub(super) output: OutputArguments,
    /// Leave the prompt out
    #[arg(long, env = "RSGEN_NO_PROMPT", help_heading = OUTPUT)]
    pub(super) no_prompt: bool,
}

/// How a text is continued: the fields of a `GenerationConfig`.
#[derive(Debug, Args)]
pub(super) struct DecodingArguments {
    #[command(flatten)]
    length: LengthArguments,
    #[command(flatten)]
    sampling: SamplingArguments,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Length")]
struct LengthArguments {
    /// The most tokens to add [default: up to the end]
    #[arg(long, value_name = "N", env = "RSGEN_MAX_NEW_TOKENS")]
    max_new_tokens: Option<usize>,
    /// No end before this many new tokens
    #[arg(long, value_name = "N", env = "RSGEN_MIN_NEW_TOKENS", hide_short_help = true)]
    min_new_tokens: Option<usize>,
    /// The most tokens, prompt included
    #[arg(long, value_name = "N", env = "RSGEN_MAX_LENGTH", hide_short_help = true)]
    max_length: Option<usize>,
    /// Stop after this time
    #[arg(long, value_name = "SECONDS", env = "RSGEN_MAX_TIME", allow_negative_numbers = true)]
    #[arg(hide_short_help = true)]
    max_time: Option<f64>,
    /// Stop after this text; may be repeated
    #[arg(long = "stop", value_name = "TEXT", env = "RSGEN_STOP")]
    stop_strings: Vec<String>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Decoding")]
struct SamplingArguments {
    /// Draw each token at random
    #[arg(long, env = "RSGEN_DO_SAMPLE")]
    do_sample: Option<bool>,
    /// Below 1: likely tokens gain [default: 1]
    #[arg(long, value_name = "T", env = "RSGEN_TEMPERATURE", allow_negative_numbers = true)]
    temperature: Option<f64>,
    /// From the K likeliest; 0: all [default: 50]
    #[arg(long, value_name = "K", env = "RSGEN_TOP_K")]
    top_k: Option<usize>,
    /// From the likeliest, in sum P [default: 1]
    #[arg(long, value_name = "P", env = "RSGEN_TOP_P", allow_negative_numbers = true)]
    top_p: Option<f64>,
    /// From those above P times the likeliest
    #[arg(long, value_name = "P", env = "RSGEN_MIN_P", allow_negative_numbers = true)]
    #[arg(hide_short_help = true)]
    min_p: Option<f64>,
    /// Above 1: repeat less [default: 1]
    #[arg(long, value_name = "R", env = "RSGEN_REPETITION_PENALTY", allow_negative_numbers = true)]
    #[arg(hide_short_help = true)]
    repetition_penalty: Option<f64>,
    /// How many texts to draw [default: 1]
    #[arg(long, value_name = "N", env = "RSGEN_NUM_RETURN_SEQUENCES")]
    num_return_sequences: Option<usize>,
    /// The same seed draws the same text
    #[arg(long, value_name = "N", env = "RSGEN_SEED")]
    seed: Option<u64>,
}

/// Which model a text is given to, and how it is loaded.
#[derive(Debug, Args)]
pub(super) struct ModelArguments {
    #[command(flatten)]
    pub(super) named: NamedModelArguments,
    #[command(flatten)]
    pub(super) loading: LoadingArguments,
}

/// Which model a text is given to.
#[derive(Debug, Args)]
#[command(next_help_heading = "Model")]
pub(super) struct NamedModelArguments {
    /// A folder or a Hub cache id [default: bundled]
    #[arg(long, value_name = "MODEL", env = "RSGEN_MODEL")]
    pub(super) model: Option<String>,
}

/// How a model is loaded.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Model")]
pub(super) struct LoadingArguments {
    /// auto, float32, bfloat16 or float16 weights
    #[arg(long, value_name = "TYPE", env = "RSGEN_DTYPE", hide_default_value = true)]
    #[arg(value_enum, default_value_t = WeightType::Auto, hide_possible_values = true)]
    pub(super) dtype: WeightType,
    /// float32 or bfloat16 arithmetic
    #[arg(long, value_name = "TYPE", env = "RSGEN_COMPUTE_DTYPE", hide_default_value = true)]
    #[arg(value_enum, default_value_t = Arithmetic::Float32, hide_possible_values = true)]
    pub(super) compute_dtype: Arithmetic,
    /// How many threads [default: all cores]
    #[arg(long, alias = "threads", value_name = "N", env = "RSGEN_NUM_THREADS", value_parser = positive)]
    pub(super) num_threads: Option<usize>,
    /// The KV cache's memory, as in 512M or 2G
    #[arg(long, value_name = "BYTES", env = "RSGEN_KV_CACHE_BYTES", value_parser = bytes)]
    #[arg(hide_short_help = true)]
    pub(super) kv_cache_bytes: Option<usize>,
    /// auto, or ignore: without the model's own defaults
    #[arg(long, value_name = "FILE", env = "RSGEN_GENERATION_CONFIG", hide_default_value = true)]
    #[arg(value_enum, default_value_t = ModelDefaults::Auto, hide_possible_values = true, hide_short_help = true)]
    pub(super) generation_config: ModelDefaults,
}

/// The heading of options that say how results are written.
pub(super) const OUTPUT: &str = "Output";

/// How results are written; every verb has it.
#[derive(Debug, Args)]
#[command(next_help_heading = OUTPUT)]
pub(super) struct OutputArguments {
    /// JSON: an object on a line of its own
    #[arg(long, env = "RSGEN_JSON")]
    pub(super) json: bool,
}

/// Describe a model without loading its weights
#[derive(Debug, Args)]
#[command(after_help = INSPECT_EXAMPLES)]
pub(super) struct InspectArguments {
    /// A folder or a Hub cache id [default: bundled]
    #[arg(env = "RSGEN_MODEL")]
    pub(super) model: Option<String>,
    #[command(flatten)]
    pub(super) output: OutputArguments,
}

/// What becomes of the model's `generation_config.json`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ModelDefaults {
    Auto,
    Ignore,
}

/// The type that weights are kept in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum WeightType {
    Auto,
    Float32,
    Bfloat16,
    Float16,
}

impl WeightType {
    /// `None` keeps weights as they are stored.
    pub(super) const fn dtype(self) -> Option<DType> {
        match self {
            Self::Auto => None,
            Self::Float32 => Some(DType::F32),
            Self::Bfloat16 => Some(DType::Bf16),
            Self::Float16 => Some(DType::F16),
        }
    }
}

/// The arithmetic that matrices are multiplied in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Arithmetic {
    Float32,
    Bfloat16,
}

impl Arithmetic {
    pub(super) const fn dtype(self) -> ComputeDtype {
        match self {
            Self::Float32 => ComputeDtype::F32,
            Self::Bfloat16 => ComputeDtype::Bf16,
        }
    }
}

impl DecodingArguments {
    /// The fields that were given; all others are left to the model's defaults.
    pub(super) fn generation_config(&self) -> GenerationConfig {
        let Self { length, sampling } = self;
        let mut config = GenerationConfig::new();
        config.max_new_tokens = length.max_new_tokens;
        config.min_new_tokens = length.min_new_tokens;
        config.max_length = length.max_length;
        config.max_time = length.max_time;
        config.stop_strings =
            (!length.stop_strings.is_empty()).then(|| OneOrMany::Many(length.stop_strings.clone()));
        config.do_sample = sampling.do_sample;
        config.temperature = sampling.temperature;
        config.top_k = sampling.top_k;
        config.top_p = sampling.top_p;
        config.min_p = sampling.min_p;
        config.repetition_penalty = sampling.repetition_penalty;
        config.num_return_sequences = sampling.num_return_sequences;
        config.seed = sampling.seed.map(OneOrMany::One);
        config
    }
}

impl LoadingArguments {
    /// The options of the library.
    pub(super) fn options(&self) -> GeneratorOptions {
        GeneratorOptions {
            dtype: self.dtype.dtype(),
            compute_dtype: self.compute_dtype.dtype(),
            num_threads: self.num_threads,
            kv_cache_bytes: self.kv_cache_bytes,
            ignore_generation_config: self.generation_config == ModelDefaults::Ignore,
            ..GeneratorOptions::default()
        }
    }
}

/// An integer of 1 or more.
pub(super) fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number @ 1..) => Ok(number),
        _ => Err("it must be an integer of 1 or more".to_owned()),
    }
}

/// A number of bytes: digits, and perhaps `K`, `M`, `G` or `T`, which stand for powers of 1024.
fn bytes(text: &str) -> Result<usize, String> {
    let digits = text.trim_end_matches(|unit: char| unit.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => Some(1),
        "K" | "KB" | "KIB" => Some(1 << 10),
        "M" | "MB" | "MIB" => Some(1 << 20),
        "G" | "GB" | "GIB" => Some(1 << 30),
        "T" | "TB" | "TIB" => Some(1usize << 40),
        _ => None,
    };
    let number = digits.trim_end().parse::<usize>().ok();
    let product = number.zip(unit).and_then(|(number, unit)| number.checked_mul(unit));
    product.ok_or_else(|| "it must be a number of bytes, such as 1000000, 512M or 2G".to_owned())
}
