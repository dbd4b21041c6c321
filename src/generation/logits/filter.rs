//! What the warpers that remove tokens share: what removed scores become, and how many tokens stay in any case.

use crate::error::{Error, Result};

use super::super::numerics::kth_largest;

/// Two arguments that these warpers have in common.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Filter {
    /// The score of removed tokens.
    pub(super) value: f32,
    /// How many of the best tokens are never removed.
    pub(super) min_tokens_to_keep: usize,
}

impl Filter {
    /// Removed scores become `filter_value`; at least `min_tokens_to_keep` tokens stay.
    pub(super) fn new(filter_value: f64, min_tokens_to_keep: usize) -> Result<Self> {
        if min_tokens_to_keep == 0 {
            return Err(Error::config(
                "`min_tokens_to_keep` must be 1 or more, but is 0; leave it out to keep the best token at least",
            ));
        }
        Ok(Self { value: filter_value as f32, min_tokens_to_keep })
    }

    /// The least of the scores that stay in any case; the scores must hold no NaN.
    pub(super) fn least_kept(&self, scores: &[f32]) -> f32 {
        kth_largest(scores, self.min_tokens_to_keep.min(scores.len()))
    }
}
