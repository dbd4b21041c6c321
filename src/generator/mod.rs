//! The public entry point: a model with its tokenizer and defaults, and the calls that generate.

mod adapters;
mod assistant;
mod batch;
mod bayesian_detector;
mod call;
mod catalogue;
mod chat;
pub mod choices;
mod convert;
mod defaults;
mod embed;
mod guidance;
mod in_memory;
mod kept;
mod lists;
mod loading;
mod open;
mod options;
mod output_texts;
mod pack;
mod perplexity;
mod plans;
mod precision;
mod prompt;
mod random;
mod rank;
mod reasoning;
mod resources;
mod score;
mod sentences;
mod source;
mod strategies;
mod streaming;
mod tools;
mod translate;

use std::sync::{Arc, Weak};

use serde_json::{Map, Value};

pub use adapters::{AdapterFacts, AdapterSum};
pub use assistant::Assistant;
pub use bayesian_detector::BayesianDetector;
pub use call::{Call, Prepared};
pub use catalogue::Continuations;
pub use chat::ChatPrompt;
pub use convert::{ConvertReport, convert, convert_interruptible};
pub(crate) use defaults::generation_defaults;
#[cfg(feature = "serve")]
pub(crate) use embed::to_unit_length;
pub use in_memory::MemoryModel;
pub use loading::find_tokenizer_interruptible;
pub use open::{Progress, Stage, find_chat_templates, find_tokenizer, open_tokenizer};
pub use options::GeneratorOptions;
pub use pack::{PackReport, pack, pack_interruptible};
pub use prompt::{Prompt, Prompts};
pub use rank::{Normalization, RankedCandidate};
#[cfg(feature = "serve")]
pub(crate) use reasoning::kept_tokens;
pub use reasoning::{Reasoning, Reply};
pub use resources::{Machine, MemoryPlan};
pub use tools::ToolUse;

pub use crate::engine::Pooling;
pub use rsgen_kernels::tensor::{ComputeDtype, DType, WeightType};
pub use rsgen_kernels::{Isa, IsaReason, Limits};
pub use rsgen_model::cache::KvDtype;
pub use rsgen_model::weights::{Tensor, TensorInfo, TensorSource};

use crate::engine::{Engine, EvaluatedText, GenerationOutput, Interrupt, TokenStream};
use rsgen_core::{
    AdapterWeights, Error, LayerSet, LayerShape, Mutex, Result, RowOutputs, TokenId, memory, message,
};
use rsgen_generation::{GenerationConfig, Grammars, KeptTokens, LayerStates, Vocabulary, VocabularyMap};
use rsgen_model::cache::BLOCK_TOKENS;
use rsgen_model::weights::{ModelConfig, available_memory};
use rsgen_text::{ChatTemplates, Tokenizer};

/// The most bytes of text per token of the context. A longer prompt is an error before it is tokenized: no
/// vocabulary has such long tokens on average, and tokenizing megabytes only to refuse them takes seconds.
const MAX_BYTES_PER_TOKEN: usize = 256;

/// The memory of encoding per byte of text: the tokenizer holds two copies with the place of each byte, and
/// each token with its text.
const ENCODING_BYTES: usize = 300;
/// Shorter texts are not compared with the available memory, because reading it is slow.
const UNCHECKED_TEXT: usize = 1 << 18;

/// A model that is ready to generate.
///
/// Cheap to clone, and usable from any number of threads at once: their calls share passes, and no result
/// depends on that.
///
/// ```
/// # #[cfg(feature = "bundled")] {
/// use rsgen::{GenerationConfig, Generator};
///
/// let generator = Generator::bundled()?;
/// let output = generator.generate("Once upon a time", &GenerationConfig::new().max_new_tokens(12))?;
/// assert!(output.text().len() > 10);
/// # }
/// # Ok::<(), rsgen::Error>(())
/// ```
#[derive(Clone)]
pub struct Generator {
    shared: Arc<Shared>,
    /// What its calls use unless they name another: see [`Generator::with_adapter`].
    adapters: AdapterWeights,
}

