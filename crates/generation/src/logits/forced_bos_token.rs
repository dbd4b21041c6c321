//! A forced first token, as in transformers' `ForcedBOSTokenLogitsProcessor`.

use rsgen_core::{Result, TokenId};

use super::super::resolved::ResolvedConfig;
use super::{BuiltIn, LogitsProcessor, RowContext};

/// Removes all tokens but one when there is a single id so far; that one gets the score 0.
#[derive(Debug, Clone)]
pub struct ForcedBOSTokenLogitsProcessor {
    bos_token_id: TokenId,
}

impl ForcedBOSTokenLogitsProcessor {
    /// `bos_token_id` follows a prompt of one id.
    pub fn new(bos_token_id: TokenId) -> Self {
        Self { bos_token_id }
    }
}

impl BuiltIn for ForcedBOSTokenLogitsProcessor {
    fn from_config(config: &ResolvedConfig) -> Result<Option<Self>> {
        let Some(token) = config.fields.forced_bos_token_id else { return Ok(None) };
        super::check_forced("forced_bos_token_id", &[token], config.vocab_size)?;
        Ok(Some(Self::new(token)))
    }
}

impl LogitsProcessor for ForcedBOSTokenLogitsProcessor {
    fn process_row(&self, scores: &mut [f32], row: &mut RowContext<'_>) -> Result<()> {
        if row.input_ids.len() == 1 {
            super::force("bos_token_id", &[self.bos_token_id], scores)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{SECOND, process};
    use super::*;

    #[test]
    fn only_one_token_follows_a_single_id() {
        let processor = ForcedBOSTokenLogitsProcessor::new(TokenId(2));
        let mut expected = [f32::NEG_INFINITY; 8];
        expected[2] = 0.0;
        assert_eq!(process(&processor, &[5], &SECOND), expected);
        assert_eq!(process(&processor, &[5, 2], &SECOND), SECOND);
        let beyond = ForcedBOSTokenLogitsProcessor::new(TokenId(8));
        let error = beyond.process_row(&mut [0.0; 8], &mut RowContext::of_prompt(&[TokenId(0)])).unwrap_err();
        assert!(
            error.to_string().contains("`bos_token_id` must be an id of the model's vocabulary, 0 to 7"),
            "{error}"
        );
    }
}
