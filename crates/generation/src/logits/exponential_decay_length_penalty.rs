//! An end-of-sequence bias that grows with the length, as in transformers' `ExponentialDecayLengthPenalty`.

use rsgen_core::{Result, TokenId, message, refuse_if};

use super::super::config::{Compat, OneOrMany};
use super::super::resolved::ResolvedConfig;
use super::{BuiltIn, LogitsProcessor, RowContext};

/// Raises the scores of the end-of-sequence tokens from some length on, exponentially with the length.
#[derive(Debug, Clone)]
pub struct ExponentialDecayLengthPenalty {
    start: usize,
    factor: f64,
    eos_token_ids: Vec<TokenId>,
    finite_only: bool,
}

impl ExponentialDecayLengthPenalty {
    /// `(start, factor)`: after `start` new tokens, the scores of `eos_token_id` grow by the factor with each
    /// token.
    ///
    /// # Errors
    /// When the factor is not finite.
    pub fn new(
        exponential_decay_length_penalty: (usize, f64),
        eos_token_id: impl Into<OneOrMany<TokenId>>,
        input_ids_seq_length: usize,
    ) -> Result<Self> {
        let (start, factor) = exponential_decay_length_penalty;
        refuse_if(!factor.is_finite(), "exponential_decay_length_penalty", || {
            format!(
                "must be a pair of a number of tokens and a finite factor, but the factor is \
                 {factor:?}; 1.0 has no effect"
            )
        })?;
        Ok(Self {
            start: start.saturating_add(input_ids_seq_length),
            factor,
            eos_token_ids: eos_token_id.into().as_slice().to_vec(),
            finite_only: true,
        })
    }
}

impl BuiltIn for ExponentialDecayLengthPenalty {
    fn from_config(config: &ResolvedConfig) -> Result<Option<Self>> {
        let Some(penalty) = config.fields.exponential_decay_length_penalty else { return Ok(None) };
        refuse_if(
            config.eos_token_ids.is_empty(),
            "exponential_decay_length_penalty",
            || message!("needs a token that ends texts, but there is none; set " {eos_token_id}),
        )?;
        Self::new(penalty, config.eos_token_ids.clone(), config.prompt_len).map(Some)
    }

    fn with_compat(self, compat: Option<Compat>) -> Self {
        Self { finite_only: compat != Some(Compat::V4_49), ..self }
    }
}

impl LogitsProcessor for ExponentialDecayLengthPenalty {
    fn process_row(&self, scores: &mut [f32], row: &mut RowContext<'_>) -> Result<()> {
        let Some(over) = row.input_ids.len().checked_sub(self.start).filter(|&over| over > 0) else {
            return Ok(());
        };
        let growth = (self.factor.powi(i32::try_from(over).unwrap_or(i32::MAX)) - 1.0) as f32;
        // A token that is listed twice is raised once.
        for (index, token) in self.eos_token_ids.iter().enumerate() {
            if let Some(score) = scores.get_mut(token.index())
                && !self.eos_token_ids[..index].contains(token)
                && (score.is_finite() || !self.finite_only)
            {
                // The absolute value, so that negative scores rise too.
                *score += score.abs() * growth;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{FIRST, SECOND, process};
    use super::*;

    fn penalty(start: usize, factor: f64, eos: Vec<TokenId>) -> ExponentialDecayLengthPenalty {
        ExponentialDecayLengthPenalty::new((start, factor), eos, 1).unwrap()
    }

    // ExponentialDecayLengthPenalty((1, 1.5), [0, 2], 1)(ids, scores), transformers 5.23
    #[test]
    #[expect(clippy::excessive_precision, reason = "as torch prints it")]
    fn the_end_is_raised_from_its_start_on_as_in_transformers() {
        let processor = penalty(1, 1.5, vec![TokenId(0), TokenId(2), TokenId(0)]);
        assert_eq!(process(&processor, &[1, 1], &SECOND), SECOND);
        let after_one = process(&processor, &[1, 1, 1], &SECOND);
        assert_eq!((after_one[0], after_one[1], after_one[2]), (0.450_000_02, 0.1, -0.35));
        let after_three = process(&processor, &[1; 5], &SECOND);
        assert_eq!((after_three[0], after_three[2]), (1.012_500_05, 0.962_500_04));
    }

    #[test]
    fn a_removed_end_stays_removed_but_in_transformers_4_49() {
        let processor = penalty(0, 2.0, vec![TokenId(6)]);
        assert_eq!(process(&processor, &[1, 1], &FIRST), FIRST);
        let old = processor.with_compat(Some(Compat::V4_49));
        assert!(process(&old, &[1, 1], &FIRST)[6].is_nan());
    }

    #[test]
    fn factors_that_are_no_numbers_are_refused() {
        for bad in [f64::NAN, f64::INFINITY] {
            let error = ExponentialDecayLengthPenalty::new((1, bad), TokenId(0), 1).unwrap_err().to_string();
            assert!(error.starts_with("`exponential_decay_length_penalty` must be a pair"), "{error}");
        }
    }
}
