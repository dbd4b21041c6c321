//! The few reductions over a row of scores that searches and processors need, in plain Rust.
//!
//! The one place to exchange for kernel calls: nothing else in this layer loops over a vocabulary to sum or
//! to compare. Sums run in float64 in index order, so a row's result depends on that row alone.

/// The index of the largest value, the lowest one on ties; a NaN counts as largest, as in `torch.argmax`. 0
/// when empty.
pub(super) fn argmax(values: &[f32]) -> usize {
    let mut best = 0;
    let mut largest = f32::NEG_INFINITY;
    for (index, &value) in values.iter().enumerate() {
        if value > largest {
            (best, largest) = (index, value);
        } else if value.is_nan() {
            return index;
        }
    }
    best
}

/// The largest value; NaN if there is one, negative infinity when empty.
pub(super) fn maximum(values: &[f32]) -> f32 {
    let mut largest = f32::NEG_INFINITY;
    let mut any_nan = false;
    for &value in values {
        any_nan |= value.is_nan();
        largest = largest.max(value);
    }
    if any_nan { f32::NAN } else { largest }
}

/// `ln(sum(exp(values)))`. Not finite exactly when a value is NaN or infinity, or when all are negative infinity.
pub(super) fn log_sum_exp(values: &[f32]) -> f32 {
    let largest = maximum(values);
    if !largest.is_finite() {
        return largest;
    }
    let sum: f64 = values.iter().map(|&value| f64::from((value - largest).exp())).sum();
    (f64::from(largest) + sum.ln()) as f32
}

/// The softmax of `values` into `probabilities`, of the same length; NaN everywhere when the largest is not
/// finite.
///
/// Multiplies by the reciprocal of the sum, which is what torch's CPU kernel does.
pub(super) fn softmax_into(values: &[f32], probabilities: &mut [f32]) {
    debug_assert_eq!(values.len(), probabilities.len());
    let largest = maximum(values);
    if !largest.is_finite() {
        probabilities.fill(f32::NAN);
        return;
    }
    let mut sum = 0.0_f64;
    for (probability, &value) in probabilities.iter_mut().zip(values) {
        *probability = (value - largest).exp();
        sum += f64::from(*probability);
    }
    let scale = 1.0 / sum as f32;
    for probability in probabilities {
        *probability *= scale;
    }
}

/// The sum of the products of two vectors of the same length.
pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
    const LANES: usize = 16;
    let mut sums = [0.0_f32; LANES];
    let (chunks, others) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let mut rest: f32 = chunks.remainder().iter().zip(others.remainder()).map(|(a, b)| a * b).sum();
    for (a, b) in chunks.zip(others) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    for sum in sums {
        rest += sum;
    }
    rest
}

/// Scales a vector to length 1; all NaN for a zero vector, as in torch.
pub(super) fn normalize(vector: &mut [f32]) {
    let length = dot(vector, vector).sqrt();
    for value in vector {
        *value /= length;
    }
}

/// The `k`-th largest value, `k` from 1, at most the length; the values must hold no NaN.
pub(super) fn kth_largest(values: &[f32], k: usize) -> f32 {
    if k == 1 {
        return maximum(values);
    }
    let mut copy = values.to_vec();
    let (_, threshold, _) = copy.select_nth_unstable_by(k - 1, |a, b| b.total_cmp(a));
    *threshold
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

    #[test]
    fn the_kth_largest_counts_ties() {
        assert_eq!(kth_largest(&[3.0, 1.0, 3.0, 2.0], 1), 3.0);
        assert_eq!(kth_largest(&[3.0, 1.0, 3.0, 2.0], 2), 3.0);
        assert_eq!(kth_largest(&[3.0, 1.0, 3.0, 2.0], 3), 2.0);
        assert_eq!(kth_largest(&[3.0, 1.0, 3.0, -INF], 4), -INF);
    }
}
