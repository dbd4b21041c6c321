//! Reductions over a row of scores in the order of torch, and its functions outside of softmax.
//!
//! Where a sum decides which tokens stay, it has the bits of torch on a machine with AVX-512: [`sum`] and
//! [`cumulated`] add in torch's order.

use super::isa::Isa;
use super::softmax::{block_maxima, maximum, softmax};

/// The number of values of which [`bound_of_largest`] looks at the largest.
pub const BOUND_BLOCK: usize = 256;

/// A value that at least `k` of the `values` reach and, in a row of usual scores, few more than that; `None`
/// where they are too few for it to be worth looking for. They hold no NaN.
pub fn bound_of_largest(isa: Isa, values: &[f32], k: usize) -> Option<f32> {
    /// How many more blocks there are than values wanted.
    const MORE: usize = 4;
    let num_blocks = values.len().div_ceil(BOUND_BLOCK);
    if k == 0 || num_blocks < MORE * k {
        return None;
    }
    // Of so many blocks, `k` have a maximum that is as large as the `k`-th largest maximum.
    let mut maxima = vec![0.0; num_blocks];
    block_maxima(isa, values, BOUND_BLOCK, &mut maxima);
    let (_, bound, _) = maxima.select_nth_unstable_by(k - 1, |a, b| b.total_cmp(a));
    Some(*bound)
}

/// The softmax of `len` values of which all but `middle` are negative infinity, `before` of them in front:
/// the probabilities of `middle`. In which lane of torch's sum a value is added depends on its place among
/// all.
pub fn softmax_of_middle(isa: Isa, middle: &[f32], before: usize, len: usize) -> Vec<f32> {
    let lanes = SOFTMAX_LANES;
    let in_front = before % lanes + if before >= lanes { lanes } else { 0 };
    let behind = (len - before - middle.len()).min(lanes);
    let mut row = vec![f32::NEG_INFINITY; in_front];
    row.extend_from_slice(middle);
    row.resize(in_front + middle.len() + behind, f32::NEG_INFINITY);
    softmax(isa, &mut row);
    row.truncate(in_front + middle.len());
    row.split_off(in_front)
}

/// The running sums of `values`: torch accumulates those of float32 in float64 and rounds each.
pub fn cumulated(values: &[f32]) -> impl Iterator<Item = f32> {
    values.iter().scan(0.0_f64, |sum, &value| {
        *sum += f64::from(value);
        Some(*sum as f32)
    })
}

/// The number of accumulators of torch's softmax.
const SOFTMAX_LANES: usize = 16;
/// How many sums a vector of `torch.sum` holds: that has no code of its own for AVX-512.
const SUM_LANES: usize = 8;
/// How many such vectors it adds to in turn.
const SUM_VECTORS: usize = 4;

/// The sum of `values` as `torch.sum` over a row has it: sums of sums, so that rounding does not pile up.
pub fn sum(values: &[f32]) -> f32 {
    if values.len() < SUM_LANES {
        return sum_in_turn(values.len(), |index| [values[index]])[0];
    }
    let (vectors, rest) = values.as_chunks::<SUM_LANES>();
    let lanes = sum_in_turn(vectors.len(), |index| vectors[index]);
    let rest = rest.iter().fold(0.0, |sum, value| sum + value);
    lanes.into_iter().fold(rest, |sum, lane| sum + lane)
}

/// The sum of `count` vectors, added to `SUM_VECTORS` sums in turn.
fn sum_in_turn<const N: usize>(count: usize, vector: impl Fn(usize) -> [f32; N]) -> [f32; N] {
    let rounds = count / SUM_VECTORS;
    let mut sums: [[f32; N]; SUM_VECTORS] =
        std::array::from_fn(|place| sum_in_levels(rounds, |round| vector(round * SUM_VECTORS + place)));
    for index in rounds * SUM_VECTORS..count {
        add(&mut sums[0], &vector(index));
    }
    let (first, others) = sums.split_at_mut(1);
    for other in others {
        add(&mut first[0], other);
    }
    sums[0]
}

/// The sum of `count` vectors in four levels: each takes over the sum of the one below after a number of
/// additions.
fn sum_in_levels<const N: usize>(count: usize, vector: impl Fn(usize) -> [f32; N]) -> [f32; N] {
    const LEVELS: u32 = 4;
    let log2 = count.max(1).next_power_of_two().ilog2();
    let power = (log2 / LEVELS).max(4);
    let step = 1 << power;
    let mut sums = [[0.0; N]; LEVELS as usize];
    let mut index = 0;
    while index + step <= count {
        for _ in 0..step {
            add(&mut sums[0], &vector(index));
            index += 1;
        }
        for level in 1..LEVELS {
            let below = std::mem::replace(&mut sums[level as usize - 1], [0.0; N]);
            add(&mut sums[level as usize], &below);
            if index & ((step - 1) << (level * power)) != 0 {
                break;
            }
        }
    }
    for index in index..count {
        add(&mut sums[0], &vector(index));
    }
    let [mut sum, others @ ..] = sums;
    for other in &others {
        add(&mut sum, other);
    }
    sum
}

fn add<const N: usize>(sum: &mut [f32; N], values: &[f32; N]) {
    for (sum, value) in sum.iter_mut().zip(values) {
        *sum += value;
    }
}

/// `e^value`, correctly rounded in all but a few cases, as torch has it outside of its softmax.
pub fn exp(value: f32) -> f32 {
    f64::from(value).exp() as f32
}

