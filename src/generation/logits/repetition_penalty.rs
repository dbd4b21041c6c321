//! Repetition penalty over prompt and generated tokens, as in transformers 5's `RepetitionPenaltyLogitsProcessor`.

use std::sync::Arc;

use crate::error::{Error, Result};

use super::{Built, LogitsProcessor, ProcessorSettings, RowContext};

/// Multiplies the negative and divides the other scores of every token that has occurred, once each.
///
/// Padding before the prompt does not count as having occurred.
#[derive(Debug, Clone)]
pub struct RepetitionPenaltyLogitsProcessor {
    penalty: f32,
}

impl RepetitionPenaltyLogitsProcessor {
    /// Above 1 makes repetition less probable, below 1 more.
    ///
    /// # Errors
    /// When `penalty` is not a positive number that float32 can hold.
    pub fn new(penalty: f64) -> Result<Self> {
        let narrow = penalty as f32;
        if !(narrow > 0.0 && narrow.is_finite()) {
            return Err(Error::config(format!(
                "`repetition_penalty` must be a positive number within the range of float32, but is \
                 {penalty:?}; 1.0 is \
                 no penalty, values to 1.3 are usual"
            )));
        }
        Ok(Self { penalty: narrow })
    }

    pub(super) fn build(settings: &ProcessorSettings<'_>) -> Built {
        let Some(penalty) = settings.config.repetition_penalty else { return Ok(None) };
        let processor = Self::new(penalty)?;
        Ok(if penalty == 1.0 { None } else { Some(Arc::new(processor)) })
    }
}

impl LogitsProcessor for RepetitionPenaltyLogitsProcessor {
    fn name(&self) -> &'static str {
        "RepetitionPenaltyLogitsProcessor"
    }

    fn process_row(&self, scores: &mut [f32], row: &mut RowContext<'_>) -> Result<()> {
        let mut seen = vec![0_u64; scores.len().div_ceil(64)];
        for id in row.input_ids.iter().skip(row.padding_len).map(|id| id.index()) {
            let Some(score) = scores.get_mut(id) else { continue };
            let bit = 1 << (id % 64);
            if seen[id / 64] & bit == 0 {
                seen[id / 64] |= bit;
                *score = if *score < 0.0 { *score * self.penalty } else { *score / self.penalty };
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{FIRST, SECOND, process, process_padded};
    use super::*;

    const NEG_INF: f32 = f32::NEG_INFINITY;

    fn penalty(penalty: f64) -> RepetitionPenaltyLogitsProcessor {
        RepetitionPenaltyLogitsProcessor::new(penalty).unwrap()
    }

    // RepetitionPenaltyLogitsProcessor(p)(torch.tensor([[2, 2, 5, 1], [7, 0, 3, 3]]), scores), transformers 5.23
    #[test]
    fn tokens_that_occurred_are_penalized_once_as_in_transformers() {
        assert_eq!(
            process(&penalty(1.3), &[2, 2, 5, 1], &FIRST),
            [1.5, -2.925, 0.0, 3.125, -0.5, 2.403_846_3, NEG_INF, 0.75]
        );
        assert_eq!(
            process(&penalty(0.8), &[7, 0, 3, 3], &SECOND),
            [0.375, 0.1, -0.7, 2.75, 1.9, -3.3, 0.6, 1.375]
        );
    }

    // the same with prompt_ignore_length=torch.tensor([2, 1])
    #[test]
    fn padding_before_the_prompt_does_not_count() {
        assert_eq!(
            process_padded(&penalty(1.3), &[7, 0, 3, 3], 1, &SECOND),
            [0.230_769_25, 0.1, -0.7, 1.692_307_8, 1.9, -3.3, 0.6, 1.1]
        );
    }

    #[test]
    fn removed_tokens_stay_removed_and_ids_beyond_the_scores_are_ignored() {
        assert_eq!(process(&penalty(2.0), &[0, 9, u32::MAX], &[NEG_INF, 1.0]), [NEG_INF, 1.0]);
    }

    #[test]
    fn penalties_that_are_not_positive_are_refused() {
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e39] {
            let message = RepetitionPenaltyLogitsProcessor::new(bad).unwrap_err().to_string();
            assert!(message.starts_with("`repetition_penalty` must be a positive number"), "{message}");
        }
    }
}
