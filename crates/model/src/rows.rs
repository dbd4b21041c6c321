//! The rows of a batch that are still computed, and the indices of their outputs.
//!
//! Rows can leave a pass early: those that end at an early layer and, in the last layer, those that only fill
//! the cache (all but the last row of a prompt). No row depends on its neighbours, so this changes nothing
//! for the others.

use super::batch::{ForwardBatch, Row};
use rsgen_core::types::LayerSet;

/// The active rows: row `i` of the activations is row `active[i]` of the batch.
pub(super) struct ActiveRows<'a> {
    batch: ForwardBatch<'a>,
    active: Vec<usize>,
}

impl<'a> ActiveRows<'a> {
    /// All rows. `memory` comes from [`ActiveRows::into_memory`].
    pub(super) fn new(batch: ForwardBatch<'a>, mut memory: Vec<usize>) -> Self {
        memory.clear();
        memory.extend(0..batch.rows.len());
        Self { batch, active: memory }
    }

    /// Returns the memory for the next pass.
    pub(super) fn into_memory(self) -> Vec<usize> {
        self.active
    }

    /// The rows, in the order of the activations.
    pub(super) fn iter(&self) -> impl Iterator<Item = &'a Row> {
        let rows = self.batch.rows;
        self.active.iter().map(move |&index| &rows[index])
    }

    /// Row `active` of the activations.
    pub(super) fn row(&self, active: usize) -> &'a Row {
        &self.batch.rows[self.active[active]]
    }

    pub(super) fn len(&self) -> usize {
        self.active.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.active.is_empty()
    }

    pub(super) fn batch(&self) -> ForwardBatch<'a> {
        self.batch
    }

    /// Keeps the rows for which `keep` returns true, and compacts each buffer (`[num_rows, width]`).
    pub(super) fn retain(&mut self, keep: impl Fn(&Row) -> bool, buffers: &mut [(&mut Vec<f32>, usize)]) {
        let mut kept = 0;
        for place in 0..self.active.len() {
            if !keep(self.row(place)) {
                continue;
            }
            if kept < place {
                self.active[kept] = self.active[place];
                for (buffer, width) in &mut *buffers {
                    buffer.copy_within(place * *width..(place + 1) * *width, kept * *width);
                }
            }
            kept += 1;
        }
        self.active.truncate(kept);
        for (buffer, width) in buffers {
            buffer.truncate(kept * *width);
        }
    }

    /// The rows for which `requests` returns true, as pairs of an active row and the index of its first
    /// output among those of all rows. `count` returns the number of such outputs of a row.
    pub(super) fn requesting(
        &self,
        requests: impl Fn(&Row) -> bool + Copy,
        count: impl Fn(&Row) -> usize + Copy,
    ) -> impl Iterator<Item = (usize, usize)> + Clone {
        let rows = self.batch.rows;
        let found = self.active.iter().enumerate().filter(move |&(_, &index)| requests(&rows[index]));
        found.scan((0, 0), move |(next, first), (active, &index)| {
            *first += rows[*next..index].iter().map(count).sum::<usize>();
            *next = index;
            Some((active, *first))
        })
    }
}

/// The index of a layer among the requested ones.
pub(super) fn rank(layers: LayerSet, layer: usize) -> usize {
    layers.iter().take_while(|&other| other < layer).count()
}
