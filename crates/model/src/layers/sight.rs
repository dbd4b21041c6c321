//! The cache of a layer as the rows of a pass see it.

use super::RotaryTables;
use crate::batch::Row;
use crate::cache::{BlockTable, KvStore, KvView, TypedKv};
use crate::rows::ActiveRows;
use rsgen_kernels::tensor::ComputeDtype;
use rsgen_kernels::{KvBlocks, KvStep, LayerBlocks, Places};

/// A layer in a pass.
#[derive(Clone, Copy)]
pub(crate) struct LayerPass<'a> {
    /// Which one it is, of how many.
    pub(crate) layer: usize,
    pub(crate) num_layers: usize,
    /// Its part of the cache.
    pub(crate) cached: usize,
    pub(crate) sight: Sight<'a>,
    pub(crate) rotary: &'a RotaryTables,
}

/// What rows attend to.
#[derive(Clone, Copy)]
pub(crate) enum Sight<'a> {
    /// The tokens of their sequence up to their own.
    Past,
    /// All tokens of their sequence.
    Whole(&'a Slots),
    /// All tokens of the encoded source.
    Source,
}

/// The slots of encoded rows: a source's tokens that no mask hides need not be adjacent.
#[derive(Default)]
pub(crate) struct Slots {
    /// By row of the batch.
    rows: Vec<usize>,
    /// Where the rows of each source begin, and whether their slots are adjacent.
    sources: Vec<(usize, bool)>,
}

impl Slots {
    /// Those of rows, as pairs of a source and a slot; the rows of a source are adjacent.
    pub(crate) fn new(rows: impl Iterator<Item = (usize, usize)>) -> Self {
        let mut slots = Self::default();
        for (index, (source, slot)) in rows.enumerate() {
            if source == slots.sources.len() {
                slots.sources.push((index, true));
            } else if let Some((_, is_adjacent)) = slots.sources.last_mut() {
                *is_adjacent &= slots.rows[index - 1] + 1 == slot;
            }
            slots.rows.push(slot);
        }
        slots
    }

    /// By row of the batch.
    pub(crate) fn rows(&self) -> &[usize] {
        &self.rows
    }

    /// The places of the `count` tokens of a row's source.
    fn of(&self, row: &Row, count: usize) -> Places<'_> {
        let (first, is_adjacent) = self.sources[row.table];
        if is_adjacent {
            return Places { row: row.position, tokens: None };
        }
        Places { row: self.rows[first + row.position], tokens: Some(&self.rows[first..first + count]) }
    }
}

impl LayerPass<'_> {
    /// The tokens that a row of the batch sees.
    pub(crate) fn context_len(&self, rows: &ActiveRows<'_>, row: &Row) -> usize {
        self.sight.context_len(rows, row)
    }

    /// Calls a function with the cache of the layer as the rows see it.
    pub(crate) fn with_blocks(
        &self,
        rows: &ActiveRows<'_>,
        kv: &KvStore,
        compute: ComputeDtype,
        function: impl FnOnce(LayerBlocks<'_>),
    ) {
        let sight = self.sight;
        match kv.blocks(self.cached) {
            KvView::F32(view) => function(LayerBlocks::F32(&RowBlocks { rows, view, sight })),
            KvView::I8(view) => function(LayerBlocks::I8(&RowBlocks { rows, view, sight })),
            KvView::Bf16(view) => function(LayerBlocks::Bf16(&RowBlocks { rows, view, sight }, compute)),
        }
    }
}

impl Sight<'_> {
    fn context_len(self, rows: &ActiveRows<'_>, row: &Row) -> usize {
        match self {
            Self::Past => row.position + 1,
            Self::Whole(_) | Self::Source => self.table(rows, row).len(),
        }
    }

    /// The table of a row.
    pub(crate) fn table<'a>(self, rows: &ActiveRows<'a>, row: &Row) -> &'a BlockTable {
        let batch = rows.batch();
        match self {
            Self::Past | Self::Whole(_) => batch.tables[row.table],
            Self::Source => batch.sources[row.source],
        }
    }
}

/// The cache of one layer as the rows see it.
struct RowBlocks<'a, T> {
    rows: &'a ActiveRows<'a>,
    view: TypedKv<'a, T>,
    sight: Sight<'a>,
}

impl<T> RowBlocks<'_, T> {
    fn table(&self, row: usize) -> &BlockTable {
        self.sight.table(self.rows, self.rows.row(row))
    }
}

impl<T: KvStep> KvBlocks<T> for RowBlocks<'_, T> {
    fn context_len(&self, row: usize) -> usize {
        self.sight.context_len(self.rows, self.rows.row(row))
    }

    fn places(&self, row: usize) -> Places<'_> {
        let context_len = self.context_len(row);
        match self.sight {
            Sight::Whole(slots) => slots.of(self.rows.row(row), context_len),
            Sight::Past | Sight::Source => Places { row: context_len - 1, tokens: None },
        }
    }

    fn shared_blocks(&self, row: usize, other: usize) -> usize {
        let [table, other] = [row, other].map(|row| self.table(row));
        if std::ptr::eq(table, other) {
            // The rows of a prompt find keys in the processor's cache, which those before them have read. Not the few
            // that read a source.
            let is_source = matches!(self.sight, Sight::Source);
            return if is_source { table.blocks().len() } else { usize::MAX };
        }
        let pairs = table.blocks().iter().zip(other.blocks());
        pairs.take_while(|(block, other)| block == other).count()
    }

    fn keys(&self, row: usize, block: usize, kv_head: usize) -> &[T] {
        self.view.keys(self.table(row).blocks()[block], kv_head)
    }

    fn values(&self, row: usize, block: usize, kv_head: usize) -> &[T] {
        self.view.values(self.table(row).blocks()[block], kv_head)
    }
}
