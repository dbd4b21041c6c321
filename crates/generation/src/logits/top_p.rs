//! Nucleus sampling: the most probable tokens up to a cumulated probability, as in transformers'
//! `TopPLogitsWarper`.

use rsgen_core::{Result, refuse_if};
use rsgen_kernels::torch_reduce::{cumulated, softmax_of_middle};
use rsgen_kernels::torch_sort::{ascending_above, ascending_order};
use rsgen_kernels::{Isa, maximum};

use super::super::resolved::ResolvedConfig;
use super::filter::Filter;
use super::{BuiltIn, LogitsProcessor, RowContext};

/// Removes the least probable tokens that together have no more than `1 - top_p`; the most probable one
/// always stays.
#[derive(Debug, Clone)]
pub struct TopPLogitsWarper {
    /// The probability that may be removed, `1 - top_p`, computed in float64 and compared in float32.
    removable: f32,
    filter: Filter,
}

impl TopPLogitsWarper {
    /// Keeps tokens that together reach the probability `top_p`.
    ///
    /// # Errors
    /// When `top_p` is not within 0 and 1, or `min_tokens_to_keep` is 0.
    pub fn new(top_p: f64, filter_value: f64, min_tokens_to_keep: usize) -> Result<Self> {
        refuse_if(!(0.0..=1.0).contains(&top_p), "top_p", || {
            format!("must be a number from 0 to 1, but is {top_p:?}; 1.0 leaves all tokens")
        })?;
        Ok(Self { removable: (1.0 - top_p) as f32, filter: Filter::new(filter_value, min_tokens_to_keep)? })
    }
}

impl BuiltIn for TopPLogitsWarper {
    fn from_config(config: &ResolvedConfig) -> Result<Option<Self>> {
        let Some(top_p) = config.fields.top_p else { return Ok(None) };
        let warper = Self::new(top_p, f64::NEG_INFINITY, config.min_tokens_to_keep())?;
        Ok((top_p < 1.0).then_some(warper))
    }
}

impl LogitsProcessor for TopPLogitsWarper {
    fn process_row(&self, scores: &mut [f32], row: &mut RowContext<'_>) -> Result<()> {
        if !maximum(row.isa, scores).is_finite() {
            return Ok(());
        }
        // Removed tokens have probability 0 and stay removed, so only the others are sorted: after top-k,
        // few.
        let floor = (self.filter.value == f32::NEG_INFINITY).then_some(f32::NEG_INFINITY);
        let mut ascending = ascending_above(scores, floor);
        let score = |id: u32| scores[id as usize];
        let sorted: Vec<f32> = ascending.iter().map(|&id| score(id)).collect();
        let count = self.count_to_remove(row.isa, &sorted, scores.len());
        if count > 0 && count < ascending.len() && score(ascending[count - 1]) == score(ascending[count]) {
            // The cutoff falls between equal scores: torch's sort decides which of them are removed.
            let removed_before = scores.len() - ascending.len();
            ascending = ascending_order(scores).split_off(removed_before);
        }
        for id in ascending.into_iter().take(count) {
            scores[id as usize] = self.filter.value;
        }
        Ok(())
    }
}

impl TopPLogitsWarper {
    /// The number of scores to remove, of these last ones of `len` in ascending order; never the best ones.
    fn count_to_remove(&self, isa: Isa, ascending: &[f32], len: usize) -> usize {
        let probabilities = softmax_of_middle(isa, ascending, len - ascending.len(), len);
        let most = ascending.len().saturating_sub(self.filter.min_tokens_to_keep);
        let count = cumulated(&probabilities).position(|sum| sum > self.removable);
        count.map_or(most, |count| count.min(most))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{FIRST, SECOND, kept, process};
    use super::*;

    fn top_p(p: f64, scores: &[f32]) -> Vec<usize> {
        kept(&process(&TopPLogitsWarper::new(p, f64::NEG_INFINITY, 1).unwrap(), &[], scores))
    }

    // TopPLogitsWarper(p)(ids, scores), transformers 5.23
    #[test]
    fn the_nucleus_is_that_of_transformers() {
        let expected: [(f64, &[usize], &[usize]); 7] = [
            (0.0, &[5], &[3]),
            (0.3, &[5], &[3]),
            (0.5, &[3, 5], &[3, 4]),
            (0.8, &[3, 5], &[3, 4, 6, 7]),
            (0.9, &[0, 3, 5], &[0, 3, 4, 6, 7]),
            (0.95, &[0, 3, 5, 7], &[0, 1, 3, 4, 6, 7]),
            (0.99, &[0, 2, 3, 4, 5, 7], &[0, 1, 2, 3, 4, 6, 7]),
        ];
        for (p, first, second) in expected {
            assert_eq!(top_p(p, &FIRST), first, "top_p {p}");
            assert_eq!(top_p(p, &SECOND), second, "top_p {p}");
        }
    }

    // TopPLogitsWarper(p)(ids, torch.zeros(1, n)), and with 20 scores removed before
    #[test]
    fn among_equals_those_stay_that_torch_sorts_last() {
        assert_eq!(top_p(0.5, &[0.0; 8]), [4, 5, 6, 7]);
        assert_eq!(top_p(0.25, &[0.0; 8]), [6, 7]);
        assert_eq!(top_p(0.25, &[0.0; 20]), [1, 2, 3, 4, 5]);
        let mut half_removed = [0.0; 40];
        half_removed.iter_mut().step_by(2).for_each(|score| *score = f32::NEG_INFINITY);
        assert_eq!(top_p(0.25, &half_removed), [1, 3, 5, 7, 9]);
    }

    #[test]
    fn rows_without_a_finite_maximum_are_left_to_the_search() {
        assert_eq!(
            process(&TopPLogitsWarper::new(0.5, f64::NEG_INFINITY, 1).unwrap(), &[], &[f32::NEG_INFINITY; 3]),
            [f32::NEG_INFINITY; 3]
        );
        let nan =
            process(&TopPLogitsWarper::new(0.5, f64::NEG_INFINITY, 1).unwrap(), &[], &[1.0, f32::NAN, 2.0]);
        assert!(nan[1].is_nan() && nan[0] == 1.0);
    }

    #[test]
    fn values_outside_of_0_to_1_are_refused() {
        for bad in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            let message = TopPLogitsWarper::new(bad, f64::NEG_INFINITY, 1).unwrap_err().to_string();
            assert!(message.starts_with("`top_p` must be a number from 0 to 1, but is"), "{message}");
        }
    }
}
