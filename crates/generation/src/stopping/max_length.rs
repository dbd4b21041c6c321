//! Limits of length: the caller's, as in transformers' `MaxLengthCriteria`, and the model's context.

use std::sync::Arc;

use rsgen_core::{FinishReason, Result};

use super::super::resolved::ResolvedConfig;
use super::{Built, StopContext, StoppingCriterion};

/// Stops a row when it has `max_length` ids, padding included.
#[derive(Debug, Clone)]
pub struct MaxLengthCriteria {
    max_length: usize,
}

impl MaxLengthCriteria {
    /// The name of the criterion, in transformers too.
    pub const NAME: &str = "MaxLengthCriteria";

    /// Stops at `max_length` ids.
    pub fn new(max_length: usize) -> Self {
        Self { max_length }
    }

    #[expect(clippy::unnecessary_wraps, reason = "the signature of every criterion's constructor")]
    pub(super) fn build(config: &ResolvedConfig) -> Built {
        Ok(Some(Arc::new(Self::new(config.max_length))))
    }
}

impl StoppingCriterion for MaxLengthCriteria {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn should_stop(&self, row: &StopContext<'_>) -> Result<Option<FinishReason>> {
        Ok((row.input_ids.len() >= self.max_length).then_some(FinishReason::Length))
    }
}

/// Stops a row when the model's context is full. Padding does not count.
#[derive(Debug, Clone)]
pub struct ContextLimit {
    /// The number of tokens that fit after each prompt.
    room: Vec<usize>,
}

impl ContextLimit {
    /// Stops rows of prompt `i` after `room[i]` new tokens.
    pub fn new(room: Vec<usize>) -> Self {
        Self { room }
    }
}

impl StoppingCriterion for ContextLimit {
    fn should_stop(&self, row: &StopContext<'_>) -> Result<Option<FinishReason>> {
        let room = self.room.get(row.prompt_index).copied().unwrap_or(0);
        Ok((row.new_tokens().len() >= room).then_some(FinishReason::Length))
    }
}
