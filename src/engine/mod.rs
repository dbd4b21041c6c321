//! Runs searches on a model: batching, threads, the KV cache and cancellation.
//!
//! A call, a stream and a list of prompts are all sets of requests. Each pass computes rows of all waiting
//! requests, of any caller, on the thread of one of the callers. There is no background thread: a request
//! that is not driven costs only its cache blocks, and dropping it returns them.
//!
//! ```text
//!  Request ── wants() ──▶ PendingRows ─┐                                    ┌─▶ advance() ─▶ events
//!  Request ── wants() ──▶ PendingRows ─┼─▶ Queue ─▶ a pass (≤ 256 rows) ────┼─▶ advance() ─▶ events
//!  Request ── wants() ──▶ PendingRows ─┘            led by one caller       └─▶ …
//! ```

mod adapters;
mod batch;
mod batching;
mod blocks;
mod budget;
mod compose;
mod core;
mod estimate;
mod evaluate;
mod events;
mod executor;
mod kept;
mod operations;
mod output;
mod pass;
mod pass_logits;
mod pending;
mod pooled;
mod preemption;
mod queue;
mod request;
mod residents;
mod resources;
mod run;
mod score_plan;
mod scores;
mod sequence;
mod sharing;
mod slot;
mod sources;
mod stop_text;
mod stream;
mod timing;
pub mod trace;
mod vocabulary;

// Named through this module, so that `tests/interleavings.rs` can replace it.
use rsgen_core::sync;

pub use self::core::{Engine, EngineOptions};
pub use adapters::Adapters;
pub(crate) use adapters::salted;
pub use batch::Batch;
pub use estimate::Estimate;
pub use evaluate::EvaluatedText;
pub use events::StreamedToken;
pub use kept::KeptCache;
pub use output::{GeneratedRow, GenerationOutput, Timings, Usage};
pub use pooled::Pooling;
pub use queue::Interrupt;
pub use resources::{
    CacheReason, ThreadsReason, default_kv_cache_bytes, kv_cache_bytes, num_threads, oversubscription,
    started,
};
pub use run::run;
pub use scores::TokenScore;
pub use slot::ModelRunner;
#[cfg(feature = "serve")]
pub(crate) use stop_text::{HeldText, StopTexts};
pub use stream::TokenStream;
pub use timing::{TIMING_TARGET, is_timed, limits};
pub use vocabulary::TokenizerVocabulary;