struct Shared {
    engine: Arc<Engine>,
    tokenizer: Option<Tokenizer>,
    vocabulary: Option<Arc<dyn Vocabulary>>,
    chat_templates: ChatTemplates,
    config: ModelConfig,
    generation_config: Arc<GenerationConfig>,
    /// The file that these are from: `config.json` where there is no `generation_config.json`.
    generation_config_file: &'static str,
    /// The model that drafts tokens for this one, unless a call names another.
    assistant: Option<Generator>,
    /// How many tokens it drafts next as an assistant.
    kept_tokens: KeptTokens,
    /// The compiled grammars of its calls.
    grammars: Grammars,
    adapters: adapters::NamedAdapters,
    /// The maps to the vocabularies of assistants, where they differ.
    vocabulary_maps: VocabularyMaps,
    /// The folder, or the name of the bundled model.
    name: String,
    /// What opens it again: see [`GeneratorOptions::recipe`].
    recipe: Map<String, Value>,
    warnings: Vec<String>,
}

/// Keyed by the engine of the assistant.
type VocabularyMaps = Mutex<Vec<(Weak<Engine>, Option<Arc<VocabularyMap>>)>>;

impl Generator {
    /// Generates with the search that the configuration selects: see [`GenerationConfig`].
    ///
    /// Prompts given as a list are independent of each other; they are computed together. Without any limit
    /// it stops after 20 new tokens, as transformers does.
    ///
    /// # Errors
    /// When a field, a prompt or their combination is invalid, or when the cache has no room.
    pub fn generate(
        &self,
        prompts: impl Into<Prompts>,
        config: &GenerationConfig,
    ) -> Result<GenerationOutput> {
        self.call(prompts).config(config).run()
    }

    /// Generates token by token: the stream works while it is iterated, and stops when it is dropped.
    ///
    /// Without any limit it goes on to the end of the sequence or of the model's context.
    ///
    /// # Errors
    /// As for [`Generator::generate`]; the iterator yields later errors.
    pub fn stream(&self, prompt: impl Into<Prompt>, config: &GenerationConfig) -> Result<TokenStream> {
        self.call(prompt.into()).config(config).stream()
    }

