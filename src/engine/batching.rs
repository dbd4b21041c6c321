//! The batch of one pass: requests add their rows to it, and later read their results.

use crate::cache::{BlockCopy, BlockTable};
use crate::generation::search::{RowInput as WantedInput, WantedRow};
use crate::model::{Row, RowInput};
use crate::types::RowOutputs;

/// Collects the rows of one pass.
#[derive(Default)]
pub(super) struct BatchBuilder {
    pub(super) rows: Vec<Row>,
    pub(super) copies: Vec<BlockCopy>,
    /// The inputs of rows that are given as embeddings, `[num_embeddings, hidden_size]`.
    pub(super) embeddings: Vec<f32>,
    /// Whether one of the rows belongs to a prompt.
    pub(super) has_prompt: bool,
    /// The tables of the rows' sequences, as they are for this pass. The first `num_tables` are in use.
    tables: Vec<BlockTable>,
    num_tables: usize,
}

impl BatchBuilder {
    /// Empties the lists and keeps their memory.
    pub(super) fn clear(&mut self) {
        let Self { rows, copies, embeddings, has_prompt, num_tables, .. } = self;
        rows.clear();
        copies.clear();
        embeddings.clear();
        *has_prompt = false;
        *num_tables = 0;
    }

    /// Adds the table of a sequence.
    pub(super) fn push_table(&mut self, table: &BlockTable) {
        if self.num_tables == self.tables.len() {
            self.tables.push(BlockTable::default());
        }
        self.tables[self.num_tables].clone_from_sequence(table);
        self.num_tables += 1;
    }

    /// The tables of the rows' sequences.
    pub(super) fn tables(&self) -> &[BlockTable] {
        &self.tables[..self.num_tables]
    }

    /// Adds the input of a row.
    pub(super) fn input(&mut self, wanted: &WantedInput) -> RowInput {
        match wanted {
            WantedInput::Token(token) => RowInput::Token(*token),
            WantedInput::Embedding(embedding) => {
                let index = self.embeddings.len() / embedding.len().max(1);
                self.embeddings.extend_from_slice(embedding);
                RowInput::Embedding(index)
            }
        }
    }
}

/// The results of a pass that no request has read yet, in the order of the rows.
pub(super) struct OutputCursor<'a> {
    pub(super) logits: &'a mut [f32],
    pub(super) hidden_states: &'a mut [f32],
    pub(super) layer_logits: &'a mut [f32],
    pub(super) vocab_size: usize,
    pub(super) hidden_size: usize,
}

impl<'a> OutputCursor<'a> {
    /// Reads the results of the next rows.
    pub(super) fn next(&mut self, rows: &[WantedRow]) -> OutputCursor<'a> {
        let count = |size: usize, wanted: fn(RowOutputs) -> usize| {
            size * rows.iter().map(|row| wanted(row.outputs)).sum::<usize>()
        };
        let logits = count(self.vocab_size, |outputs| usize::from(outputs.logits));
        let hidden_states = count(self.hidden_size, |outputs| outputs.hidden_states.len());
        let layer_logits = count(self.vocab_size, |outputs| outputs.layer_logits.len());
        let results =
            |part: Option<&'a mut [f32]>| part.expect("a pass computes all outputs that its rows request");
        OutputCursor {
            logits: results(self.logits.split_off_mut(..logits)),
            hidden_states: results(self.hidden_states.split_off_mut(..hidden_states)),
            layer_logits: results(self.layer_logits.split_off_mut(..layer_logits)),
            vocab_size: self.vocab_size,
            hidden_size: self.hidden_size,
        }
    }
}
