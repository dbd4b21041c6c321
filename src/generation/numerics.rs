//! The reductions over a row of scores that searches and processors use: kernels, on the selected instruction set.

use std::sync::LazyLock;

pub(super) use crate::kernels::torch_reduce::{cumulated, dot, exp, ln, normalize, sum};
use crate::kernels::{self, Isa, torch_reduce};

/// The instruction set; all give the same bits. An invalid choice in the environment is an error when a model is
/// opened.
static ISA: LazyLock<Isa> = LazyLock::new(|| Isa::select().unwrap_or_else(|_| Isa::available()[0]));

/// The index of the largest value, the lowest one on ties; a NaN counts as largest, as in `torch.argmax`. 0
/// when empty.
pub(super) fn argmax(values: &[f32]) -> usize {
    kernels::argmax(*ISA, values)
}

/// The largest value; NaN if there is one, negative infinity when empty.
pub(super) fn maximum(values: &[f32]) -> f32 {
    kernels::maximum(*ISA, values)
}

/// A lower bound that at least `k` of the `values` reach and, in usual scores, few more; `None` where there are too
/// few values to gain from it. The values must hold no NaN.
pub(super) fn bound_of_largest(values: &[f32], k: usize) -> Option<f32> {
    torch_reduce::bound_of_largest(*ISA, values, k)
}

/// `ln(sum(exp(values)))`. Not finite exactly when a value is NaN or infinity, or when all are negative infinity.
pub(super) fn log_sum_exp(values: &[f32]) -> f32 {
    kernels::log_sum_exp(*ISA, values)
}

/// The softmax of `values` into `probabilities`, of the same length; NaN everywhere when the largest is not
/// finite.
pub(super) fn softmax_into(values: &[f32], probabilities: &mut [f32]) {
    probabilities.copy_from_slice(values);
    kernels::softmax(*ISA, probabilities);
}

/// The softmax of `values`; NaN everywhere when the largest is not finite.
pub(super) fn softmax(values: &[f32]) -> Vec<f32> {
    let mut probabilities = values.to_vec();
    kernels::softmax(*ISA, &mut probabilities);
    probabilities
}

/// Replaces `values` by the logarithms of their softmax; NaN everywhere when the largest is not finite.
pub(super) fn log_softmax(values: &mut [f32]) {
    kernels::log_softmax(*ISA, values);
}

/// The softmax of `len` values of which all but `middle` are negative infinity, `before` of them in front: the
/// probabilities of `middle`. The index of a value among all of them decides in which lane of torch's sum it is
/// added.
pub(super) fn softmax_of_middle(middle: &[f32], before: usize, len: usize) -> Vec<f32> {
    torch_reduce::softmax_of_middle(*ISA, middle, before, len)
}

/// `ln(sum(exp(values)))` as `torch.logsumexp` has it; the largest value must be finite.
pub(super) fn torch_log_sum_exp(values: &[f32]) -> f32 {
    torch_reduce::torch_log_sum_exp(*ISA, values)
}

/// The entropy of the distribution with these logits, in nats, as `torch.distributions.Categorical` has it; the largest
/// logit must be finite.
pub(super) fn entropy(logits: &[f32]) -> f32 {
    torch_reduce::entropy(*ISA, logits)
}

/// The `k`-th largest value, `k` from 1, at most the length; NaN counts as larger than any number, as in torch.
pub(super) fn kth_largest(values: &[f32], k: usize) -> f32 {
    torch_reduce::kth_largest(*ISA, values, k)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAN: f32 = f32::NAN;
    const INF: f32 = f32::INFINITY;

    #[test]
    fn argmax_takes_the_lowest_index_on_ties_and_the_first_nan() {
        assert_eq!(argmax(&[1.0, 3.0, 3.0]), 1);
        assert_eq!(argmax(&[INF, NAN, 5.0, NAN]), 1);
        assert_eq!(argmax(&[-INF, -INF]), 0);
        assert_eq!(argmax(&[-INF, -1e38]), 1);
    }

    #[test]
    fn log_sum_exp_is_stable_and_shows_what_is_not_finite() {
        assert!((log_sum_exp(&[1000.0, 1000.0]) - (1000.0 + 2.0_f32.ln())).abs() < 1e-4);
        assert_eq!(log_sum_exp(&[-INF, 2.0]), 2.0);
        assert_eq!(log_sum_exp(&[-INF, -INF]), -INF);
        assert_eq!(log_sum_exp(&[0.0, INF]), INF);
        assert!(log_sum_exp(&[0.0, NAN]).is_nan());
    }

    #[test]
    fn softmax_sums_to_one_and_is_nan_for_rows_without_a_finite_maximum() {
        let mut p = [0.0; 4];
        softmax_into(&[1.0, 2.0, -INF, 100.0], &mut p);
        assert_eq!(p[2], 0.0);
        assert!((p.iter().sum::<f32>() - 1.0).abs() < 1e-6);
        softmax_into(&[-INF; 4], &mut p);
        assert!(p.iter().all(|p| p.is_nan()));
    }
}