    /// A call with more than a configuration: processors, criteria, an interrupt.
    pub fn call(&self, prompts: impl Into<Prompts>) -> Call<'_> {
        Call::new(self, prompts.into())
    }

    /// The logits after each token of each sequence, `[sequences, tokens, vocab_size]`; all have the same
    /// length.
    ///
    /// # Errors
    /// When the sequences are empty or of different lengths, or hold ids outside of the vocabulary.
    pub fn forward(&self, sequences: &[Vec<TokenId>]) -> Result<Vec<f32>> {
        self.forward_interruptible(sequences, &mut || false)
    }

    /// [`Generator::forward`], until `interrupted` returns true.
    ///
    /// # Errors
    /// As for [`Generator::forward`], and `Cancelled`.
    pub fn forward_interruptible(
        &self,
        sequences: &[Vec<TokenId>],
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<f32>> {
        self.forward_states(sequences, false, false, interrupted).map(|(logits, _)| logits)
    }

    /// [`Generator::forward`], with the hidden states and attention weights of each sequence as requested,
    /// until `interrupted` returns true.
    ///
    /// # Errors
    /// As for [`Generator::forward`]; `Config` for hidden states of a model of more than 127 layers;
    /// `Cancelled`.
    pub fn forward_states(
        &self,
        sequences: &[Vec<TokenId>],
        output_hidden_states: bool,
        output_attentions: bool,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<(Vec<f32>, Vec<LayerStates>)> {
        self.check_no_encoder("`forward`", "use `score` with a source and its target")?;
        let shape = self.shared.engine.model().layer_shape();
        let mut wanted_states = RowOutputs { attentions: output_attentions, ..RowOutputs::NONE };
        if output_hidden_states {
            wanted_states.hidden_states = LayerSet::through(shape.num_layers()).ok_or_else(|| {
                Error::config(format!(
                    "is possible in models of up to {} layers, but this one has {}; leave it out",
                    LayerSet::CAPACITY - 1,
                    shape.num_layers()
                ))
                .about("output_hidden_states")
            })?;
        }
        let len = sequences.first().map_or(0, Vec::len);
        if len == 0 || sequences.iter().any(|sequence| sequence.len() != len) {
            return Err(Error::input(
                "the sequences of `forward` must be of one length, and not empty; call it once for each length",
            ));
        }
        let wanted =
            sequences.len().saturating_mul(len).saturating_mul(self.shared.engine.model().vocab_size());
        // The states of all sequences, and the arrays that may be made of them.
        let of_states = states_len(&shape, wanted_states, len).saturating_mul(2 * sequences.len());
        let bytes = wanted.saturating_add(of_states).saturating_mul(std::mem::size_of::<f32>());
        if let Some(available) = available_memory().filter(|&available| bytes as u64 > available) {
            return Err(Error::capacity(format!(
                "the logits of {} sequences of {len} tokens take {bytes} bytes{}, but {available} are available; give \
                 fewer or shorter sequences, or use `score`",
                sequences.len(),
                if of_states > 0 { " with `output_hidden_states` and `output_attentions`" } else { "" }
            )));
        }
        let (mut logits, mut states) = (Vec::new(), Vec::new());
        memory::reserve(&mut logits, wanted, "logits")?;
        let engine = &self.shared.engine;
        for (index, sequence) in sequences.iter().enumerate() {
            let named = |error: Error| {
                if sequences.len() > 1 { error.of_prompt("prompt", index) } else { error }
            };
            self.check_context(sequence.len()).map_err(named)?;
            let text = EvaluatedText { adapters: self.adapters.clone(), ..sequence.clone().into() };
            states.push(
                engine.logits_and_states(&text, wanted_states, interrupted, &mut logits).map_err(named)?,
            );
        }
        Ok((logits, states))
    }

    /// The tokenizer.
    ///
    /// # Errors
    /// When the model came without one.
    pub fn tokenizer(&self) -> Result<&Tokenizer> {
        self.shared.tokenizer.as_ref().ok_or_else(|| {
            Error::input(format!(
                "{} has no tokenizer.json; give token ids instead of text",
                self.shared.name
            ))
        })
    }

    /// The model's `config.json`.
    pub fn config(&self) -> &ModelConfig {
        &self.shared.config
    }

    /// The model's `generation_config.json`: the defaults of every call.
    pub fn generation_config(&self) -> &GenerationConfig {
        &self.shared.generation_config
    }

    /// The name of the file that the defaults of every call are from.
    #[cfg(feature = "cli")]
    pub(crate) fn generation_config_file(&self) -> &'static str {
        self.shared.generation_config_file
    }

    /// The model that drafts tokens for this one, if it was opened with one.
    pub fn assistant(&self) -> Option<&Self> {
        self.shared.assistant.as_ref()
    }

    /// The engine that runs the model.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.shared.engine
    }

    /// Ends the calls and streams of all clones with a `Cancelled` error, and so what they begin later. The memory
    /// is returned with the last clone.
    pub fn close(&self) {
        self.shared.engine.close();
    }

    /// The folder that the model was loaded from, or the name of the bundled model.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The options that it was opened with, under their names in Python, and its name as `model`; paths are absolute.
    /// An assistant has a recipe of its own.
    pub fn recipe(&self) -> &Map<String, Value> {
        &self.shared.recipe
    }

    /// Warnings about likely mistakes in the options. [`Generator::open`] logs them as well.
    pub fn warnings(&self) -> &[String] {
        &self.shared.warnings
    }

    /// The tokens of a prompt; the beginning-of-sequence token, that of the call or the model's, if there is
    /// none at all, as in transformers.
    pub(crate) fn encode_prompt(
        &self,
        prompt: Prompt,
        bos: Option<TokenId>,
        interrupted: &mut Interrupt<'_>,
    ) -> Result<Vec<TokenId>> {
        self.begun(self.encode_text(prompt, true, interrupted)?, bos)
    }

    /// The tokens of a prompt; `add_special_tokens` adds the tokenizer's special tokens to a text.
    ///
    /// # Errors
    /// `Input` for embeddings, and for a text that has more tokens than the context; `Config` without a
    /// tokenizer; `Cancelled` when interrupted.
    pub fn encode_text(
        &self,
        prompt: Prompt,
        add_special_tokens: bool,
        interrupted: &mut Interrupt<'_>,
    ) -> Result<Vec<TokenId>> {
        match prompt {
            Prompt::Ids(token_ids) => Ok(token_ids),
            Prompt::Embeddings { .. } => {
                Err(Error::input("embeddings are no text; give a text, or the token ids that they stand for"))
            }
            Prompt::Text(text) => {
                let tokenizer = self.tokenizer()?;
                self.check_bytes(&text)?;
                tokenizer.encode_interruptible(&text, add_special_tokens, interrupted)
            }
        }
    }

    /// Adds the beginning-of-sequence token to an empty prompt.
    pub(crate) fn begun(&self, mut token_ids: Vec<TokenId>, bos: Option<TokenId>) -> Result<Vec<TokenId>> {
        if token_ids.is_empty() {
            let model = self.shared.generation_config.bos_token_id.or(self.shared.config.bos_token_id);
            token_ids.extend(bos.or(model));
        }
        if token_ids.is_empty() {
            return Err(Error::input(message!(
                "the prompt has no token, and the model names no " {bos_token_id} " to begin with; give at \
                 least one token"
            )));
        }
        Ok(token_ids)
    }

    /// The tokens that the whole KV cache holds.
    pub(crate) fn cache_tokens(&self) -> usize {
        self.engine().pool().stats().max_blocks.saturating_mul(BLOCK_TOKENS)
    }

    fn check_bytes(&self, text: &str) -> Result<()> {
        let context = self.shared.config.context_len();
        if text.len() / MAX_BYTES_PER_TOKEN > context {
            return Err(Error::input(format!(
                "the text has {} bytes, more than {MAX_BYTES_PER_TOKEN} for each of the {context} tokens that the model's \
                 context holds; shorten it",
                text.len()
            )));
        }
        Self::check_memory(text)
    }

    /// Refuses a text whose encoding would not fit into the available memory.
    fn check_memory(text: &str) -> Result<()> {
        let bytes = text.len().saturating_mul(ENCODING_BYTES) as u64;
        if text.len() < UNCHECKED_TEXT {
            return Ok(());
        }
        match available_memory().filter(|&available| bytes > available) {
            None => Ok(()),
            Some(available) => Err(Error::capacity(format!(
                "encoding a text of {} bytes takes up to {bytes} bytes of memory, but {available} are available; shorten \
                 it, or encode it in parts and give the ids",
                text.len()
            ))),
        }
    }

    fn check_context(&self, len: usize) -> Result<()> {
        let context = self.shared.config.context_len();
        if len > context {
            return Err(Error::input(format!(
                "the text must fit the model's context of {context} tokens, got {len}; shorten it or give it in parts"
            )));
        }
        Ok(())
    }
}

impl std::fmt::Debug for Generator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let config = &self.shared.config;
        f.debug_struct("Generator")
            .field("model", &self.shared.name)
            .field("architecture", &config.architecture)
            .field("num_layers", &config.num_hidden_layers)
            .field("hidden_size", &config.hidden_size)
            .field("vocab_size", &config.vocab_size)
            .field("workers", self.shared.engine.workers())
            .finish_non_exhaustive()
    }
}

/// The number of floats of the wanted layer states for a text of `len` tokens.
fn states_len(shape: &LayerShape, wanted: RowOutputs, len: usize) -> usize {
    let hidden = if wanted.hidden_states.is_empty() { 0 } else { len.saturating_mul(shape.hidden_len()) };
    let weights =
        if wanted.attentions { len.saturating_mul(len).saturating_mul(shape.attention_len(0)) } else { 0 };
    hidden.saturating_add(weights)
}
