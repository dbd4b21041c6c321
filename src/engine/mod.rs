//! Runs searches on a model: the one place where loops, threads, the cache and cancellation meet.
//!
//! A call, a stream and (later) a service are the same thing here: a set of requests whose rows are computed
//! together, pass by pass, on the thread of the caller. There is no background thread; a request that nobody drives
//! costs nothing but its cache blocks, and dropping it gives those back.
//!
//! ```text
//!  Request ── wants() ──▶ rows ─┐
//!  Request ── wants() ──▶ rows ─┼─▶ StepPlan ─▶ Engine::pass ─▶ logits ─┬─▶ advance() ─▶ events
//!  Request ── wants() ──▶ rows ─┘   (≤ 256 rows)  (one at a time)       └─▶ …
//! ```

mod batching;
mod core;
mod evaluate;
mod events;
mod output;
mod request;
mod resources;
mod run;
mod sequence;
mod step;
mod stream;
mod timing;
mod turns;
mod vocabulary;

pub use self::core::{Engine, EngineOptions, Interrupt};
pub use evaluate::TokenScore;
pub use events::StreamedToken;
pub use output::{GenerationOutput, Timings, Usage};
pub use resources::{
    CacheReason, ThreadsReason, default_kv_cache_bytes, kv_cache_bytes, num_threads, oversubscription,
};
pub use run::run;
pub use stream::TokenStream;
pub use timing::{TIMING_TARGET, is_timed, limits};
pub use vocabulary::TokenizerVocabulary;
