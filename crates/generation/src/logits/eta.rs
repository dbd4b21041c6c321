//! Eta sampling: tokens of at least a probability that falls with the entropy, as in transformers'
//! `EtaLogitsWarper`.

use rsgen_core::Result;
use rsgen_kernels::maximum;
use rsgen_kernels::torch_reduce::{entropy, exp};

use super::super::resolved::ResolvedConfig;
use super::filter::{Filter, cutoff, is_cutoff};
use super::{BuiltIn, LogitsProcessor, RowContext};

/// Removes tokens whose probability is below a limit, but never the best ones: epsilon, or less where the
/// entropy is high.
#[derive(Debug, Clone)]
pub struct EtaLogitsWarper {
    epsilon: f32,
    filter: Filter,
}

impl EtaLogitsWarper {
    /// Removes tokens less probable than `epsilon`, or than `sqrt(epsilon) * exp(-entropy)` if that is less.
    ///
    /// # Errors
    /// When `epsilon` is not between 0 and 1, or `min_tokens_to_keep` is 0.
    pub fn new(epsilon: f64, filter_value: f64, min_tokens_to_keep: usize) -> Result<Self> {
        Ok(Self {
            epsilon: cutoff("eta_cutoff", epsilon)?,
            filter: Filter::new(filter_value, min_tokens_to_keep)?,
        })
    }
}

impl BuiltIn for EtaLogitsWarper {
    fn from_config(config: &ResolvedConfig) -> Result<Option<Self>> {
        let epsilon = config.fields.eta_cutoff.filter(|&epsilon| is_cutoff(epsilon));
        let new = |epsilon| Self::new(epsilon, f64::NEG_INFINITY, config.min_tokens_to_keep());
        epsilon.map(new).transpose()
    }
}

impl LogitsProcessor for EtaLogitsWarper {
    fn process_row(&self, scores: &mut [f32], row: &mut RowContext<'_>) -> Result<()> {
        if !maximum(row.isa, scores).is_finite() {
            return Ok(());
        }
        let limit = self.epsilon.min(self.epsilon.sqrt() * exp(-entropy(row.isa, scores)));
        self.filter.remove_improbable(row.isa, scores, limit);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{FIRST, SECOND, kept, process};
    use super::*;

    // EtaLogitsWarper(epsilon, min_tokens_to_keep=n)(ids, scores), transformers 5.23
    #[test]
    fn improbable_tokens_go_as_in_transformers() {
        let expected: [(f64, usize, &[usize], &[usize]); 6] = [
            (0.01, 1, &[0, 2, 3, 4, 5, 7], &[0, 1, 2, 3, 4, 6, 7]),
            (0.1, 1, &[3, 5], &[3, 4, 6, 7]),
            (0.3, 1, &[3, 5], &[3, 4, 7]),
            (0.9, 1, &[3, 5], &[3, 4]),
            (0.3, 3, &[0, 3, 5], &[3, 4, 7]),
            (0.9, 3, &[0, 3, 5], &[3, 4, 7]),
        ];
        for (epsilon, n, first, second) in expected {
            let warper = EtaLogitsWarper::new(epsilon, f64::NEG_INFINITY, n).unwrap();
            assert_eq!(kept(&process(&warper, &[], &FIRST)), first, "{epsilon}, {n}");
            assert_eq!(kept(&process(&warper, &[], &SECOND)), second, "{epsilon}, {n}");
        }
    }

    #[test]
    fn rows_without_a_finite_maximum_are_left_to_the_search() {
        let warper = EtaLogitsWarper::new(0.5, f64::NEG_INFINITY, 1).unwrap();
        assert_eq!(process(&warper, &[], &[f32::NEG_INFINITY; 3]), [f32::NEG_INFINITY; 3]);
    }

    #[test]
    fn values_outside_of_0_to_1_are_refused() {
        for bad in [0.0, -0.1, 1.0, f64::NAN] {
            let error = EtaLogitsWarper::new(bad, 0.0, 1).unwrap_err().to_string();
            assert!(
                error.starts_with("`eta_cutoff` must be a number above 0 and below 1, but is"),
                "{error}"
            );
        }
        assert!(EtaLogitsWarper::new(0.5, 0.0, 0).unwrap_err().to_string().contains("`min_tokens_to_keep`"));
    }
}
