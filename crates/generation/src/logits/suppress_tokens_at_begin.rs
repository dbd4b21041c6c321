//! Tokens that do not begin a text, as in transformers' `SuppressTokensAtBeginLogitsProcessor`.

use rsgen_core::{Result, TokenId};

use super::super::resolved::ResolvedConfig;
use super::{BuiltIn, LogitsProcessor, RowContext};

/// Removes tokens in one step, by default the first.
#[derive(Debug, Clone)]
pub struct SuppressTokensAtBeginLogitsProcessor {
    begin_suppress_tokens: Vec<TokenId>,
    begin_index: usize,
}

impl SuppressTokensAtBeginLogitsProcessor {
    /// Removes these tokens directly after the first `begin_index` ids.
    pub fn new(begin_suppress_tokens: Vec<TokenId>, begin_index: usize) -> Self {
        Self { begin_suppress_tokens, begin_index }
    }
}

impl BuiltIn for SuppressTokensAtBeginLogitsProcessor {
    fn from_config(config: &ResolvedConfig) -> Result<Option<Self>> {
        let Some(tokens) = config.fields.begin_suppress_tokens.clone() else { return Ok(None) };
        // A forced first token comes before the text begins.
        let forced = config.prompt_len <= 1 && config.fields.forced_bos_token_id.is_some();
        Ok(Some(Self::new(tokens, config.prompt_len + usize::from(forced))))
    }
}

impl LogitsProcessor for SuppressTokensAtBeginLogitsProcessor {
    fn process_row(&self, scores: &mut [f32], row: &mut RowContext<'_>) -> Result<()> {
        if row.input_ids.len() == self.begin_index {
            super::remove(scores, &self.begin_suppress_tokens);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::config::GenerationConfig;
    use super::super::tests::{SECOND, kept, process, resolved};
    use super::*;

    #[test]
    fn these_tokens_are_removed_in_one_step() {
        let processor = SuppressTokensAtBeginLogitsProcessor::new([1, 7].map(TokenId).to_vec(), 2);
        assert_eq!(kept(&process(&processor, &[0, 0], &SECOND)), [0, 2, 3, 4, 5, 6]);
        assert_eq!(process(&processor, &[0], &SECOND), SECOND);
        assert_eq!(process(&processor, &[0, 0, 0], &SECOND), SECOND);
    }

    #[test]
    fn the_text_begins_after_a_forced_first_token() {
        let config = GenerationConfig::new().begin_suppress_tokens(vec![TokenId(1)]);
        let begins = |config: &GenerationConfig, prompt_len| {
            let config = ResolvedConfig { prompt_len, ..resolved(config) };
            SuppressTokensAtBeginLogitsProcessor::from_config(&config).unwrap().unwrap().begin_index
        };
        assert_eq!(begins(&config, 1), 1);
        let forced = config.forced_bos_token_id(0);
        assert_eq!((begins(&forced, 1), begins(&forced, 2)), (2, 2));
    }
}
