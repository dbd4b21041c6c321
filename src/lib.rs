//! Text generation on CPUs: every decoding strategy of Hugging Face `generate()`, exact to the token.
#![doc = ""]
#![doc = include_str!("../docs/crate.md")]
//!
//! # Crates
//!
//! This crate holds the engine, the [`Generator`], the command and the server. The layers below are crates of their own, which
//! follow no promise of stability: what a program needs of them is re-exported here. `ARCHITECTURE.md` describes them all.
#![forbid(unsafe_code)]

#[cfg(feature = "bundled")]
mod bundled;
pub mod engine;
pub mod generator;

#[cfg(feature = "cli")]
pub mod pictures;

#[cfg(feature = "serve")]
pub mod serve;

#[cfg(feature = "cli")]
pub mod cli;

pub use engine::{GenerationOutput, KeptCache, StreamedToken, TokenStream};
pub use generator::{
    AdapterSum, ChatPrompt, ConvertReport, Generator, GeneratorOptions, MemoryModel, PackReport, Prompt,
    Prompts, Reasoning, Reply, Tensor, TensorInfo, TensorSource, ToolUse, convert, pack,
};
pub use rsgen_core::error::{Error, ErrorKind, Result};
pub use rsgen_core::types::{BlockId, FinishReason, SeqId, TokenId};
pub use rsgen_generation::{GenerationConfig, PromptBatch};
/// ```
/// # #[cfg(feature = "bundled")] {
/// use std::sync::Arc;
/// use rsgen::{Generator, GeneratorOptions, ThreadPool};
///
/// // A rayon pool that the program uses for other work as well.
/// let pool = Arc::new(rayon::ThreadPoolBuilder::new().num_threads(4).build().unwrap());
/// let thread_pool = ThreadPool::from(Arc::clone(&pool));
/// let options = GeneratorOptions::new().thread_pool(thread_pool);
/// let (one, other) = (Generator::bundled_with(&options)?, Generator::bundled_with(&options)?);
/// # }
/// # Ok::<(), rsgen::Error>(())
/// ```
///
pub use rsgen_kernels::ThreadPool;
pub use rsgen_kernels::tensor::{DType, WeightType};
pub use rsgen_text::{ChatOptions, Message};

/// The error type, and what a caller can act on.
pub mod error {
    pub use rsgen_core::error::{Error, ErrorKind, Mention, Message, Origin, Result, ResultExt, Words};
}

/// Identifiers, reasons to end, and what a row or a layer delivers.
pub mod types {
    pub use rsgen_core::types::{BlockId, FinishReason, LayerSet, LayerShape, RowOutputs, SeqId, TokenId};
}

/// Tokenizers, incremental decoding and chat templates.
pub mod text {
    pub use rsgen_text::{ChatOptions, ChatTemplate, ChatTemplates, Detokenizer, Message, Tokenizer};
    pub use rsgen_text::{ReasoningEvent, ReasoningForm, ReasoningParser};
    pub use rsgen_text::{ToolCall, ToolChoice, ToolEvent, ToolForm, ToolParser, Tools};
}

/// Types of elements and of weights.
pub mod tensor {
    pub use rsgen_kernels::tensor::{ComputeDtype, DType, WeightType};
}

/// The files of a model and what its `config.json` says, the local Hub cache, and the memory of the machine.
pub mod weights {
    pub use rsgen_model::weights::{
        HubCache, HubCacheReason, LayerType, MemoryLimit, ModelConfig, RopeKind, RopeParameters,
        SlidingWindow, Tensor, TensorInfo, TensorSource, available_memory, memory_limit,
    };
}

/// The KV cache as calls describe it.
pub mod cache {
    pub use rsgen_model::cache::{BLOCK_TOKENS, KvDtype, PoolStats};
}

/// What models there are.
pub mod model {
    pub use rsgen_model::SUPPORTED_ARCHITECTURES;
}

/// How to generate: the configuration, and what callers can add of their own: logits processors, stopping criteria, constraints.
pub mod generation {
    pub use rsgen_generation::config::{NegativePromptIds, NegativePromptMask};
    pub use rsgen_generation::{
        AssistantTokensSchedule, BayesianDetectorModel, Compat, DolaLayers, DraftStats, EarlyStopping,
        Embeddings, FieldInfo, FieldValue, ForcedWord, GenerationConfig, GenerationMode, JsonSchema,
        LayerStates, LogitBias, LogitsProcessor, OneOrMany, OutputRow, PrefixAllowedTokens, ProcessContext,
        ProcessorState, PromptBatch, PromptRow, RandomState, RowContext, ScoreRows, SearchOutput,
        SeedingScheme, SequenceBias, SequenceScores, StopContext, StoppingCriterion, Strategy, SynthIDScores,
        SynthIDTextWatermarkDetector, SynthIDTextWatermarkingConfig, TokenEvent, TokenTrie, TokenTrieBuilder,
        TorchRng, TrieEntry, Vocabulary, VocabularyMap, WatermarkDetection, WatermarkDetector, Watermarking,
        WatermarkingConfig,
    };
    pub use rsgen_generation::{config, constraint, logits, stopping};
}

/// Compiles the examples of `docs/`.
#[cfg(all(doctest, feature = "bundled"))]
mod pages {
    #[doc = include_str!("../README.md")]
    mod readme {}
    #[doc = include_str!("../docs/kept_cache.md")]
    mod kept_cache {}
    #[doc = include_str!("../docs/rust.md")]
    mod embedding {}
    #[doc = include_str!("../docs/watermarks.md")]
    mod watermarks {}
    #[doc = include_str!("../docs/streaming_llm.md")]
    mod streaming_llm {}

    #[doc = include_str!("../docs/models_in_memory.md")]
    mod models_in_memory {}
    #[doc = include_str!("../docs/adapters.md")]
    mod adapters {}

    #[doc = include_str!("../docs/strategies/assisted_decoding.md")]
    mod assisted_decoding {}
    #[doc = include_str!("../docs/strategies/beam_sample.md")]
    mod beam_sample {}
    #[doc = include_str!("../docs/strategies/beam_search.md")]
    mod beam_search {}
    #[doc = include_str!("../docs/strategies/constrained_beam_search.md")]
    mod constrained_beam_search {}
    #[doc = include_str!("../docs/strategies/contrastive_search.md")]
    mod contrastive_search {}
    #[doc = include_str!("../docs/strategies/dola.md")]
    mod dola {}
    #[doc = include_str!("../docs/strategies/greedy_search.md")]
    mod greedy_search {}
    #[doc = include_str!("../docs/strategies/group_beam_search.md")]
    mod group_beam_search {}
    #[doc = include_str!("../docs/strategies/prompt_lookup.md")]
    mod prompt_lookup {}
    #[doc = include_str!("../docs/strategies/sample.md")]
    mod sample {}
}
