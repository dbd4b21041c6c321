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
    /// All rows. `memory` is what [`ActiveRows::into_memory`] gave before.
    pub(super) fn new(batch: ForwardBatch<'a>, mut memory: Vec<usize>) -> Self {
        memory.clear();
        memory.extend(0..batch.rows.len());
        Self { batch, active: memory }
    }

    /// Its memory, for the next pass.
    pub(super) fn into_memory(self) -> Vec<usize> {
        self.active
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

    /// The rows that want something, as pairs of a place in the activations and the index of the row's first output
    /// among those of all rows. `count` is how many outputs of that kind a row has.
    pub(super) fn wanting(
        &self,
        wanted: impl Fn(&Row) -> bool + Copy,
        count: fn(&Row) -> usize,
    ) -> impl Iterator<Item = (usize, usize)> + Clone {
        let rows = self.batch.rows;
        let places = self.active.iter().enumerate().filter(move |&(_, &index)| wanted(&rows[index]));
        places.scan((0, 0), move |(next, first), (place, &index)| {
            *first += rows[*next..index].iter().map(count).sum::<usize>();
            *next = index;
            Some((place, *first))
        })
    }
}

/// The place of a layer among the wanted ones.
pub(super) fn rank(layers: LayerSet, layer: usize) -> usize {
    layers.iter().take_while(|&other| other < layer).count()
}
