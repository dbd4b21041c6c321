//! What a forward pass takes and gives.

use crate::cache::BlockTable;
use crate::types::{RowOutputs, TokenId};

/// The rows of one forward pass, of any number of sequences.
///
/// The rows of one sequence stand in the order of their positions, and its table already has their slots.
#[derive(Clone, Copy)]
pub struct ForwardBatch<'a> {
    /// What is to be computed.
    pub rows: &'a [Row],
    /// The cached sequences that the rows belong to.
    pub tables: &'a [&'a BlockTable],
    /// The inputs of rows that are no tokens, `[num_embeddings, hidden_size]`.
    pub embeddings: &'a [f32],
}

/// One new position of one sequence.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Row {
    /// What stands there.
    pub input: RowInput,
    /// The index of the sequence's table in the batch.
    pub table: usize,
    /// The position in the sequence, from 0: also the slot in its cache.
    pub position: usize,
    /// The length that decides the frequencies of a rotary embedding that depends on it: the whole prompt's for its rows,
    /// `position + 1` for a new token, however prompts are cut into chunks.
    pub rope_len: usize,
    /// The number of layers after which the row ends early; all of them if `None`. Its logits come from there.
    pub last_layer: Option<usize>,
    /// What is wanted of the row besides its cache entry.
    pub outputs: RowOutputs,
}

/// The input of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowInput {
    /// A token of the vocabulary.
    Token(TokenId),
    /// An entry of [`ForwardBatch::embeddings`].
    Embedding(usize),
}

/// What the rows asked for, in the order of the rows. Reusable.
#[derive(Debug, Default)]
pub struct ForwardOutput {
    /// `[rows that want logits, vocab_size]`
    pub logits: Vec<f32>,
    /// `[rows × their wanted layers, ascending, hidden_size]`
    pub hidden_states: Vec<f32>,
    /// `[rows × their wanted layers, ascending, vocab_size]`
    pub layer_logits: Vec<f32>,
}
