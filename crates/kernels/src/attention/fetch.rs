//! What to prefetch, so that memory is never idle: while a thread reads the keys of a span it fetches the
//! span's values, and while it reads values the keys of a later span, or of the next tile.

use std::ops::Range;

use super::BLOCK;
use super::tile::TileHead;
use crate::matmul::KvStep;
use crate::simd::Simd;

/// Keys that a thread reads one after the other.
#[derive(Clone, Copy, Default)]
pub(super) struct KeyRange {
    pub(super) row: usize,
    pub(super) kv_head: usize,
    /// The tokens; the first one begins a block.
    pub(super) start: usize,
    pub(super) end: usize,
}

impl KeyRange {
    /// All that a tile reads.
    #[inline(always)]
    pub(super) fn of<T: KvStep>(head: TileHead<'_, T>) -> Self {
        let TileHead { shape, blocks, tile, kv_head, .. } = head;
        let row = tile.rows.end - 1;
        let end = blocks.context_len(row);
        Self { row, kv_head, start: shape.first_visible(end) / BLOCK * BLOCK, end }
    }
}

/// What to prefetch beside each step: a step that is next, and one that is needed later.
#[derive(Clone, Copy)]
pub(super) struct Fetch<'a, T> {
    pub(super) near: &'a [T],
    pub(super) far: &'a [T],
}

impl<T> Fetch<'_, T> {
    /// Prefetches for some steps.
    #[inline(always)]
    pub(super) fn beside<S: Simd>(&self, s: S, steps: Range<usize>) {
        if self.near.is_empty() && self.far.is_empty() {
            return;
        }
        for step in steps {
            if let Some(near) = self.near.get(step) {
                for line in (0..size_of::<T>()).step_by(64) {
                    s.prefetch(near, line);
                }
            }
            if let Some(far) = self.far.get(step) {
                for line in (0..size_of::<T>()).step_by(64) {
                    s.prefetch_far(far, line);
                }
            }
        }
    }
}
