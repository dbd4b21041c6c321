//! The inputs and outputs of a forward pass.

use crate::cache::BlockTable;
use crate::layers::WeightedAdapters;
use rsgen_core::types::{RowOutputs, TokenId};

/// The rows of one forward pass, of any number of sequences.
///
/// The rows of a sequence are in the order of their positions, and its table already has slots for them.
#[derive(Clone, Copy)]
pub struct ForwardBatch<'a> {
    /// The rows to compute.
    pub rows: &'a [Row],
    /// The cached sequences that the rows belong to.
    pub tables: &'a [&'a BlockTable],
    /// The encoded sources that rows attend to, as [`Encoder::encode`](crate::Encoder::encode) left them; empty for
    /// models without an encoder.
    pub sources: &'a [&'a BlockTable],
    /// The inputs of rows that are given as embeddings, `[num_embeddings, embedding_size]`.
    pub embeddings: &'a [f32],
    /// The adapters of its rows.
    pub adapters: &'a [WeightedAdapters],
}

/// One new position of one sequence.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Row {
    /// The token or embedding.
    pub input: RowInput,
    /// The index of the sequence's table in the batch.
    pub table: usize,
    /// The index of its source in [`ForwardBatch::sources`]; 0 for models without an encoder.
    pub source: usize,
    /// The position in the sequence, from 0: also the slot in its cache.
    pub position: usize,
    /// The sequence length that dynamic RoPE and longrope compute their frequencies for: the length of the
    /// whole prompt for its rows, `position + 1` for a new token. It does not depend on how a prompt is cut
    /// into chunks.
    pub rope_seq_len: usize,
    /// The index of its adapters in [`ForwardBatch::adapters`]; `None` for the model alone.
    pub adapters: Option<usize>,
    /// The number of layers to compute; all if `None`. The logits are those after the last one.
    pub last_layer: Option<usize>,
    /// The requested outputs. Each row also writes its keys and values to the cache.
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

/// Whole sources of a model with an encoder.
///
/// The rows of a source are adjacent and in the order of their slots. Its table has as many entries as it has rows.
#[derive(Clone, Copy)]
pub struct EncodeBatch<'a> {
    /// The tokens to encode: those that no mask hides.
    pub rows: &'a [SourceRow],
    /// A table for each source, which its keys and values are written to.
    pub tables: &'a [&'a BlockTable],
    /// The inputs of rows that are given as embeddings, `[num_embeddings, hidden_size]`.
    pub embeddings: &'a [f32],
}

/// One token of a source.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SourceRow {
    /// The token or embedding.
    pub input: RowInput,
    /// Its place among the tokens of the source, hidden ones included, as [`Encoder::slots`](crate::Encoder::slots)
    /// counts them.
    pub slot: usize,
    /// The index of the source in the batch.
    pub source: usize,
    /// The requested outputs: hidden states and attentions.
    pub outputs: RowOutputs,
}

/// The requested outputs of an encoder, in the order of the rows. Its memory is reused.
#[derive(Debug, Default)]
pub struct EncodeOutput {
    /// `[rows × their requested layers, ascending, hidden_size]`; the last one is what the decoder attends to.
    pub hidden_states: Vec<f32>,
    /// `[rows that request them][num_layers of the encoder, its num_heads, rows of the source]`
    pub attentions: Vec<f32>,
}

/// The requested outputs, in the order of the rows. Its memory is reused.
#[derive(Debug, Default)]
pub struct ForwardOutput {
    /// `[rows that request logits, vocab_size]`
    pub logits: Vec<f32>,
    /// `[rows × their requested layers, ascending, hidden_size]`; after the last layer each has
    /// [`last_size`](crate::CausalLm::last_size) numbers.
    pub hidden_states: Vec<f32>,
    /// `[rows × their requested layers, ascending, vocab_size]`
    pub layer_logits: Vec<f32>,
    /// `[rows that request them][num_layers, num_heads, position + 1]`
    pub attentions: Vec<f32>,
    /// Of models with an encoder, `[rows that request attentions][num_layers, num_heads, rows of the source]`.
    pub cross_attentions: Vec<f32>,
}

impl ForwardOutput {
    /// Empties it, keeping its memory.
    pub fn clear(&mut self) {
        let Self { logits, hidden_states, layer_logits, attentions, cross_attentions } = self;
        [logits, hidden_states, layer_logits, attentions, cross_attentions].into_iter().for_each(Vec::clear);
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        let Self { logits, hidden_states, layer_logits, attentions, cross_attentions } = self;
        [logits, hidden_states, layer_logits, attentions, cross_attentions].iter().all(|list| list.is_empty())
    }
}
