//! Runs searches on a model: batching, threads, the KV cache and cancellation.
//!
//! A call, a stream and a list of prompts are all sets of requests. Each pass computes rows of all requests together, on
//! the caller's thread. There is no background thread: a request that is not driven costs only its cache blocks, and
//! dropping it returns them.
//!
//! ```text
//!  Request ── wants() ──▶ rows ─┐
//!  Request ── wants() ──▶ rows ─┼─▶ BatchBuilder ─▶ Engine::pass ─▶ logits ─┬─▶ advance() ─▶ events
//!  Request ── wants() ──▶ rows ─┘   (≤ 256 rows)  (one at a time)       └─▶ …
//! ```

mod batching;
mod core;
mod estimate;
mod evaluate;
mod events;
mod executor;
mod output;
mod request;
mod resources;
mod run;
mod sequence;
mod slot;
mod stream;
mod ticket_lock;
mod timing;
pub mod trace;
mod vocabulary;

pub use self::core::{Engine, EngineOptions, Interrupt};
pub use evaluate::TokenScore;
pub use events::StreamedToken;
pub use output::{GenerationOutput, Timings, Usage};
pub use resources::{
    CacheReason, ThreadsReason, default_kv_cache_bytes, kv_cache_bytes, num_threads, oversubscription,
};
pub use run::run;
pub use slot::DraftModel;
pub use stream::TokenStream;
pub use timing::{TIMING_TARGET, is_timed, limits};
pub use vocabulary::TokenizerVocabulary;
