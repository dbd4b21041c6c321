//! Locally typical sampling: tokens whose surprise is near the expected one, as in transformers'
//! `TypicalLogitsWarper`.

use rsgen_core::{Result, refuse_if};
use rsgen_kernels::torch_reduce::{cumulated, exp, softmax_of_middle, sum};
use rsgen_kernels::torch_sort::{ascending_above, ascending_order};
use rsgen_kernels::{Isa, log_softmax, maximum};

use super::super::resolved::ResolvedConfig;
use super::filter::Filter;
use super::{BuiltIn, LogitsProcessor, RowContext};

/// Keeps the tokens whose negative log-probability is nearest to the entropy, until they reach a probability
/// together.
#[derive(Debug, Clone)]
pub struct TypicalLogitsWarper {
    mass: f32,
    filter: Filter,
}

impl TypicalLogitsWarper {
    /// Keeps tokens that together reach the probability `mass`.
    ///
    /// # Errors
    /// When `mass` is not between 0 and 1, or `min_tokens_to_keep` is 0.
    pub fn new(mass: f64, filter_value: f64, min_tokens_to_keep: usize) -> Result<Self> {
        refuse_if(!(mass > 0.0 && mass < 1.0), "typical_p", || {
            format!("must be a number above 0 and below 1, but is {mass:?}; leave it out to keep all tokens")
        })?;
        Ok(Self { mass: mass as f32, filter: Filter::new(filter_value, min_tokens_to_keep)? })
    }

    /// The possible tokens, the most typical first, and the distance of each from the expected surprise.
    fn most_typical_first(&self, isa: Isa, scores: &[f32]) -> (Vec<u32>, Vec<f32>) {
        let mut logs = scores.to_vec();
        log_softmax(isa, &mut logs);
        // A removed token adds NaN, which counts as zero.
        let terms: Vec<f32> = logs
            .iter()
            .map(|&log| log * exp(log))
            .map(|term| if term.is_nan() { 0.0 } else { term })
            .collect();
        let entropy = -sum(&terms);
        let distances: Vec<f32> = logs.iter().map(|log| (-log - entropy).abs()).collect();

        let distance = |id: u32| distances[id as usize];
        // Removed tokens are infinitely far, and last. They matter only if they could get another score.
        let mut order = ascending_above(&distances, None);
        if self.filter.value == f32::NEG_INFINITY {
            order.truncate(scores.iter().filter(|score| **score > f32::NEG_INFINITY).count());
        }
        let decides = |a: u32, b: u32| {
            distance(a) == distance(b)
                && (scores[a as usize] != scores[b as usize] || self.filter.min_tokens_to_keep > 1)
        };
        if order.windows(2).any(|pair| decides(pair[0], pair[1])) {
            let count = order.len();
            order = ascending_order(&distances);
            order.truncate(count);
        }
        (order, distances)
    }
}

impl BuiltIn for TypicalLogitsWarper {
    fn from_config(config: &ResolvedConfig) -> Result<Option<Self>> {
        match config.fields.typical_p {
            None => Ok(None),
            // 1 or more keeps all tokens.
            Some(mass) if mass >= 1.0 => Ok(None),
            Some(mass) => Self::new(mass, f64::NEG_INFINITY, config.min_tokens_to_keep()).map(Some),
        }
    }
}

impl LogitsProcessor for TypicalLogitsWarper {
    fn process_row(&self, scores: &mut [f32], row: &mut RowContext<'_>) -> Result<()> {
        if !maximum(row.isa, scores).is_finite() {
            return Ok(());
        }
        let (order, distances) = self.most_typical_first(row.isa, scores);
        let sorted: Vec<f32> = order.iter().map(|&id| scores[id as usize]).collect();
        let probabilities = softmax_of_middle(row.isa, &sorted, 0, scores.len());
        let below_mass = cumulated(&probabilities).filter(|sum| *sum < self.mass).count();
        let Some(&last) = order.get(below_mass) else { return Ok(()) };
        let limit = distances[last as usize];
        let kept = &order[..self.filter.min_tokens_to_keep.min(order.len())];
        for (id, score) in scores.iter_mut().enumerate() {
            if distances[id] > limit && !kept.contains(&(id as u32)) {
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

    fn typical(mass: f64, min_tokens_to_keep: usize, scores: &[f32]) -> Vec<usize> {
        let warper = TypicalLogitsWarper::new(mass, f64::NEG_INFINITY, min_tokens_to_keep).unwrap();
        kept(&process(&warper, &[], scores))
    }

    // TypicalLogitsWarper(mass, min_tokens_to_keep=n)(ids, scores), transformers 5.23
    #[test]
    fn the_most_typical_tokens_stay_as_in_transformers() {
        let expected: [(f64, usize, &[usize], &[usize]); 7] = [
            (0.1, 1, &[3, 5], &[4]),
            (0.3, 1, &[3, 5], &[4, 7]),
            (0.5, 1, &[3, 5], &[3, 4, 7]),
            (0.9, 1, &[0, 3, 5], &[0, 3, 4, 6, 7]),
            (0.95, 1, &[0, 3, 5, 7], &[0, 1, 3, 4, 6, 7]),
            (0.1, 3, &[0, 3, 5], &[3, 4, 7]),
            (0.3, 3, &[0, 3, 5], &[3, 4, 7]),
        ];
        for (mass, n, first, second) in expected {
            assert_eq!(typical(mass, n, &FIRST), first, "{mass}, {n}");
            assert_eq!(typical(mass, n, &SECOND), second, "{mass}, {n}");
        }
    }

    #[test]
    fn rows_without_a_finite_maximum_are_left_to_the_search() {
        let warper = TypicalLogitsWarper::new(0.5, f64::NEG_INFINITY, 1).unwrap();
        assert_eq!(process(&warper, &[], &[f32::NEG_INFINITY; 3]), [f32::NEG_INFINITY; 3]);
        let nan = process(&warper, &[], &[1.0, f32::NAN, 2.0]);
        assert!(nan[1].is_nan() && nan[0] == 1.0);
    }

    #[test]
    fn values_outside_of_0_to_1_are_refused() {
        for bad in [0.0, -0.1, 1.0, f64::NAN] {
            let error = TypicalLogitsWarper::new(bad, 0.0, 1).unwrap_err().to_string();
            assert!(error.starts_with("`typical_p` must be a number above 0 and below 1, but is"), "{error}");
        }
        assert!(
            TypicalLogitsWarper::new(0.5, 0.0, 0).unwrap_err().to_string().contains("`min_tokens_to_keep`")
        );
    }
}
