//! The rows and the results of one pass, while requests add the former and take the latter.

use crate::cache::BlockCopy;
use crate::generation::search::{RowInput as WantedInput, WantedRow};
use crate::model::{Row, RowInput};
use crate::types::{RowOutputs, SeqId};

/// The rows of one pass while it is put together.
#[derive(Default)]
pub(super) struct PassRows {
    pub(super) rows: Vec<Row>,
    pub(super) copies: Vec<BlockCopy>,
    /// The inputs of rows that are no tokens, `[num_embeddings, hidden_size]`.
    pub(super) embeddings: Vec<f32>,
    /// Whether a row of a prompt is among them.
    pub(super) has_prompt: bool,
    /// The sequences that rows belong to, in the order of their tables: those of one request after the other.
    pub(super) used: Vec<SeqId>,
}

impl PassRows {
    /// Empties the lists, keeping their memory.
    pub(super) fn clear(&mut self) {
        let Self { rows, copies, embeddings, has_prompt, used } = self;
        rows.clear();
        copies.clear();
        embeddings.clear();
        *has_prompt = false;
        used.clear();
    }

    /// Takes the input of a row.
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

/// The results of a pass that no request has taken yet.
pub(super) struct ResultsFront<'a> {
    pub(super) logits: &'a mut [f32],
    pub(super) hidden_states: &'a mut [f32],
    pub(super) layer_logits: &'a mut [f32],
    pub(super) vocab_size: usize,
    pub(super) hidden_size: usize,
}

impl<'a> ResultsFront<'a> {
    /// Takes what these rows asked for.
    pub(super) fn split(&mut self, rows: &[WantedRow]) -> ResultsFront<'a> {
        let count = |size: usize, wanted: fn(RowOutputs) -> usize| {
            size * rows.iter().map(|row| wanted(row.outputs)).sum::<usize>()
        };
        let logits = count(self.vocab_size, |outputs| usize::from(outputs.logits));
        let hidden_states = count(self.hidden_size, |outputs| outputs.hidden_states.len());
        let layer_logits = count(self.vocab_size, |outputs| outputs.layer_logits.len());
        let front = |part: Option<&'a mut [f32]>| part.expect("a pass gives each row what it asks for");
        ResultsFront {
            logits: front(self.logits.split_off_mut(..logits)),
            hidden_states: front(self.hidden_states.split_off_mut(..hidden_states)),
            layer_logits: front(self.layer_logits.split_off_mut(..layer_logits)),
            vocab_size: self.vocab_size,
            hidden_size: self.hidden_size,
        }
    }
}
