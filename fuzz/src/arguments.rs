//! Any configuration and any prompts, on a small model: each call ends with a valid output, or with an error that the
//! caller can fix, and returns all blocks of the cache.

use std::sync::LazyLock;

use arbitrary::{Arbitrary, Unstructured};

use super::{checkpoint, expect};
use rsgen::engine::GenerationOutput;
use rsgen::generator::{Generator, GeneratorOptions, Prompt, Prompts};
use rsgen_core::error::{ErrorKind, Result};
use rsgen_core::types::TokenId;
use rsgen_generation::{FieldValue, GenerationConfig, PromptBatch};

/// Bounds that keep a call to milliseconds.
const MAX_PROMPT_LEN: usize = 96;
const MAX_PROMPTS: usize = 4;
const MAX_ROWS: usize = 8;
/// The new tokens of a call that goes on past the context.
const MAX_STREAMED: usize = 300;

static MODEL: LazyLock<Generator> = LazyLock::new(|| {
    // 24 blocks of 32 tokens: enough for a call, and not for every one.
    let options = GeneratorOptions::new().num_threads(1).kv_cache_bytes(24 * 2 * 32 * 8 * 4);
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, bytes) in checkpoint::model() {
        std::fs::write(folder.path().join(name), bytes).expect("a file of it");
    }
    Generator::open_with(folder.path().to_string_lossy(), &options).expect("the small model loads")
});

/// A call.
#[derive(Debug, Arbitrary)]
struct Call {
    fields: Vec<(u8, Given)>,
    prompts: GivenPrompts,
    stream: bool,
}

/// A value of a field, biased to awkward ones.
#[derive(Debug, Arbitrary)]
enum Given {
    Null,
    Bool(bool),
    Small(u8),
    Int(i64),
    Huge(i128),
    Ratio(u8),
    Float(f64),
    Text(String),
    Ids(Vec<u8>),
    Texts(Vec<String>),
    Mixed(Vec<i64>),
}

#[derive(Debug, Arbitrary)]
enum GivenPrompts {
    Text(String),
    Ids(Vec<u8>),
    AnyIds(Vec<u32>),
    Texts(Vec<String>),
    Batch { rows: Vec<Vec<u8>>, masks: Option<Vec<Vec<bool>>> },
}

impl Given {
    fn value(self) -> FieldValue {
        let list = |values: Vec<FieldValue>| FieldValue::List(values);
        match self {
            Self::Null => FieldValue::Null,
            Self::Bool(value) => value.into(),
            Self::Small(value) => i64::from(value).into(),
            Self::Int(value) => value.into(),
            Self::Huge(value) => value.into(),
            Self::Ratio(value) => (f64::from(value) / 128.0).into(),
            Self::Float(value) => value.into(),
            Self::Text(value) => value.into(),
            Self::Ids(values) => list(values.into_iter().map(|id| i64::from(id).into()).collect()),
            Self::Texts(values) => list(values.into_iter().map(FieldValue::from).collect()),
            Self::Mixed(values) => list(values.into_iter().map(FieldValue::from).collect()),
        }
    }
}

impl GivenPrompts {
    fn prompts(self) -> Result<Prompts> {
        let ids = |ids: Vec<u8>| {
            ids.into_iter().take(MAX_PROMPT_LEN).map(|id| TokenId(id.into())).collect::<Vec<_>>()
        };
        let text = |text: String| Prompt::Text(text.chars().take(MAX_PROMPT_LEN).collect());
        Ok(match self {
            Self::Text(given) => text(given).into(),
            Self::Ids(given) => ids(given).into(),
            Self::AnyIds(given) => {
                given.into_iter().take(MAX_PROMPT_LEN).map(TokenId).collect::<Vec<_>>().into()
            }
            Self::Texts(given) => given.into_iter().take(MAX_PROMPTS).map(text).collect::<Vec<_>>().into(),
            Self::Batch { rows, masks } => {
                let rows: Vec<_> = rows.into_iter().take(MAX_PROMPTS).map(ids).collect();
                match masks {
                    None => PromptBatch::rectangular(rows)?.into(),
                    Some(masks) => PromptBatch::with_mask(rows, masks)?.into(),
                }
            }
        })
    }
}

/// Decodes a call from the bytes and runs it.
pub fn generate_arguments(data: &[u8]) {
    let Ok(call) = Call::arbitrary(&mut Unstructured::new(data)) else { return };
    let mut config = GenerationConfig::new();
    for (field, given) in call.fields {
        let name = GenerationConfig::FIELDS[usize::from(field) % GenerationConfig::FIELDS.len()].name;
        if let Err(error) = config.set(name, &given.value()) {
            expect(&error, &[ErrorKind::Config]);
        }
    }
    // Work is bounded here, not in the library: many rows are valid, but slow.
    if config.num_return_sequences.is_some_and(|rows| (MAX_ROWS + 1..=65_536).contains(&rows)) {
        config.num_return_sequences = Some(MAX_ROWS);
    }
    if config.has_sinks() {
        // The context does not end these.
        config.max_new_tokens = Some(config.max_new_tokens.unwrap_or(MAX_STREAMED).min(MAX_STREAMED));
    }
    let kinds = [ErrorKind::Config, ErrorKind::Input, ErrorKind::Capacity, ErrorKind::Numerical];
    match call.prompts.prompts().and_then(|prompts| run(prompts, &config, call.stream)) {
        Ok(output) => check(&output, &config),
        Err(error) => expect(&error, &kinds),
    }
    let stats = MODEL.engine().pool().stats();
    assert_eq!((stats.used_blocks, stats.reserved_blocks), (0, 0), "all blocks come back");
}

fn run(prompts: Prompts, config: &GenerationConfig, stream: bool) -> Result<GenerationOutput> {
    let whole = MODEL.call(prompts.clone()).config(config).run();
    if !stream || matches!(prompts, Prompts::List(_)) {
        return whole;
    }
    let mut tokens = MODEL.call(prompts).config(config).stream()?;
    let mut texts = String::new();
    for token in tokens.by_ref() {
        texts.push_str(&token?.text);
    }
    let streamed = tokens.into_output()?;
    assert_eq!(streamed.texts().map(str::len).sum::<usize>(), texts.len(), "a stream tells the whole text");
    let same_work = config.max_new_tokens.or(config.max_length).is_some() && config.max_time.is_none();
    if same_work && (config.do_sample != Some(true) || config.seed.is_some()) {
        let whole = whole.expect("what can be streamed can be run");
        assert!(
            whole.rows.iter().map(|row| &row.generated).eq(streamed.rows.iter().map(|row| &row.generated))
        );
    }
    Ok(streamed)
}

fn check(output: &GenerationOutput, config: &GenerationConfig) {
    let model = MODEL.config();
    for row in &output.rows {
        let generated = &row.generated;
        assert!(!generated.token_ids.is_empty());
        assert!(generated.token_ids.iter().all(|id| id.index() < model.vocab_size));
        assert!(generated.token_ids.len() <= config.max_new_tokens.unwrap_or(usize::MAX));
        assert!(config.has_sinks() || generated.token_ids.len() < model.max_position_embeddings);
        assert_eq!(generated.logprobs.len(), generated.token_ids.len());
        assert!(generated.logprobs.iter().all(|logprob| logprob.is_finite() && *logprob <= 1e-3));
    }
    assert!(
        output
            .sequences
            .iter()
            .all(|sequence| sequence.scores.is_some() == (config.output_scores == Some(true)))
    );
    let rows = config.num_return_sequences.unwrap_or(1);
    assert!(output.rows.len().is_multiple_of(rows) && !output.rows.is_empty());
}
