//! A penalty for tokens that were generated, as OpenAI's `presence_penalty`.

use std::collections::HashMap;

use rsgen_core::{Error, Result, TokenId};

use super::super::resolved::ResolvedConfig;
use super::{BuiltIn, LogitsProcessor, RowContext};

/// Lowers the scores of generated tokens by the penalty, however often they were generated.
#[derive(Debug, Clone)]
pub struct PresencePenaltyLogitsProcessor {
    penalty: f32,
    prompt_len: usize,
}

impl PresencePenaltyLogitsProcessor {
    /// Ignores the first `prompt_length_to_skip` ids.
    ///
    /// # Errors
    /// When the penalty is not from -2 to 2.
    pub fn new(presence_penalty: f64, prompt_length_to_skip: usize) -> Result<Self> {
        let penalty = checked("presence_penalty", presence_penalty)?;
        Ok(Self { penalty, prompt_len: prompt_length_to_skip })
    }
}

impl BuiltIn for PresencePenaltyLogitsProcessor {
    fn from_config(config: &ResolvedConfig) -> Result<Option<Self>> {
        let Some(penalty) = config.fields.presence_penalty else { return Ok(None) };
        let processor = Self::new(penalty, config.prompt_len)?;
        Ok((penalty != 0.0).then_some(processor))
    }
}

impl LogitsProcessor for PresencePenaltyLogitsProcessor {
    fn process_row(&self, scores: &mut [f32], row: &mut RowContext<'_>) -> Result<()> {
        for (token, _) in generated_counts(row.input_ids, self.prompt_len) {
            if let Some(score) = scores.get_mut(token.index()) {
                *score -= self.penalty;
            }
        }
        Ok(())
    }
}

/// Each token after the first `prompt_len` ids, with the number of its occurrences there.
pub(super) fn generated_counts(input_ids: &[TokenId], prompt_len: usize) -> HashMap<TokenId, usize> {
    let mut counts = HashMap::new();
    for token in input_ids.iter().skip(prompt_len) {
        *counts.entry(*token).or_default() += 1;
    }
    counts
}

/// A penalty within OpenAI's range.
pub(super) fn checked(field: &str, penalty: f64) -> Result<f32> {
    if (-2.0..=2.0).contains(&penalty) {
        return Ok(penalty as f32);
    }
    Err(Error::config(format!("must be a number from -2 to 2, but is {penalty:?}; 0.0 is no penalty"))
        .about(field))
}

#[cfg(test)]
mod tests {
    use super::super::tests::process;
    use super::*;

    #[test]
    fn generated_tokens_are_penalized_once() {
        let processor = PresencePenaltyLogitsProcessor::new(0.5, 2).unwrap();
        assert_eq!(process(&processor, &[0, 0, 1, 3, 1, 9], &[1.0; 4]), [1.0, 0.5, 1.0, 0.5]);
        assert_eq!(process(&processor, &[0], &[1.0; 4]), [1.0; 4]);
    }

    #[test]
    fn penalties_beyond_2_are_refused() {
        for bad in [2.1, -2.1, f64::NAN] {
            let error = PresencePenaltyLogitsProcessor::new(bad, 0).unwrap_err().to_string();
            assert!(error.contains("`presence_penalty` must be a number from -2 to 2"), "{error}");
        }
    }
}
