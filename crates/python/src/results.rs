//! Constructors of the dataclasses of `rsgen._results`.

use pyo3::call::PyCallArgs;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyTuple};

use super::arrays::{array, wide};
use super::errors::to_python;
use super::signals::look;
use rsgen::engine::{self, Engine, TokenScore};
use rsgen_core::types::{FinishReason, TokenId};

/// An object of a class of `rsgen._results`.
pub(super) fn made<'py>(
    py: Python<'py>,
    class: &str,
    values: impl PyCallArgs<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    py.import("rsgen._results")?.getattr(class)?.call1(values)
}

/// A `StreamedToken`.
pub(super) fn streamed_token(py: Python<'_>, token: engine::StreamedToken) -> PyResult<Bound<'_, PyAny>> {
    let engine::StreamedToken { id, text, index, logprob, score, finish_reason, .. } = token;
    made(py, "StreamedToken", (id.0, text, index, logprob, score, finish_reason.map(FinishReason::as_str)))
}

/// A `TokenScores`.
pub(super) fn token_scores<'py>(py: Python<'py>, scores: &[TokenScore]) -> PyResult<Bound<'py, PyAny>> {
    let top_logprobs = scores.iter().map(|score| top_logprobs(py, &score.top_logprobs));
    let values = (
        array(py, scores.len(), scores.iter().map(|score| wide(score.token_id)).collect())?,
        array(py, scores.len(), scores.iter().map(|score| score.logprob).collect())?,
        array(py, scores.len(), scores.iter().map(|score| score.rank as i64).collect())?,
        top_logprobs.collect::<PyResult<Vec<_>>>()?,
    );
    made(py, "TokenScores", values)
}

/// The most probable tokens in one place, with their log-probabilities.
pub(super) fn top_logprobs<'py>(py: Python<'py>, top: &[(TokenId, f32)]) -> PyResult<Bound<'py, PyAny>> {
    look(py)?;
    top.iter().map(|(token, logprob)| (token.0, logprob)).into_py_dict(py).map(Bound::into_any)
}

pub(super) fn usage<'py>(py: Python<'py>, usage: &engine::Usage) -> PyResult<Bound<'py, PyAny>> {
    let engine::Usage { prompt_tokens, cached_prompt_tokens, generated_tokens } = *usage;
    made(py, "Usage", (prompt_tokens, cached_prompt_tokens, generated_tokens))
}

pub(super) fn timings<'py>(py: Python<'py>, timings: &engine::Timings) -> PyResult<Bound<'py, PyAny>> {
    let engine::Timings { first_token, total, encoder } = timings;
    made(py, "Timings", (first_token.as_secs_f64(), total.as_secs_f64(), encoder.as_secs_f64()))
}

pub(super) fn draft_stats<'py>(
    py: Python<'py>,
    stats: &rsgen_generation::DraftStats,
) -> PyResult<Bound<'py, PyAny>> {
    made(py, "DraftStats", (stats.drafted, stats.verified, stats.accepted, stats.rounds))
}

/// The usage of a model's KV caches, those of its drafting models included.
pub(super) fn cache_stats<'py>(py: Python<'py>, engine: &Engine) -> PyResult<Bound<'py, PyAny>> {
    engine.check_process().map_err(|error| to_python(py, error))?;
    let (prefixes, mut all, mut drafts) = (engine.pool().stats(), [0; 7], [0; 7]);
    for (index, pool) in std::iter::once(engine.pool().clone()).chain(engine.draft_pools()).enumerate() {
        let stats = pool.stats();
        let bytes = |blocks: usize| blocks.saturating_mul(pool.capacity().layout().bytes_per_block());
        let [used, reserved, free, total] =
            [stats.used_blocks, stats.reserved_blocks, stats.available_blocks, stats.max_blocks];
        let counts = [used, reserved, free, total, bytes(used), bytes(stats.num_blocks), bytes(total)];
        for (place, count) in counts.into_iter().enumerate() {
            all[place] += count;
            drafts[place] += if index > 0 { count } else { 0 };
        }
    }
    let [used, reserved, free, total, bytes_used, bytes_allocated, bytes_total] = all;
    let blocks = [used, reserved, free, total, prefixes.kept_blocks];
    let bytes = [bytes_used, bytes_allocated, bytes_total, drafts[0], drafts[5]];
    let tokens = [prefixes.prefix_cache_queries, prefixes.prefix_cache_hits].map(|tokens| tokens as usize);
    made(py, "CacheStats", PyTuple::new(py, [&blocks[..], &bytes, &tokens].concat())?)
}
