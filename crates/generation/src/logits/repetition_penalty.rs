//! Repetition penalty over prompt and generated tokens, as in transformers 5's
//! `RepetitionPenaltyLogitsProcessor`.

use rsgen_core::{Error, Result, refuse_if};

use super::super::config::{Compat, OneOrMany};
use super::super::resolved::ResolvedConfig;
use super::{BuiltIn, LogitsProcessor, RowContext};

/// Multiplies the negative and divides the other scores of every token that has occurred, once each.
#[derive(Debug, Clone)]
pub struct RepetitionPenaltyLogitsProcessor {
    penalty: f32,
    ignored: Ignored,
}

/// The leading ids to ignore.
#[derive(Debug, Clone)]
enum Ignored {
    None,
    Padding,
    Len(usize),
    PerRow(Vec<usize>),
}

impl RepetitionPenaltyLogitsProcessor {
    /// Above 1 makes repetition less probable, below 1 more. The first `prompt_ignore_length` ids, a number
    /// for all rows or one for each, are ignored.
    ///
    /// # Errors
    /// When `penalty` is not a positive number that float32 can hold.
    pub fn new(penalty: f64, prompt_ignore_length: Option<OneOrMany<usize>>) -> Result<Self> {
        let narrow = penalty as f32;
        refuse_if(!(narrow > 0.0 && narrow.is_finite()), "repetition_penalty", || {
            format!(
                "must be a positive number within the range of float32, but is {penalty:?}; 1.0 is no \
                 penalty, values to 1.3 are usual"
            )
        })?;
        let ignored = match prompt_ignore_length {
            None => Ignored::None,
            Some(OneOrMany::One(len)) => Ignored::Len(len),
            Some(OneOrMany::Many(lens)) => Ignored::PerRow(lens),
        };
        Ok(Self { penalty: narrow, ignored })
    }
}

impl BuiltIn for RepetitionPenaltyLogitsProcessor {
    fn from_config(config: &ResolvedConfig) -> Result<Option<Self>> {
        let Some(penalty) = config.fields.repetition_penalty else { return Ok(None) };
        let processor = Self { ignored: Ignored::Padding, ..Self::new(penalty, None)? };
        Ok((penalty != 1.0).then_some(processor))
    }

    fn with_compat(mut self, compat: Option<Compat>) -> Self {
        if compat == Some(Compat::V4_49) && matches!(self.ignored, Ignored::Padding) {
            self.ignored = Ignored::None;
        }
        self
    }
}

impl LogitsProcessor for RepetitionPenaltyLogitsProcessor {
    fn process_row(&self, scores: &mut [f32], row: &mut RowContext<'_>) -> Result<()> {
        let ignored = self.ignored(row)?;
        super::penalize_once(scores, row.input_ids.iter().skip(ignored), self.penalty);
        Ok(())
    }
}

impl RepetitionPenaltyLogitsProcessor {
    fn ignored(&self, row: &RowContext<'_>) -> Result<usize> {
        match &self.ignored {
            Ignored::None => Ok(0),
            Ignored::Padding => Ok(row.padding_len),
            Ignored::Len(len) => Ok(*len),
            Ignored::PerRow(lens) => lens.get(row.row_index).copied().ok_or_else(|| {
                Error::config(format!(
                    "must be one number, or one for each row, but lists {} and there is a row {}",
                    lens.len(),
                    row.row_index
                ))
                .about("prompt_ignore_length")
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::config::GenerationConfig;
    use super::super::tests::{FIRST, SECOND, process, process_padded, resolved};
    use super::*;

    const NEG_INF: f32 = f32::NEG_INFINITY;

    fn penalty(penalty: f64) -> RepetitionPenaltyLogitsProcessor {
        RepetitionPenaltyLogitsProcessor::new(penalty, None).unwrap()
    }

    // RepetitionPenaltyLogitsProcessor(p)(torch.tensor([[2, 2, 5, 1], [7, 0, 3, 3]]), scores), transformers
    // 5.23
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
    fn ids_at_the_beginning_can_be_ignored() {
        let expected = [0.230_769_25, 0.1, -0.7, 1.692_307_8, 1.9, -3.3, 0.6, 1.1];
        let ids = [7, 0, 3, 3];
        for ignored in [OneOrMany::One(1), OneOrMany::Many(vec![1])] {
            let processor = RepetitionPenaltyLogitsProcessor::new(1.3, Some(ignored)).unwrap();
            assert_eq!(process(&processor, &ids, &SECOND), expected);
        }
        let config = GenerationConfig::new().repetition_penalty(1.3);
        let built = RepetitionPenaltyLogitsProcessor::from_config(&resolved(&config)).unwrap().unwrap();
        assert_eq!(process_padded(&built, &ids, 1, &SECOND), expected, "padding is, in a call of generate");
        assert_ne!(process_padded(&penalty(1.3), &ids, 1, &SECOND), expected, "and not when made by hand");
    }

    #[test]
    fn padding_counts_in_transformers_4_49() {
        let config = GenerationConfig::new().repetition_penalty(1.3);
        let built = RepetitionPenaltyLogitsProcessor::from_config(&resolved(&config)).unwrap().unwrap();
        let old = built.with_compat(Some(Compat::V4_49));
        let ids = [7, 0, 3, 3];
        assert_eq!(process_padded(&old, &ids, 1, &SECOND), process(&penalty(1.3), &ids, &SECOND));
    }

    #[test]
    fn ignored_lengths_must_be_there_for_each_row() {
        let processor = RepetitionPenaltyLogitsProcessor::new(1.3, Some(OneOrMany::Many(vec![]))).unwrap();
        let error = processor.process_row(&mut [0.0], &mut RowContext::of_prompt(&[])).unwrap_err();
        assert!(error.to_string().contains("`prompt_ignore_length` must be one number"), "{error}");
    }

    #[test]
    fn removed_tokens_stay_removed_and_ids_beyond_the_scores_are_ignored() {
        assert_eq!(process(&penalty(2.0), &[0, 9, u32::MAX], &[NEG_INF, 1.0]), [NEG_INF, 1.0]);
    }

    #[test]
    fn penalties_that_are_not_positive_are_refused() {
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e39] {
            let message = RepetitionPenaltyLogitsProcessor::new(bad, None).unwrap_err().to_string();
            assert!(message.starts_with("`repetition_penalty` must be a positive number"), "{message}");
        }
    }
}
