//! Which rows of a batch are still being computed, and where their outputs go.
//!
//! Rows leave a pass before its end: those that stop at an early layer, and, in the last layer, those that nothing
//! but a cache entry is wanted of (all but the last row of a prompt). Since no row depends on its company, leaving
//! changes nothing for the others.

use super::batch::{ForwardBatch, Row};
use crate::types::LayerSet;

/// The rows that are being computed: row `i` of the activations is row `active[i]` of the batch.
pub(super) struct ActiveRows<'a> {
    batch: ForwardBatch<'a>,
    active: Vec<usize>,
}

impl<'a> ActiveRows<'a> {
    /// All rows.
    pub(super) fn new(batch: ForwardBatch<'a>) -> Self {
        Self { batch, active: (0..batch.rows.len()).collect() }
    }

    /// The rows, in the order of the activations.
    pub(super) fn iter(&self) -> impl Iterator<Item = &'a Row> {
        let rows = self.batch.rows;
        self.active.iter().map(move |&index| &rows[index])
    }

    /// The row at a place of the activations.
    pub(super) fn row(&self, place: usize) -> &'a Row {
        &self.batch.rows[self.active[place]]
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

    /// Keeps the rows that `keep` says, and moves their entries of each buffer (`[num_rows, width]`) together.
    pub(super) fn retain(&mut self, keep: impl Fn(&Row) -> bool, buffers: &mut [(&mut Vec<f32>, usize)]) {
        let kept: Vec<usize> = (0..self.active.len()).filter(|&place| keep(self.row(place))).collect();
        if kept.len() == self.active.len() {
            return;
        }
        for (buffer, width) in buffers {
            for (to, &from) in kept.iter().enumerate() {
                buffer.copy_within(from * *width..(from + 1) * *width, to * *width);
            }
            buffer.truncate(kept.len() * *width);
        }
        self.active = kept.into_iter().map(|place| self.active[place]).collect();
    }

    /// The rows that want something, as pairs of a place in the activations and an index among all wanted outputs of
    /// that kind.
    pub(super) fn wanting(
        &self,
        wanted: impl Fn(&Row) -> bool + Copy,
        index: &OutputIndex,
    ) -> Vec<(usize, usize)> {
        let places = self.active.iter().enumerate().filter(move |&(_, &row)| wanted(&self.batch.rows[row]));
        places.map(|(place, &row)| (place, index.first[row])).collect()
    }
}

/// Where each row's outputs of one kind begin.
pub(super) struct OutputIndex {
    first: Vec<usize>,
    /// The number of outputs of all rows.
    pub(super) total: usize,
}

impl OutputIndex {
    /// From the number of outputs of each row.
    pub(super) fn new(rows: &[Row], count: impl Fn(&Row) -> usize) -> Self {
        let mut total = 0;
        let first = rows
            .iter()
            .map(|row| {
                total += count(row);
                total - count(row)
            })
            .collect();
        Self { first, total }
    }
}

/// The place of a layer among the wanted ones.
pub(super) fn rank(layers: LayerSet, layer: usize) -> usize {
    layers.iter().take_while(|&other| other < layer).count()
}
