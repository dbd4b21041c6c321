//! Forced last tokens, as in transformers' `ForcedEOSTokenLogitsProcessor`.

use rsgen_core::{Result, TokenId};

use super::super::config::OneOrMany;
use super::super::resolved::ResolvedConfig;
use super::{BuiltIn, LogitsProcessor, RowContext};

/// Removes all tokens but these at the last position; these get the score 0.
#[derive(Debug, Clone)]
pub struct ForcedEOSTokenLogitsProcessor {
    max_length: usize,
    eos_token_ids: Vec<TokenId>,
}

impl ForcedEOSTokenLogitsProcessor {
    /// Forces one of `eos_token_id` as the last of `max_length` ids, prompt and padding included.
    pub fn new(max_length: usize, eos_token_id: impl Into<OneOrMany<TokenId>>) -> Self {
        Self { max_length, eos_token_ids: eos_token_id.into().as_slice().to_vec() }
    }
}

impl BuiltIn for ForcedEOSTokenLogitsProcessor {
    fn from_config(config: &ResolvedConfig) -> Result<Option<Self>> {
        let given = config.fields.forced_eos_token_id.clone();
        // As for `eos_token_id`, an empty list counts as unset.
        let Some(tokens) = given.filter(|tokens| !tokens.as_slice().is_empty()) else { return Ok(None) };
        super::check_forced("forced_eos_token_id", tokens.as_slice(), config.vocab_size)?;
        Ok(Some(Self::new(config.max_length, tokens)))
    }
}

impl LogitsProcessor for ForcedEOSTokenLogitsProcessor {
    fn process_row(&self, scores: &mut [f32], row: &mut RowContext<'_>) -> Result<()> {
        if row.input_ids.len() + 1 == self.max_length {
            super::force("eos_token_id", &self.eos_token_ids, scores)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{SECOND, process};
    use super::*;

    #[test]
    fn only_these_tokens_can_be_the_last() {
        let processor = ForcedEOSTokenLogitsProcessor::new(3, vec![TokenId(2), TokenId(0)]);
        let mut expected = [f32::NEG_INFINITY; 8];
        (expected[0], expected[2]) = (0.0, 0.0);
        assert_eq!(process(&processor, &[5, 5], &SECOND), expected);
        assert_eq!(process(&processor, &[5], &SECOND), SECOND);
        assert_eq!(process(&processor, &[5, 5, 5], &SECOND), SECOND);
    }
}
