//! Shared by the warpers that remove tokens: the score of removed tokens, and the number of tokens that
//! always stay.

use rsgen_core::{Error, Result, refuse_if};
use rsgen_kernels::torch_reduce::kth_largest;
use rsgen_kernels::{Isa, softmax};

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
        refuse_if(
            min_tokens_to_keep == 0,
            "min_tokens_to_keep",
            || "must be 1 or more, but is 0; leave it out to keep the best token at least",
        )?;
        Ok(Self { value: filter_value as f32, min_tokens_to_keep })
    }

    /// The least of the scores that always stay; the scores must hold no NaN.
    pub(super) fn least_kept(&self, isa: Isa, scores: &[f32]) -> f32 {
        kth_largest(isa, scores, self.min_tokens_to_keep.min(scores.len()))
    }

    /// Removes tokens whose probability is below `limit`; the scores must hold no NaN, and at least one
    /// possible token.
    pub(super) fn remove_improbable(&self, isa: Isa, scores: &mut [f32], limit: f32) {
        let mut probabilities = scores.to_vec();
        softmax(isa, &mut probabilities);
        let kept = self.least_kept(isa, scores);
        for (score, probability) in scores.iter_mut().zip(probabilities) {
            if probability < limit && *score < kept {
                *score = self.value;
            }
        }
    }
}

/// Whether a probability is between 0 and 1. As in transformers, other values have no effect.
pub(super) fn is_cutoff(epsilon: f64) -> bool {
    epsilon > 0.0 && epsilon < 1.0
}

/// The probability that `field` cuts off at.
///
/// # Errors
/// `Config` when it is not between 0 and 1.
pub(super) fn cutoff(field: &str, epsilon: f64) -> Result<f32> {
    if is_cutoff(epsilon) {
        return Ok(epsilon as f32);
    }
    Err(Error::config(format!(
        "must be a number above 0 and below 1, but is {epsilon:?}; leave it out to keep all tokens"
    ))
    .about(field))
}
