//! A least number of new tokens, as in transformers' `MinNewTokensLengthLogitsProcessor`.

use std::sync::Arc;

use crate::error::Result;
use crate::types::TokenId;

use super::{Built, LogitsProcessor, ProcessorSettings, RowContext};

/// Removes the end-of-sequence tokens until `min_new_tokens` follow the prompt.
#[derive(Debug, Clone)]
pub struct MinNewTokensLengthLogitsProcessor {
    prompt_len: usize,
    min_new_tokens: usize,
    eos_token_ids: Vec<TokenId>,
}

impl MinNewTokensLengthLogitsProcessor {
    /// No token of `eos_token_ids` within the first `min_new_tokens` after a prompt of `prompt_len` ids,
    /// padding included.
    pub fn new(prompt_len: usize, min_new_tokens: usize, eos_token_ids: Vec<TokenId>) -> Self {
        Self { prompt_len, min_new_tokens, eos_token_ids }
    }

    #[expect(clippy::unnecessary_wraps, reason = "the signature of every processor's constructor")]
    pub(super) fn build(settings: &ProcessorSettings<'_>) -> Built {
        match settings.config.min_new_tokens {
            None | Some(0) => Ok(None),
            Some(_) if settings.eos_token_ids.is_empty() => Ok(None),
            Some(min_new_tokens) => Ok(Some(Arc::new(Self::new(
                settings.prompt_len,
                min_new_tokens,
                settings.eos_token_ids.to_vec(),
            )))),
        }
    }
}

impl LogitsProcessor for MinNewTokensLengthLogitsProcessor {
    fn name(&self) -> &'static str {
        "MinNewTokensLengthLogitsProcessor"
    }

    fn process_row(&self, scores: &mut [f32], row: &mut RowContext<'_>) -> Result<()> {
        if row.input_ids.len().saturating_sub(self.prompt_len) < self.min_new_tokens {
            super::remove(scores, &self.eos_token_ids);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{SECOND, kept, process};
    use super::*;

    #[test]
    fn the_end_is_removed_until_enough_tokens_are_new() {
        let processor = MinNewTokensLengthLogitsProcessor::new(2, 1, vec![TokenId(0)]);
        assert_eq!(kept(&process(&processor, &[1, 1], &SECOND)), [1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(kept(&process(&processor, &[1, 1, 5], &SECOND)), [0, 1, 2, 3, 4, 5, 6, 7]);
    }
}
