//! The options of the command line, which environment variables can also set.
//!
//! Only types are checked here: the library checks values, with the same messages as in Rust and Python.
//! Options that several subcommands share are structs to flatten; `decoding` generates those of generation,
//! and `environment` applies what all options share.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser};

use super::adapters::{ScaledAdapter, scaled};
use super::bench::BenchArguments;
use super::chat::ChatArguments;
use super::completions::CompletionsArguments;
use super::convert::ConvertArguments;
use super::decoding::DecodingArguments;
use super::detect::DetectArguments;
use super::doctor::DoctorArguments;
use super::pack::PackArguments;
use super::run_batch::RunBatchArguments;
use super::score::ScoreArguments;
use super::serve::ServeArguments;
use super::show::{PictureArguments, ShowArguments};
use super::tokenize::TokenizeArguments;
use super::translate::TranslateArguments;
use crate::generator::choices::{self, Choice, ModelDefaults};
use crate::generator::{ComputeDtype, GeneratorOptions, KvDtype, WeightType};
use rsgen_kernels::ThreadPool;

const ABOUT: &str = "Text generation on CPUs: transformers' generate(), exact to the token";

const EXAMPLES: &str = "\
Examples:
  rsgen generate --do-sample --top-p 0.9 --seed 7 \"The little fox\"";

const GENERATE_EXAMPLES: &str = "\
Examples:
  rsgen generate --do-sample --top-p 0.9 --seed 7 \"The little fox\"
  rsgen generate --num-beams 4 --prompts prompts.txt --json > texts.jsonl
  rsgen generate --show-beams --num-beams 3 --max-new-tokens 20 \"One day\"
  RSGEN_TOP_P=0.9 RSGEN_DO_SAMPLE=1 rsgen generate \"One day\"";

const INSPECT_EXAMPLES: &str = "\
Examples:
  rsgen inspect path/to/llama
  rsgen inspect path/to/llama --adapter path/to/adapter
  rsgen inspect HuggingFaceTB/SmolLM2-135M --json";

/// The command line.
#[derive(Debug, Parser)]
#[command(name = "rsgen", version, about = ABOUT, after_help = EXAMPLES, max_term_width = 100)]
#[command(subcommand_required = true, arg_required_else_help = true, disable_help_subcommand = true)]
#[command(help_template = "{about-with-newline}{usage-heading} {usage}\n{all-args}{after-help}")]
pub(super) struct Arguments {
    #[command(subcommand)]
    pub(super) subcommand: Subcommand,
    /// Say more on standard error; -vv says most
    #[arg(short, long, global = true, action = clap::ArgAction::Count, env = "RSGEN_VERBOSE", hide_short_help = true)]
    pub(super) verbose: u8,
}

#[derive(Debug, clap::Subcommand)]
pub(super) enum Subcommand {
    Generate(Box<GenerateArguments>),
    Chat(Box<ChatArguments>),
    Serve(Box<ServeArguments>),
    RunBatch(Box<RunBatchArguments>),
    Pack(PackArguments),
    Convert(ConvertArguments),
    Score(ScoreArguments),
    Translate(Box<TranslateArguments>),
    Detect(DetectArguments),
    Show(ShowArguments),
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
    /// A file with a prompt on each line; `-`: standard input
    #[arg(long, value_name = "FILE", env = "RSGEN_PROMPTS", conflicts_with = "prompt")]
    pub(super) prompts: Option<PathBuf>,
    /// A catalogue whose entries alone are answers
    #[arg(
        long,
        alias = "catalogue",
        value_name = "FILE",
        env = "RSGEN_ALLOWED_SEQUENCES",
        hide_short_help = true
    )]
    pub(super) allowed_sequences: Option<PathBuf>,

    #[command(flatten)]
    pub(super) decoding: DecodingArguments,
    #[command(flatten)]
    pub(super) model: ModelArguments,
    #[command(flatten)]
    pub(super) assistant: AssistantArguments,
    #[command(flatten)]
    pub(super) pictures: PictureArguments,
    #[command(flatten)]
    pub(super) output: OutputArguments,
    /// Leave the prompt out
    #[arg(long, env = "RSGEN_NO_PROMPT", help_heading = OUTPUT, hide_short_help = true)]
    pub(super) no_prompt: bool,
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
    /// A folder, GGUF file or Hub id [default: bundled]
    #[arg(long, value_name = "MODEL", env = "RSGEN_MODEL")]
    pub(super) model: Option<String>,
}

/// Which model drafts tokens.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Model")]
pub(super) struct AssistantArguments {
    /// A smaller model that drafts; `draft` is bundled
    #[arg(long, alias = "assistant-model", value_name = "MODEL", env = "RSGEN_ASSISTANT")]
    pub(super) assistant: Option<String>,
}

