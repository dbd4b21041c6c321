//! A least number of new tokens, as in transformers' `MinNewTokensLengthLogitsProcessor`.

use rsgen_core::{Result, TokenId};

use super::super::config::OneOrMany;
use super::super::resolved::ResolvedConfig;
use super::{BuiltIn, LogitsProcessor, RowContext};

/// Removes the end-of-sequence tokens until `min_new_tokens` follow the prompt.
#[derive(Debug, Clone)]
pub struct MinNewTokensLengthLogitsProcessor {
    prompt_len: usize,
    min_new_tokens: usize,
    eos_token_ids: Vec<TokenId>,
}

impl MinNewTokensLengthLogitsProcessor {
    /// No token of `eos_token_id` within the first `min_new_tokens` after a prompt of `prompt_length_to_skip`
    /// ids, padding included.
    pub fn new(
        prompt_length_to_skip: usize,
        min_new_tokens: usize,
        eos_token_id: impl Into<OneOrMany<TokenId>>,
    ) -> Self {
        let eos_token_ids = eos_token_id.into().as_slice().to_vec();
        Self { prompt_len: prompt_length_to_skip, min_new_tokens, eos_token_ids }
    }
}

impl BuiltIn for MinNewTokensLengthLogitsProcessor {
    fn from_config(config: &ResolvedConfig) -> Result<Option<Self>> {
        match config.fields.min_new_tokens {
            Some(min_new_tokens) if min_new_tokens > 0 && !config.eos_token_ids.is_empty() => {
                Ok(Some(Self::new(config.prompt_len, min_new_tokens, config.eos_token_ids.clone())))
            }
            _ => Ok(None),
        }
    }
}

impl LogitsProcessor for MinNewTokensLengthLogitsProcessor {
    fn process_row(&self, scores: &mut [f32], row: &mut RowContext<'_>) -> Result<()> {
        if row.input_ids.len() < self.prompt_len.saturating_add(self.min_new_tokens) {
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
        let longer_prompt = MinNewTokensLengthLogitsProcessor::new(4, 0, TokenId(0));
        assert_eq!(kept(&process(&longer_prompt, &[1, 1, 5], &SECOND)), [1, 2, 3, 4, 5, 6, 7]);
    }
}
