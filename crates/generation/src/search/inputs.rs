//! The requests of a search in a step: operations on its sequences, then rows to compute.
//!
//! The operations are applied in order before any row is computed. The cache decides how sequences are
//! stored, shared and copied.

use rsgen_core::{RowOutputs, SeqId, TokenId};

use super::super::prompt::{PromptInputs, RowInput};

/// The model that a sequence belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ModelRole {
    /// The model that generates.
    #[default]
    Target,
    /// The smaller model that proposes tokens, in assisted decoding.
    Draft,
}

/// An operation on sequences.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SequenceOp {
    /// An empty sequence of a model.
    Create {
        /// The number of the sequence, in use for no sequence of either model.
        seq: SeqId,
        /// The model it belongs to.
        model: ModelRole,
        /// The prompt whose source it sees, in a model with an encoder.
        source: Option<usize>,
    },
    /// A new sequence that begins as a copy of another.
    Fork {
        /// The sequence to copy.
        parent: SeqId,
        /// The number of the copy, not in use.
        child: SeqId,
    },
    /// Drops the end of a sequence.
    Truncate {
        /// The sequence.
        seq: SeqId,
        /// The number of tokens to keep, at most its length.
        len: usize,
    },
    /// Releases a sequence; its number is free again.
    Release {
        /// The sequence.
        seq: SeqId,
    },
    /// Several sequences become copies of others at once: `seqs[i]` of the former `parents[i]`.
    Reorder {
        /// The sequences to replace, without duplicates.
        seqs: Vec<SeqId>,
        /// The sequence that each becomes, of the same length.
        parents: Vec<SeqId>,
    },
}

/// A row to compute: it is appended to its sequence.
#[derive(Debug, Clone, PartialEq)]
pub struct WantedRow {
    /// The model that the sequence belongs to.
    pub model: ModelRole,
    /// The sequence.
    pub seq: SeqId,
    /// The input to append.
    pub input: RowInput,
    /// Whether the row is part of a prompt: dynamic RoPE takes the whole prompt's length for each of its
    /// rows.
    pub is_prompt: bool,
    /// The number of layers to compute, for an early exit with the logits of the last of them; all layers if
    /// `None`.
    pub last_layer: Option<usize>,
    /// The requested outputs.
    pub outputs: RowOutputs,
}

/// The requests of a search for one step.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SearchInputs {
    /// Operations, applied in order before the rows.
    pub ops: Vec<SequenceOp>,
    /// Rows to compute, all of one model; those of one sequence are consecutive tokens.
    pub rows: Vec<WantedRow>,
}

impl SearchInputs {
    /// Nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Empties the lists, keeping their memory.
    pub fn clear(&mut self) {
        self.ops.clear();
        self.rows.clear();
    }

    /// Whether nothing is requested.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty() && self.rows.is_empty()
    }

    /// Begins an empty sequence of the target model without a source.
    pub fn create(&mut self, seq: SeqId) {
        self.create_for(ModelRole::Target, seq, None);
    }

    /// Begins an empty sequence of a model; `source` is the prompt whose source it sees.
    pub fn create_for(&mut self, model: ModelRole, seq: SeqId, source: Option<usize>) {
        self.ops.push(SequenceOp::Create { seq, model, source });
    }

    /// Begins `child` as a copy of `parent`.
    pub fn fork(&mut self, parent: SeqId, child: SeqId) {
        self.ops.push(SequenceOp::Fork { parent, child });
    }

    /// Cuts a sequence to its first `len` tokens.
    pub fn truncate(&mut self, seq: SeqId, len: usize) {
        self.ops.push(SequenceOp::Truncate { seq, len });
    }

    /// Releases a sequence.
    pub fn release(&mut self, seq: SeqId) {
        self.ops.push(SequenceOp::Release { seq });
    }

    /// Makes `seqs[i]` a copy of the former `parents[i]`, all at once.
    pub fn reorder(&mut self, seqs: Vec<SeqId>, parents: Vec<SeqId>) {
        self.ops.push(SequenceOp::Reorder { seqs, parents });
    }

    /// Appends a prompt to a sequence of the target model; its last row delivers `outputs_of_last`, the
    /// others `outputs_within`.
    pub fn prompt(
        &mut self,
        seq: SeqId,
        tokens: &[TokenId],
        outputs_within: RowOutputs,
        outputs_of_last: RowOutputs,
    ) {
        self.prompt_inputs(seq, PromptInputs::Tokens(tokens), outputs_within, outputs_of_last);
    }

    /// [`SearchInputs::prompt`], of tokens or embeddings.
    pub fn prompt_inputs(
        &mut self,
        seq: SeqId,
        prompt: PromptInputs<'_>,
        outputs_within: RowOutputs,
        outputs_of_last: RowOutputs,
    ) {
        let last = prompt.len().saturating_sub(1);
        self.rows.extend((0..prompt.len()).map(|index| WantedRow {
            model: ModelRole::Target,
            seq,
            input: prompt.input(index),
            is_prompt: true,
            last_layer: None,
            outputs: if index == last { outputs_of_last } else { outputs_within },
        }));
    }

    /// Appends one new token to a sequence of the target model.
    pub fn token(&mut self, seq: SeqId, token: TokenId, outputs: RowOutputs) {
        self.push(WantedRow {
            model: ModelRole::Target,
            seq,
            input: RowInput::Token(token),
            is_prompt: false,
            last_layer: None,
            outputs,
        });
    }

    /// Appends any row.
    pub fn push(&mut self, row: WantedRow) {
        self.rows.push(row);
    }
}
