//! A limit of probability, as in transformers' `ConfidenceCriteria`.

use rsgen_core::{Error, FinishReason, Result, refuse_if};

use super::{StopContext, StoppingCriterion};

/// Stops a row after a token that was less probable than a threshold, by the processed scores that it was
/// chosen from.
///
/// transformers checks only the first row of a batch; here each row is checked by its own token.
#[derive(Debug, Clone)]
pub struct ConfidenceCriteria {
    assistant_confidence_threshold: f64,
}

impl ConfidenceCriteria {
    /// Stops below this probability.
    ///
    /// # Errors
    /// When the threshold is NaN.
    pub fn new(assistant_confidence_threshold: f64) -> Result<Self> {
        refuse_if(
            assistant_confidence_threshold.is_nan(),
            "assistant_confidence_threshold",
            || "must be a number, usually from 0 to 1, but is NaN",
        )?;
        Ok(Self { assistant_confidence_threshold })
    }
}

impl StoppingCriterion for ConfidenceCriteria {
    fn should_stop(&self, row: &StopContext<'_>) -> Result<Option<FinishReason>> {
        let Some(newest) = row.input_ids.last() else { return Ok(None) };
        let mut probabilities = row.scores.to_vec();
        rsgen_kernels::softmax(row.isa, &mut probabilities);
        let Some(&probability) = probabilities.get(newest.index()) else {
            return Err(Error::input(format!(
                "ConfidenceCriteria needs the scores that the newest token, {newest}, was chosen from, but was given {} \
                 scores",
                row.scores.len()
            )));
        };
        let stops = f64::from(probability) < self.assistant_confidence_threshold;
        Ok(stops.then_some(FinishReason::Stop))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rsgen_core::TokenId;

    #[test]
    fn a_row_stops_after_a_token_below_the_threshold() {
        let scores = [0.0, 0.0, f32::NEG_INFINITY];
        let stops = |threshold, token| {
            let ids = [TokenId(0), TokenId(token)];
            let row = StopContext { scores: &scores, ..StopContext::of_row(&ids, 1) };
            ConfidenceCriteria::new(threshold).unwrap().should_stop(&row).unwrap()
        };
        assert_eq!(stops(0.5, 1), None, "as probable as the threshold is enough");
        assert_eq!(stops(0.5001, 1), Some(FinishReason::Stop));
        assert_eq!(stops(1e-9, 2), Some(FinishReason::Stop));
        assert_eq!(stops(0.0, 2), None, "a threshold of 0 never stops");
    }

    #[test]
    fn scores_that_do_not_hold_the_token_are_an_error() {
        let criterion = ConfidenceCriteria::new(0.4).unwrap();
        let error = criterion.should_stop(&StopContext::of_row(&[TokenId(7)], 0)).unwrap_err();
        assert!(error.to_string().contains("the newest token, 7, was chosen from"), "{error}");
        assert!(ConfidenceCriteria::new(f64::NAN).is_err());
    }
}
