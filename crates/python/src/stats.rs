//! The class `CacheStats`: how full the KV cache is.

use pyo3::prelude::*;
use pyo3::types::PyType;

use super::errors::guarded;
use super::pickle::{self, Restored};
use rsgen::engine::Engine;
use rsgen_core::error::Result;

/// How full the KV cache of a generator is at one moment.
///
/// A block holds 32 tokens of one sequence. Those of models that draft for the generator count as well.
#[pyclass(module = "rsgen", frozen, get_all, eq)]
#[derive(PartialEq)]
pub(super) struct CacheStats {
    /// int: Blocks that hold keys and values. A block that sequences share counts once.
    blocks_used: usize,
    /// int: Blocks reserved for running requests and not yet used.
    blocks_reserved: usize,
    /// int: Blocks for further requests.
    blocks_free: usize,
    /// int: The most blocks within `kv_cache_bytes`.
    blocks_total: usize,
    /// int: Blocks of texts that are kept to be continued. Those that no request uses are free as well.
    blocks_kept: usize,
    /// int: The bytes of the used blocks.
    bytes_used: usize,
    /// int: The bytes that the cache has grown to so far.
    bytes_allocated: usize,
    /// int: The bytes of all blocks.
    bytes_total: usize,
    /// int: Of the used blocks, those of models that draft.
    draft_blocks_used: usize,
    /// int: Of the allocated bytes, those of models that draft.
    draft_bytes_allocated: usize,
    /// int: The prompt tokens that requests have looked up so far.
    prefix_cache_queries: u64,
    /// int: Of these, the tokens that were computed already.
    prefix_cache_hits: u64,
}

/// The values as they are pickled: blocks and bytes, then tokens.
type Values = ([usize; 10], [u64; 2]);

impl CacheStats {
    pub(super) fn of(engine: &Engine) -> Result<Self> {
        engine.check_process()?;
        let target = engine.pool().clone();
        let pools = std::iter::once(target).chain(engine.draft_pools());
        let counts: Vec<[usize; 7]> = pools
            .map(|pool| {
                let stats = pool.stats();
                let bytes = |blocks: usize| blocks.saturating_mul(pool.capacity().layout().bytes_per_block());
                let [used, reserved, free, total] =
                    [stats.used_blocks, stats.reserved_blocks, stats.available_blocks, stats.max_blocks];
                [used, reserved, free, total, bytes(used), bytes(stats.num_blocks), bytes(total)]
            })
            .collect();
        let prefixes = engine.pool().stats();
        let sum = |field: usize| counts.iter().map(|counts| counts[field]).sum::<usize>();
        let drafts = |field: usize| sum(field) - counts[0][field];
        let [used, reserved, free, total, bytes_used, bytes_allocated, bytes_total] =
            [0, 1, 2, 3, 4, 5, 6].map(sum);
        Ok(Self {
            blocks_used: used,
            blocks_reserved: reserved,
            blocks_free: free,
            blocks_total: total,
            blocks_kept: prefixes.kept_blocks,
            bytes_used,
            bytes_allocated,
            bytes_total,
            draft_blocks_used: drafts(0),
            draft_bytes_allocated: drafts(5),
            prefix_cache_queries: prefixes.prefix_cache_queries,
            prefix_cache_hits: prefixes.prefix_cache_hits,
        })
    }
}

#[pymethods]
impl CacheStats {
    /// Returns the values, for pickle.
    ///
    /// Returns:
    ///     tuple[Any, tuple[Any]]: For pickle.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Restored<'py, Values>> {
        guarded(|| {
            let stats = slf.get();
            let values = [
                stats.blocks_used,
                stats.blocks_reserved,
                stats.blocks_free,
                stats.blocks_total,
                stats.blocks_kept,
                stats.bytes_used,
                stats.bytes_allocated,
                stats.bytes_total,
                stats.draft_blocks_used,
                stats.draft_bytes_allocated,
            ];
            Ok((pickle::restorer(slf)?, ((values, [stats.prefix_cache_queries, stats.prefix_cache_hits]),)))
        })
    }

    #[classmethod]
    fn _restore(_class: &Bound<'_, PyType>, values: Values) -> PyResult<Self> {
        guarded(|| {
            let [
                blocks_used,
                blocks_reserved,
                blocks_free,
                blocks_total,
                blocks_kept,
                bytes_used,
                bytes_allocated,
                bytes_total,
                draft_blocks_used,
                draft_bytes_allocated,
            ] = values.0;
            let [prefix_cache_queries, prefix_cache_hits] = values.1;
            Ok(Self {
                blocks_used,
                blocks_reserved,
                blocks_free,
                blocks_total,
                blocks_kept,
                bytes_used,
                bytes_allocated,
                bytes_total,
                draft_blocks_used,
                draft_bytes_allocated,
                prefix_cache_queries,
                prefix_cache_hits,
            })
        })
    }

    fn __repr__(&self) -> PyResult<String> {
        guarded(|| {
            Ok(format!(
                "CacheStats(blocks_used={}, blocks_reserved={}, blocks_free={}, blocks_total={}, blocks_kept={}, bytes_used={}, \
                 bytes_allocated={}, bytes_total={}, draft_blocks_used={}, draft_bytes_allocated={}, \
                 prefix_cache_queries={}, prefix_cache_hits={})",
                self.blocks_used,
                self.blocks_reserved,
                self.blocks_free,
                self.blocks_total,
                self.blocks_kept,
                self.bytes_used,
                self.bytes_allocated,
                self.bytes_total,
                self.draft_blocks_used,
                self.draft_bytes_allocated,
                self.prefix_cache_queries,
                self.prefix_cache_hits
            ))
        })
    }
}
