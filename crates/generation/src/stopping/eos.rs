//! The end-of-sequence token, as in transformers' `EosTokenCriteria`.

use std::sync::Arc;

use rsgen_core::{FinishReason, Result, TokenId};

use super::super::resolved::ResolvedConfig;
use super::{Built, StopContext, StoppingCriterion};

/// Stops a row when its newest token is one of these.
#[derive(Debug, Clone)]
pub struct EosTokenCriteria {
    eos_token_ids: Vec<TokenId>,
}

impl EosTokenCriteria {
    /// Stops on any of `eos_token_ids`.
    pub fn new(eos_token_ids: Vec<TokenId>) -> Self {
        Self { eos_token_ids }
    }

    #[expect(clippy::unnecessary_wraps, reason = "the signature of every criterion's constructor")]
    pub(super) fn build(config: &ResolvedConfig) -> Built {
        let ids = &config.eos_token_ids;
        Ok(if ids.is_empty() { None } else { Some(Arc::new(Self::new(ids.clone()))) })
    }
}

impl StoppingCriterion for EosTokenCriteria {
    fn should_stop(&self, row: &StopContext<'_>) -> Result<Option<FinishReason>> {
        let ended = row.input_ids.last().is_some_and(|last| self.eos_token_ids.contains(last));
        Ok(ended.then_some(FinishReason::Eos))
    }
}