/// The natural logarithm, correctly rounded in all but a few cases.
pub fn ln(value: f32) -> f32 {
    f64::from(value).ln() as f32
}

/// `ln(sum(exp(values)))` as `torch.logsumexp` has it; the largest value must be finite.
pub fn torch_log_sum_exp(isa: Isa, values: &[f32]) -> f32 {
    let largest = maximum(isa, values);
    let exponentials: Vec<f32> = values.iter().map(|&value| exp(value - largest)).collect();
    ln(sum(&exponentials)) + largest
}

/// The entropy of the distribution with these logits, in nats, as `torch.distributions.Categorical` has it;
/// the largest logit must be finite.
pub fn entropy(isa: Isa, logits: &[f32]) -> f32 {
    let normalizer = torch_log_sum_exp(isa, logits);
    let logits: Vec<f32> = logits.iter().map(|logit| logit - normalizer).collect();
    let mut terms = logits.clone();
    softmax(isa, &mut terms);
    for (term, logit) in terms.iter_mut().zip(logits) {
        *term *= logit.max(f32::MIN);
    }
    -sum(&terms)
}

/// The sum of the products of two vectors of the same length.
pub fn dot(a: &[f32], b: &[f32]) -> f32 {
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
pub fn normalize(vector: &mut [f32]) {
    let length = dot(vector, vector).sqrt();
    for value in vector {
        *value /= length;
    }
}

/// The `k`-th largest value, `k` from 1, at most the length; NaN counts as larger than any number, as in
/// torch.
pub fn kth_largest(isa: Isa, values: &[f32], k: usize) -> f32 {
    if k == 1 {
        return maximum(isa, values);
    }
    // All NaN count as positive.
    let mut copy: Vec<f32> =
        values.iter().map(|value| if value.is_nan() { f32::NAN } else { *value }).collect();
    let (_, threshold, _) = copy.select_nth_unstable_by(k - 1, |a, b| b.total_cmp(a));
    *threshold
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAN: f32 = f32::NAN;
    const INF: f32 = f32::INFINITY;

    fn isa() -> Isa {
        Isa::select().unwrap()
    }

    #[test]
    fn the_kth_largest_counts_ties() {
        assert_eq!(kth_largest(isa(), &[3.0, 1.0, 3.0, 2.0], 1), 3.0);
        assert_eq!(kth_largest(isa(), &[3.0, 1.0, 3.0, 2.0], 2), 3.0);
        assert_eq!(kth_largest(isa(), &[3.0, 1.0, 3.0, 2.0], 3), 2.0);
        assert_eq!(kth_largest(isa(), &[3.0, 1.0, 3.0, -INF], 4), -INF);
        assert_eq!(kth_largest(isa(), &[3.0, -NAN, 1.0], 2), 3.0);
        assert!(kth_largest(isa(), &[NAN, -NAN, 1.0], 2).is_nan());
    }

    #[test]
    fn as_many_as_wanted_reach_the_bound() {
        for values in [
            (0..5000).map(|i| i as f32).collect::<Vec<_>>(),
            (0..5000).rev().map(|i| i as f32).collect(),
            (0..5001).map(|i| (i * 7919 % 1009) as f32).collect(),
            vec![0.0; 5000],
            vec![-INF; 5000],
        ] {
            for k in [1, 2, 4] {
                let bound = bound_of_largest(isa(), &values, k).unwrap();
                assert!(values.iter().filter(|value| **value >= bound).count() >= k);
                assert!(bound <= kth_largest(isa(), &values, k));
            }
            assert_eq!(bound_of_largest(isa(), &values, 0), None);
            assert_eq!(bound_of_largest(isa(), &values, 6), None);
        }
    }

    // x = (torch.arange(n) * 7919 + 13) % 1009 * 0.03 - 15: x.sum(), as bits, torch 2.13
    #[test]
    fn sums_are_those_of_torch() {
        for (len, expected) in [
            (5, 0x4008_51e8),
            (17, 0x40a7_0a34),
            (100, 0xc1d0_51fa_u32),
            (1000, 0x4308_d466),
            (5000, 0x4415_a980),
            (70_000, 0x4603_25c0),
        ] {
            let values: Vec<f32> =
                (0..len).map(|index| ((index * 7919 + 13) % 1009) as f32 * 0.03 - 15.0).collect();
            assert_eq!(sum(&values).to_bits(), expected, "{len}");
        }
    }

    #[test]
    fn a_row_in_the_middle_of_removed_ones_has_the_probabilities_it_has_there() {
        for (before, count, behind) in
            [(0, 5, 0), (3, 5, 9), (17, 5, 0), (40, 30, 7), (5, 100, 40), (0, 3, 20)]
        {
            let middle: Vec<f32> = (0..count).map(|index| (index * 7919 % 1009) as f32 * 0.01).collect();
            let mut all = vec![-INF; before + middle.len() + behind];
            all[before..][..middle.len()].copy_from_slice(&middle);
            let probabilities = softmax_of_middle(isa(), &middle, before, all.len());
            softmax(isa(), &mut all);
            assert_eq!(probabilities, all[before..][..middle.len()]);
        }
    }

    #[test]
    fn the_entropy_of_equals_is_the_logarithm_of_their_number() {
        for len in [1, 2, 16, 1000] {
            assert!((entropy(isa(), &vec![-3.0; len]) - (len as f32).ln()).abs() < 1e-5);
        }
        assert_eq!(entropy(isa(), &[-INF, 2.0, -INF]), 0.0);
    }
}
