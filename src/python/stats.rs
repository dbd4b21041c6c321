//! The class `CacheStats`: how full the KV cache is.

use pyo3::prelude::*;
use pyo3::types::PyType;

use super::errors::guarded;
use super::pickle::{self, Restored};
use crate::engine::Engine;
use crate::error::Result;

/// How full the KV cache of a generator is at one moment.
///
/// A block holds 32 tokens of one sequence.
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
    /// int: The bytes of the used blocks.
    bytes_used: usize,
    /// int: The bytes that the cache has grown to so far.
    bytes_allocated: usize,
    /// int: The bytes of all blocks.
    bytes_total: usize,
}

impl CacheStats {
    pub(super) fn of(engine: &Engine) -> Result<Self> {
        engine.check_process()?;
        let stats = engine.pool().stats();
        let bytes =
            |blocks: usize| blocks.saturating_mul(engine.pool().capacity().layout().bytes_per_block());
        Ok(Self {
            blocks_used: stats.used_blocks,
            blocks_reserved: stats.reserved_blocks,
            blocks_free: stats.available_blocks,
            blocks_total: stats.max_blocks,
            bytes_used: bytes(stats.used_blocks),
            bytes_allocated: bytes(stats.num_blocks),
            bytes_total: bytes(stats.max_blocks),
        })
    }
}

#[pymethods]
impl CacheStats {
    /// Returns the values, for pickle.
    ///
    /// Returns:
    ///     tuple[Any, tuple[Any]]: For pickle.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Restored<'py, [usize; 7]>> {
        guarded(|| {
            let stats = slf.get();
            let values = [
                stats.blocks_used,
                stats.blocks_reserved,
                stats.blocks_free,
                stats.blocks_total,
                stats.bytes_used,
                stats.bytes_allocated,
                stats.bytes_total,
            ];
            Ok((pickle::restorer(slf)?, (values,)))
        })
    }

    #[classmethod]
    fn _restore(_class: &Bound<'_, PyType>, values: [usize; 7]) -> PyResult<Self> {
        guarded(|| {
            let [
                blocks_used,
                blocks_reserved,
                blocks_free,
                blocks_total,
                bytes_used,
                bytes_allocated,
                bytes_total,
            ] = values;
            Ok(Self {
                blocks_used,
                blocks_reserved,
                blocks_free,
                blocks_total,
                bytes_used,
                bytes_allocated,
                bytes_total,
            })
        })
    }

    fn __repr__(&self) -> PyResult<String> {
        guarded(|| {
            Ok(format!(
                "CacheStats(blocks_used={}, blocks_reserved={}, blocks_free={}, blocks_total={}, bytes_used={}, \
                 bytes_allocated={}, bytes_total={})",
                self.blocks_used,
                self.blocks_reserved,
                self.blocks_free,
                self.blocks_total,
                self.bytes_used,
                self.bytes_allocated,
                self.bytes_total
            ))
        })
    }
}
