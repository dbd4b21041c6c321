//! Top-k: only the highest scores stay, as in transformers' `TopKLogitsWarper`.

use rsgen_core::{Result, refuse_if};
use rsgen_kernels::torch_reduce::kth_largest;

use super::super::resolved::ResolvedConfig;
use super::filter::Filter;
use super::{BuiltIn, LogitsProcessor, RowContext};

/// Removes every score below the `top_k`-th largest; ties with it stay.
#[derive(Debug, Clone)]
pub struct TopKLogitsWarper {
    top_k: usize,
    filter: Filter,
}

impl TopKLogitsWarper {
    /// Keeps `top_k` scores, or `min_tokens_to_keep` if that is more; all of them when the vocabulary is no
    /// larger.
    ///
    /// # Errors
    /// When one of the numbers is 0.
    pub fn new(top_k: usize, filter_value: f64, min_tokens_to_keep: usize) -> Result<Self> {
        refuse_if(top_k == 0, "top_k", || "must be 1 or more, but is 0; without the warper all tokens stay")?;
        let filter = Filter::new(filter_value, min_tokens_to_keep)?;
        Ok(Self { top_k: top_k.max(min_tokens_to_keep), filter })
    }
}

impl BuiltIn for TopKLogitsWarper {
    fn from_config(config: &ResolvedConfig) -> Result<Option<Self>> {
        match config.fields.top_k_or_default() {
            0 => Ok(None),
            top_k => Self::new(top_k, f64::NEG_INFINITY, config.min_tokens_to_keep()).map(Some),
        }
    }
}

impl LogitsProcessor for TopKLogitsWarper {
    fn process_row(&self, scores: &mut [f32], row: &mut RowContext<'_>) -> Result<()> {
        if self.top_k >= scores.len() {
            return Ok(());
        }
        // No score is below NaN, which torch treats as the largest.
        let threshold = kth_largest(row.isa, scores, self.top_k);
        for score in scores {
            if *score < threshold {
                *score = self.filter.value;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{FIRST, SECOND, kept, process};
    use super::*;

    // TopKLogitsWarper(k)(ids, scores), transformers 5.23
    #[test]
    fn the_largest_scores_and_their_ties_stay_as_in_transformers() {
        let top_k = |k: usize, scores: &[f32]| {
            kept(&process(&TopKLogitsWarper::new(k, f64::NEG_INFINITY, 1).unwrap(), &[], scores))
        };
        assert_eq!(top_k(1, &FIRST), [3, 5]);
        assert_eq!(top_k(2, &FIRST), [3, 5]);
        assert_eq!(top_k(1, &SECOND), [3]);
        assert_eq!(top_k(2, &SECOND), [3, 4]);
        assert_eq!(top_k(100, &FIRST), [0, 1, 2, 3, 4, 5, 7]);
    }

    #[test]
    fn nan_is_the_largest_of_all_as_in_torch() {
        let top_2 = TopKLogitsWarper::new(2, f64::NEG_INFINITY, 1).unwrap();
        let after = process(&top_2, &[], &[1.0, f32::NAN, 3.0, 2.0]);
        assert!(after[1].is_nan() && after[2] == 3.0 && kept(&after) == [2]);
        assert_eq!(process(&top_2, &[], &[1.0, f32::NAN, f32::NAN])[0], 1.0);
    }

    #[test]
    fn none_is_refused() {
        assert!(
            TopKLogitsWarper::new(0, f64::NEG_INFINITY, 1)
                .unwrap_err()
                .to_string()
                .contains("`top_k` must be 1 or more, but is 0")
        );
    }
}
