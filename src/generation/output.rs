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
    /// What was kept of each lane: the rows that were computed in each step. Without beams they are the rows of the
    /// result; with them, the beams of each prompt one after the other.
    pub lanes: Vec<LaneScores>,
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
    /// With beams, the sum of the processed log-probabilities, divided by a power of the length: transformers'
    /// `sequences_scores`.
    pub score: Option<f32>,
    /// With beams, the lane that each token was generated in; empty otherwise.
    pub beam_indices: Vec<u32>,
}

/// What was kept of a lane, step by step, `[vocab_size]` each. A lane that ends before the others has fewer steps.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LaneScores {
    /// The processed scores that tokens were chosen from, with `output_scores`.
    pub scores: Option<Vec<Vec<f32>>>,
    /// The model's own logits, with `output_logits`.
    pub logits: Option<Vec<Vec<f32>>>,
}

impl LaneScores {
    /// For a lane of which scores or logits are to be kept, or neither.
    pub(super) fn new(scores: bool, logits: bool) -> Self {
        Self { scores: scores.then(Vec::new), logits: logits.then(Vec::new) }
    }

    pub(super) fn keep_scores(&mut self, scores: &[f32]) {
        if let Some(kept) = &mut self.scores {
            kept.push(scores.to_vec());
        }
    }

    pub(super) fn keep_logits(&mut self, logits: &[f32]) {
        if let Some(kept) = &mut self.logits {
            kept.push(logits.to_vec());
        }
    }
}
