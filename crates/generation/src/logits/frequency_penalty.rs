//! A penalty for each time a token was generated, as OpenAI's `frequency_penalty`.

use rsgen_core::Result;

use super::super::resolved::ResolvedConfig;
use super::presence_penalty::{checked, generated_counts};
use super::{BuiltIn, LogitsProcessor, RowContext};

/// Lowers the scores of generated tokens by the penalty times the number of times they were generated.
#[derive(Debug, Clone)]
pub struct FrequencyPenaltyLogitsProcessor {
    penalty: f32,
    prompt_len: usize,
}

impl FrequencyPenaltyLogitsProcessor {
    /// Ignores the first `prompt_length_to_skip` ids.
    ///
    /// # Errors
    /// When the penalty is not from -2 to 2.
    pub fn new(frequency_penalty: f64, prompt_length_to_skip: usize) -> Result<Self> {
        let penalty = checked("frequency_penalty", frequency_penalty)?;
        Ok(Self { penalty, prompt_len: prompt_length_to_skip })
    }
}

impl BuiltIn for FrequencyPenaltyLogitsProcessor {
    fn from_config(config: &ResolvedConfig) -> Result<Option<Self>> {
        let Some(penalty) = config.fields.frequency_penalty else { return Ok(None) };
        let processor = Self::new(penalty, config.prompt_len)?;
        Ok((penalty != 0.0).then_some(processor))
    }
}

impl LogitsProcessor for FrequencyPenaltyLogitsProcessor {
    fn process_row(&self, scores: &mut [f32], row: &mut RowContext<'_>) -> Result<()> {
        for (token, count) in generated_counts(row.input_ids, self.prompt_len) {
            if let Some(score) = scores.get_mut(token.index()) {
                *score -= self.penalty * count as f32;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::process;
    use super::*;

    #[test]
    fn generated_tokens_are_penalized_as_often_as_they_occurred() {
        let processor = FrequencyPenaltyLogitsProcessor::new(0.5, 2).unwrap();
        assert_eq!(process(&processor, &[0, 0, 1, 3, 1, 9], &[1.0; 4]), [1.0, 0.0, 1.0, 0.5]);
        assert_eq!(process(&processor, &[0], &[1.0; 4]), [1.0; 4]);
    }

    #[test]
    fn penalties_beyond_2_are_refused() {
        for bad in [2.1, -2.1, f64::NAN] {
            let error = FrequencyPenaltyLogitsProcessor::new(bad, 0).unwrap_err().to_string();
            assert!(error.contains("`frequency_penalty` must be a number from -2 to 2"), "{error}");
        }
    }
}
