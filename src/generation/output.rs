//! What a finished search leaves: the tokens of each row, why it ended, and what was asked to be kept.

use serde::{Deserialize, Serialize};

use crate::types::{FinishReason, TokenId};

/// The result of a search.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct SearchOutput {
    /// One entry per row: the rows of each prompt one after the other.
    pub rows: Vec<OutputRow>,
    /// What fills rows up to equal length; `None` when neither `pad_token_id` nor `eos_token_id` is set.
    pub pad_token_id: Option<TokenId>,
    /// The seed that the random draws came from; `None` when nothing was drawn.
    pub seed: Option<u64>,
}

/// One row of a result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OutputRow {
    /// The prompt that the row continues.
    pub prompt_index: usize,
    /// The generated tokens, an end-of-sequence token included, padding left out.
    pub token_ids: Vec<TokenId>,
    /// Why the row ended; `Cancelled` when the search was given up before.
    pub finish_reason: FinishReason,
    /// For each token its log-probability under the model's own logits.
    pub logprobs: Vec<f32>,
    /// For each token the processed scores it was chosen from, `[vocab_size]`, with `output_scores`.
    pub scores: Option<Vec<Vec<f32>>>,
    /// For each token the model's own logits, `[vocab_size]`, with `output_logits`.
    pub logits: Option<Vec<Vec<f32>>>,
}