/// How a model is loaded.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Model")]
pub(super) struct LoadingArguments {
    /// A LoRA adapter of PEFT, merged while loading
    #[arg(long, value_name = "FOLDER", env = "RSGEN_ADAPTER", hide_short_help = true)]
    pub(super) adapter: Option<String>,
    /// A LoRA adapter beside the model with its weight; may repeat, and they add up
    #[arg(long, value_name = "FOLDER:WEIGHT", env = "RSGEN_LORA_SCALED", value_delimiter = ',')]
    #[arg(value_parser = scaled, hide_short_help = true)]
    pub(super) lora_scaled: Vec<ScaledAdapter>,
    /// A model whose tokenizer and chat templates are taken
    #[arg(long, value_name = "MODEL", env = "RSGEN_TOKENIZER", hide_short_help = true)]
    pub(super) tokenizer: Option<String>,
    /// float32, bfloat16, float16, int8 or int4 weights
    #[arg(long, value_name = "TYPE", env = "RSGEN_DTYPE", hide_default_value = true)]
    #[arg(value_parser = one_of(choices::DTYPE), default_value = "auto", hide_possible_values = true)]
    pub(super) dtype: Weights,
    /// float32, bfloat16 or int8 arithmetic
    #[arg(long, value_name = "TYPE", env = "RSGEN_COMPUTE_DTYPE", hide_default_value = true)]
    #[arg(value_parser = one_of(choices::COMPUTE_DTYPE), default_value = "float32", hide_possible_values = true)]
    pub(super) compute_dtype: ComputeDtype,
    /// auto, float32, bfloat16 or int8 keys and values
    #[arg(
        long,
        value_name = "TYPE",
        env = "RSGEN_KV_DTYPE",
        hide_default_value = true,
        hide_short_help = true
    )]
    #[arg(value_parser = one_of(choices::KV_DTYPE), default_value = "auto", hide_possible_values = true)]
    pub(super) kv_dtype: Cache,
    /// How many threads [default: all cores]
    #[arg(long, alias = "threads", value_name = "N", env = "RSGEN_NUM_THREADS", value_parser = positive)]
    pub(super) num_threads: Option<usize>,
    /// The KV cache's memory, as in 512M or 2G
    #[arg(long, value_name = "BYTES", env = "RSGEN_KV_CACHE_BYTES", value_parser = bytes)]
    #[arg(hide_short_help = true)]
    pub(super) kv_cache_bytes: Option<usize>,
    /// Compute each prompt anew, also one that begins like another
    #[arg(long, env = "RSGEN_NO_PREFIX_CACHING", hide_short_help = true)]
    pub(super) no_prefix_caching: bool,
    /// auto, or ignore: without the model's own defaults
    #[arg(long, value_name = "FILE", env = "RSGEN_GENERATION_CONFIG", hide_default_value = true)]
    #[arg(value_parser = one_of(choices::GENERATION_CONFIG), default_value = "auto")]
    #[arg(hide_possible_values = true, hide_short_help = true)]
    pub(super) generation_config: ModelDefaults,
    /// The threads that several models share.
    #[arg(skip)]
    pub(super) thread_pool: Option<ThreadPool>,
}

/// The heading of options that say how results are written.
pub(super) const OUTPUT: &str = "Output";

/// How results are written; every subcommand has it.
#[derive(Debug, Args)]
#[command(next_help_heading = OUTPUT)]
pub(super) struct OutputArguments {
    /// JSON: an object on a line of its own
    #[arg(long, env = "RSGEN_JSON")]
    pub(super) json: bool,
}

/// Describe a model or an adapter without loading its weights
#[derive(Debug, Args)]
#[command(after_help = INSPECT_EXAMPLES)]
pub(super) struct InspectArguments {
    /// A folder, GGUF file or Hub id [default: bundled]
    #[arg(env = "RSGEN_MODEL")]
    pub(super) model: Option<String>,
    /// A LoRA adapter of PEFT, merged while loading
    #[arg(long, value_name = "FOLDER", env = "RSGEN_ADAPTER")]
    pub(super) adapter: Vec<String>,
    #[command(flatten)]
    pub(super) output: OutputArguments,
}

/// What a word of a choice becomes.
pub(super) type Weights = Option<WeightType>;
type Cache = Option<KvDtype>;

/// Parses the words of a choice.
pub(super) fn one_of<T: Copy + Send + Sync>(choice: Choice<T>) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(choice.words()).try_map(move |word| choice.parse(&word))
}

impl LoadingArguments {
    /// The options of the library.
    pub(super) fn options(&self) -> GeneratorOptions {
        GeneratorOptions {
            dtype: self.dtype,
            compute_dtype: self.compute_dtype,
            kv_dtype: self.kv_dtype,
            num_threads: self.num_threads.filter(|_| self.thread_pool.is_none()),
            thread_pool: self.thread_pool.clone(),
            kv_cache_bytes: self.kv_cache_bytes,
            adapter: self.adapter.clone(),
            tokenizer: self.tokenizer.clone(),
            prefix_caching: Some(!self.no_prefix_caching),
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

/// A number of bytes: digits, optionally with `K`, `M`, `G` or `T` for powers of 1024.
pub(super) fn bytes(text: &str) -> Result<usize, String> {
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
