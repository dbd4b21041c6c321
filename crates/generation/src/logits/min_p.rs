//! Min-p: only tokens whose probability is close to the highest, as in transformers' `MinPLogitsWarper`.

use rsgen_core::{Result, refuse_if};
use rsgen_kernels::torch_reduce::kth_largest;
use rsgen_kernels::torch_sort::{descending_order, topk};
use rsgen_kernels::{Isa, maximum, softmax};

use super::super::config::Compat;
use super::super::resolved::ResolvedConfig;
use super::filter::Filter;
use super::{BuiltIn, LogitsProcessor, RowContext};

/// Removes tokens whose probability is below `min_p` times that of the most probable one.
#[derive(Debug, Clone)]
pub struct MinPLogitsWarper {
    min_p: f32,
    filter: Filter,
    /// Whether the tokens that always stay are chosen by score: probabilities may be equal where scores are
    /// not.
    ranks_scores: bool,
}

impl MinPLogitsWarper {
    /// Keeps tokens with at least the fraction `min_p` of the highest probability.
    ///
    /// # Errors
    /// When `min_p` is not within 0 and 1, or `min_tokens_to_keep` is 0.
    pub fn new(min_p: f64, filter_value: f64, min_tokens_to_keep: usize) -> Result<Self> {
        refuse_if(!(0.0..=1.0).contains(&min_p), "min_p", || {
            format!("must be a number from 0 to 1, but is {min_p:?}; 0.0 leaves all tokens")
        })?;
        let filter = Filter::new(filter_value, min_tokens_to_keep)?;
        Ok(Self { min_p: min_p as f32, filter, ranks_scores: false })
    }
}

impl BuiltIn for MinPLogitsWarper {
    fn from_config(config: &ResolvedConfig) -> Result<Option<Self>> {
        let new = |min_p| Self::new(min_p, f64::NEG_INFINITY, config.min_tokens_to_keep());
        config.fields.min_p.map(new).transpose()
    }

    fn with_compat(self, compat: Option<Compat>) -> Self {
        Self { ranks_scores: compat == Some(Compat::V4_49), ..self }
    }
}

impl LogitsProcessor for MinPLogitsWarper {
    fn process_row(&self, scores: &mut [f32], row: &mut RowContext<'_>) -> Result<()> {
        let mut probabilities = scores.to_vec();
        softmax(row.isa, &mut probabilities);
        // The most probable token is never below its own fraction, and comparisons with NaN remove nothing.
        let threshold = self.min_p * maximum(row.isa, &probabilities);
        let kept = self.kept(row.isa, scores, &probabilities, threshold)?;
        for (id, score) in scores.iter_mut().enumerate() {
            if probabilities[id] < threshold && !kept.contains(&(id as u32)) {
                *score = self.filter.value;
            }
        }
        Ok(())
    }
}

impl MinPLogitsWarper {
    /// The tokens that always stay, even below the threshold.
    fn kept(&self, isa: Isa, scores: &[f32], probabilities: &[f32], threshold: f32) -> Result<Vec<u32>> {
        let count = self.filter.min_tokens_to_keep.min(probabilities.len());
        if threshold.is_nan() || kth_largest(isa, probabilities, count) >= threshold {
            return Ok(Vec::new());
        }
        if self.ranks_scores {
            let mut order = descending_order(scores);
            order.truncate(count);
            return Ok(order);
        }
        topk(isa, probabilities, count)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{FIRST, SECOND, kept, process};
    use super::*;

    // MinPLogitsWarper(p)(ids, scores), transformers 5.23
    #[test]
    fn tokens_far_below_the_best_go_as_in_transformers() {
        let min_p = |p: f64, scores: &[f32]| {
            kept(&process(&MinPLogitsWarper::new(p, f64::NEG_INFINITY, 1).unwrap(), &[], scores))
        };
        assert_eq!(min_p(0.0, &FIRST), [0, 1, 2, 3, 4, 5, 7]);
        assert_eq!(min_p(0.1, &FIRST), [0, 3, 5]);
        assert_eq!(min_p(0.1, &SECOND), [0, 1, 3, 4, 6, 7]);
        assert_eq!(min_p(0.3, &FIRST), [3, 5]);
        assert_eq!(min_p(0.3, &SECOND), [3, 4, 7]);
        assert_eq!(min_p(1.0, &FIRST), [3, 5]);
        assert_eq!(min_p(1.0, &SECOND), [3]);
    }

    #[test]
    fn the_best_scores_stay_in_transformers_4_49() {
        let new = MinPLogitsWarper::new(0.5, f64::NEG_INFINITY, 2).unwrap();
        // The probability of all but one is 0.
        let scores = [-700.0, -800.0, 0.0, -900.0];
        assert_eq!(kept(&process(&new, &[], &scores)), [2, 3]);
        let old = new.with_compat(Some(Compat::V4_49));
        assert_eq!(kept(&process(&old, &[], &scores)), [0, 2]);
    }

    #[test]
    fn values_outside_of_0_to_1_are_refused() {
        for bad in [-0.1, 1.1, f64::NAN] {
            let message = MinPLogitsWarper::new(bad, f64::NEG_INFINITY, 1).unwrap_err().to_string();
            assert!(message.starts_with("`min_p` must be a number from 0 to 1, but is"), "{message}");
        }
    }
}
