//! Text generation on CPUs: every decoding strategy of Hugging Face `generate()`, exact to the token.
//!
//! The modules are layers, lowest first; a layer knows nothing of the ones above it. `ARCHITECTURE.md` holds the
//! table of what each may import, and `tests/suite/architecture.rs` checks the sources against it.
#![cfg_attr(feature = "bundled", doc = "", doc = include_str!("../README.md"))]

pub mod error;
mod escape;
#[cfg(any(test, feature = "python"))]
mod executor;
mod files;
mod json;
mod memory;
mod process;
mod sync;
pub mod types;

#[expect(unsafe_code, reason = "SIMD loads and stores, and the hand-over of chunks to helper threads")]
pub mod kernels;

pub mod tensor;
pub mod text;

pub mod quant;

pub mod weights;

pub mod cache;

pub mod model;

pub mod generation;

pub mod engine;

pub mod generator;

#[cfg(any(feature = "cli", feature = "python", feature = "fuzzing"))]
pub mod pictures;

#[cfg(feature = "serve")]
pub mod serve;

#[cfg(feature = "cli")]
pub mod cli;

#[cfg(feature = "python")]
mod python;

#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;

pub use engine::{GenerationOutput, KeptCache, StreamedToken, TokenStream};
pub use error::{Error, ErrorKind, Result};
pub use generation::{GenerationConfig, PromptBatch};
pub use generator::{
    ChatPrompt, Generator, GeneratorOptions, MemoryModel, PackReport, Prompt, Prompts, Tensor, TensorInfo,
    TensorSource, pack,
};
pub use kernels::ThreadPool;
pub use tensor::{DType, WeightType};
pub use text::{ChatOptions, Message};
pub use types::{BlockId, FinishReason, SeqId, TokenId};

/// Compiles the examples of `docs/`.
#[cfg(all(doctest, feature = "bundled"))]
mod pages {
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
