//! Top-h: tokens up to a fraction of the entropy, as in transformers' `TopHLogitsWarper`.

use rsgen_core::{Error, Result, refuse_if};
use rsgen_kernels::torch_reduce::{cumulated, entropy, ln, torch_log_sum_exp};
use rsgen_kernels::torch_sort::topk;
use rsgen_kernels::{maximum, softmax};

use super::super::config::Compat;
use super::super::resolved::ResolvedConfig;
use super::{BuiltIn, LogitsProcessor, RowContext};

/// The most tokens that stay.
const MAX_TOKENS: usize = 100;

/// Keeps the most probable tokens whose terms of the entropy sum to at most a fraction of the whole; the most
/// probable one always stays. Considers only the 100 most probable tokens.
#[derive(Debug, Clone)]
pub struct TopHLogitsWarper {
    top_h: f32,
    filter_value: f32,
}

impl TopHLogitsWarper {
    /// Keeps tokens up to the fraction `top_h` of the entropy.
    ///
    /// # Errors
    /// When `top_h` is not above 0 and at most 1.
    pub fn new(top_h: f64, filter_value: f64) -> Result<Self> {
        refuse_if(!(top_h > 0.0 && top_h <= 1.0), "top_h", || {
            format!(
                "must be a number above 0 and at most 1, but is {top_h:?}; leave it out to keep all tokens"
            )
        })?;
        Ok(Self { top_h: top_h as f32, filter_value: filter_value as f32 })
    }
}

impl BuiltIn for TopHLogitsWarper {
    fn from_config(config: &ResolvedConfig) -> Result<Option<Self>> {
        match (config.fields.top_h, config.fields.compat) {
            (None, _) => Ok(None),
            (Some(top_h), None | Some(Compat::V5_23)) => Self::new(top_h, f64::NEG_INFINITY).map(Some),
            (Some(top_h), Some(compat @ Compat::V4_49)) => Err(Error::config(format!(
                "must be unset with compat={:?}, because transformers {compat} does not have it, but is \
                 {top_h:?}; leave out one of the two",
                compat.as_str()
            ))
            .about("top_h")),
        }
    }
}

impl LogitsProcessor for TopHLogitsWarper {
    fn process_row(&self, scores: &mut [f32], row: &mut RowContext<'_>) -> Result<()> {
        if !maximum(row.isa, scores).is_finite() {
            return Ok(());
        }
        let best = topk(row.isa, scores, MAX_TOKENS.min(scores.len()))?;
        let logits: Vec<f32> = best.iter().map(|&id| scores[id as usize]).collect();
        let normalizer = torch_log_sum_exp(row.isa, &logits);
        let normalized: Vec<f32> = logits.iter().map(|logit| logit - normalizer).collect();
        // The term of a probability of 0 is NaN, which no limit allows.
        let mut probabilities = normalized;
        softmax(row.isa, &mut probabilities);
        let terms: Vec<f32> = probabilities.into_iter().map(|p| -p * ln(p)).collect();
        let limit = entropy(row.isa, &logits) * self.top_h;
        let stays = cumulated(&terms).map(|sum| sum <= limit);
        let kept: Vec<(usize, f32)> = best
            .into_iter()
            .zip(stays)
            .enumerate()
            .filter(|(rank, (_, stays))| *rank == 0 || *stays)
            .map(|(_, (id, _))| (id as usize, scores[id as usize]))
            .collect();
        scores.fill(self.filter_value);
        for (id, score) in kept {
            scores[id] = score;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::config::GenerationConfig;
    use super::super::tests::{FIRST, SECOND, kept, process, resolved};
    use super::*;

    fn top_h(h: f64, scores: &[f32]) -> Vec<usize> {
        kept(&process(&TopHLogitsWarper::new(h, f64::NEG_INFINITY).unwrap(), &[], scores))
    }

    // TopHLogitsWarper(h)(ids, scores), transformers 5.23
    #[test]
    fn tokens_within_a_fraction_of_the_entropy_stay_as_in_transformers() {
        let expected: [(f64, &[usize], &[usize]); 4] = [
            (0.1, &[3], &[3]),
            (0.4, &[3], &[3]),
            (0.7, &[3, 5], &[3, 4, 7]),
            (0.95, &[0, 2, 3, 5, 7], &[0, 1, 3, 4, 6, 7]),
        ];
        for (h, first, second) in expected {
            assert_eq!((top_h(h, &FIRST), top_h(h, &SECOND)), (first.to_vec(), second.to_vec()), "{h}");
        }
    }

    /// All terms sum to the entropy, so that the last tokens are at the limit itself.
    #[test]
    fn at_1_the_order_of_the_sums_decides_about_less_than_a_millionth() {
        let (mut state, mut short) = (1u64, 0);
        for row in 0..1260 {
            let scale = [0.5, 2.0, 8.0][row % 3];
            let mut drawn = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 40) as f32 / (1 << 24) as f32 * scale
            };
            let scores: Vec<f32> = (0..5 + row % 90).map(|_| drawn()).collect();
            let whole: f64 = scores.iter().map(|&score| f64::from(score).exp()).sum();
            let term = |id: usize| {
                let p = f64::from(scores[id]).exp() / whole;
                -p * p.ln()
            };
            let entropy: f64 = (0..scores.len()).map(term).sum();
            let stays = top_h(1.0, &scores);
            let gone: f64 = (0..scores.len()).filter(|id| !stays.contains(id)).map(term).sum();
            // The term of the last token at the limit counts as a whole.
            let last = (0..scores.len()).min_by(|&a, &b| scores[a].total_cmp(&scores[b])).map_or(0.0, term);
            assert!(gone <= 1e-6 * entropy + last * 1.000_001, "{row}: {gone} of {entropy}");
            short += usize::from(stays.len() < scores.len());
        }
        assert!(short > 0 && short < 1260, "{short}");
    }

    #[test]
    fn no_more_than_a_hundred_tokens_stay() {
        assert_eq!(top_h(0.999, &[0.0; 200]).len(), 99);
        assert_eq!(top_h(0.5, &[0.0; 200]).len(), 50);
    }

    #[test]
    fn rows_without_a_finite_maximum_are_left_to_the_search() {
        let warper = TopHLogitsWarper::new(0.5, f64::NEG_INFINITY).unwrap();
        assert_eq!(process(&warper, &[], &[f32::NEG_INFINITY; 3]), [f32::NEG_INFINITY; 3]);
    }

    #[test]
    fn impossible_values_are_refused() {
        for bad in [0.0, -0.1, 1.1, f64::NAN] {
            let error = TopHLogitsWarper::new(bad, 0.0).unwrap_err().to_string();
            assert!(error.starts_with("`top_h` must be a number above 0 and at most 1, but is"), "{error}");
        }
        let old = GenerationConfig::new().top_h(0.5).compat(Compat::V4_49);
        let error = TopHLogitsWarper::from_config(&resolved(&old)).unwrap_err().to_string();
        assert!(error.contains("`top_h` must be unset with compat=\"4.49\""), "{error}");
    }
}
