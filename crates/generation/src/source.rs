//! The source of an encoder-decoder model: what its encoder reads, beside the decoder's prompt.

use rsgen_core::{Result, TokenId};

use super::embeddings::Embeddings;
use super::prompt::{PromptRow, RowInput};

/// A source, at least one token or embedding long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The ids, padding included, as processors see them; may be none beside embeddings.
    input_ids: Vec<TokenId>,
    /// The places of the inputs in the padded row, ascending.
    slots: Vec<usize>,
    /// The inputs in place of tokens, padding left out.
    embeddings: Option<Embeddings>,
}

impl Source {
    /// The source of a padded row.
    ///
    /// # Errors
    /// `Capacity` when there is no memory for its embeddings.
    pub fn new(row: &PromptRow) -> Result<Self> {
        let slots = (0..row.mask.len()).filter(|&slot| row.mask[slot]).collect();
        let embeddings = row.embeddings.as_ref().map(|all| all.unmasked(&row.mask)).transpose()?;
        Ok(Self { input_ids: row.input_ids.clone(), slots, embeddings })
    }

    /// The ids, padding included.
    pub fn input_ids(&self) -> &[TokenId] {
        &self.input_ids
    }

    /// The number of inputs of the encoder: padding left out.
    #[expect(clippy::len_without_is_empty, reason = "sources are not empty")]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// The place of an input in the padded row.
    ///
    /// # Panics
    /// When there is no such input.
    pub fn slot(&self, index: usize) -> usize {
        self.slots[index]
    }

    /// An input of the encoder.
    ///
    /// # Panics
    /// When there is no such input.
    pub fn input(&self, index: usize) -> RowInput {
        match &self.embeddings {
            Some(embeddings) => RowInput::Embedding(embeddings.row(index)),
            None => RowInput::Token(self.input_ids[self.slots[index]]),
        }
    }

    /// Whether embeddings take the place of its tokens.
    pub fn has_embeddings(&self) -> bool {
        self.embeddings.is_some()
    }

    /// The slots and ids of its inputs, which determine what the encoder makes of them; `None` of embeddings.
    pub fn key(&self) -> Option<Vec<(usize, TokenId)>> {
        let entry = |&slot: &usize| (slot, self.input_ids[slot]);
        self.embeddings.is_none().then(|| self.slots.iter().map(entry).collect())
    }
}
