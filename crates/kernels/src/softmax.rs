//! Softmax, its logarithm, log-sum-exp, maxima and argmax over a row of scores, such as the logits of one
//! token.
//!
//! Softmax and its logarithm have the bits of torch on a machine with AVX-512, so that tokens at a top-p
//! boundary stay or go as in torch.

use super::isa::Isa;
use super::math::exp;
use super::reduce::{self, sum_lanes, vectors};
use super::simd::{LANES, Simd, SimdOp};
use super::vector_math;

/// Replaces `scores` by their softmax.
///
/// A row without a finite maximum (NaN, `+inf`, or all `-inf`) becomes NaN throughout.
pub fn softmax(isa: Isa, scores: &mut [f32]) {
    isa.run(Softmax(scores));
}

/// Replaces `scores` by the logarithms of their softmax.
///
/// A row without a finite maximum (NaN, `+inf`, or all `-inf`) becomes NaN throughout.
pub fn log_softmax(isa: Isa, scores: &mut [f32]) {
    isa.run(LogSoftmax(scores));
}

/// `ln(sum(exp(scores)))`, computed without overflow. NaN if there is a NaN, else `+inf` if there is one;
/// `-inf` for a row of `-inf`.
pub fn log_sum_exp(isa: Isa, scores: &[f32]) -> f32 {
    isa.run(LogSumExp(scores))
}

/// The largest score; NaN if there is one, `-inf` for an empty slice.
pub fn maximum(isa: Isa, scores: &[f32]) -> f32 {
    isa.run(Maximum(scores))
}

/// The largest of each `block` scores, the last block being shorter if need be. The scores hold no NaN.
///
/// # Panics
/// When the maxima are not as many as the blocks.
pub fn block_maxima(isa: Isa, scores: &[f32], block: usize, maxima: &mut [f32]) {
    assert_eq!(maxima.len(), scores.len().div_ceil(block), "a maximum for each block");
    isa.run(BlockMaxima { scores, block, maxima });
}

/// The index of the largest score, the lowest one on ties; the first NaN wins over every number, as in torch.
///
/// Returns 0 for an empty slice.
pub fn argmax(isa: Isa, scores: &[f32]) -> usize {
    isa.run(Argmax(scores))
}

struct Softmax<'a>(&'a mut [f32]);

impl SimdOp for Softmax<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let max = reduce::max(s, self.0);
        if !is_row_of_numbers(self.0, max) {
            self.0.fill(f32::NAN);
            return;
        }
        exp_below(s, self.0, max);
        let scale = 1.0 / sum(s, self.0);
        let (full, rest) = self.0.as_chunks_mut::<LANES>();
        for vector in full {
            s.store(s.mul(s.load(vector), s.splat(scale)), vector);
        }
        for value in rest {
            *value *= scale;
        }
    }
}

struct LogSoftmax<'a>(&'a mut [f32]);

impl SimdOp for LogSoftmax<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let max = reduce::max(s, self.0);
        if !is_row_of_numbers(self.0, max) {
            self.0.fill(f32::NAN);
            return;
        }
        let mut exponentials = self.0.to_vec();
        exp_below(s, &mut exponentials, max);
        let log_sum = vector_math::log(sum(s, &exponentials));
        for value in self.0 {
            *value = *value - max - log_sum;
        }
    }
}

/// Whether the largest score is finite and none is NaN.
#[inline(always)]
fn is_row_of_numbers(x: &[f32], max: f32) -> bool {
    max.is_finite() && !any_nan(x)
}

/// Replaces each `x` by `exp(x - max)`.
#[inline(always)]
fn exp_below<S: Simd>(s: S, x: &mut [f32], max: f32) {
    let shift = s.splat(max);
    let (full, rest) = x.as_chunks_mut::<LANES>();
    for vector in full {
        s.store(vector_math::exp(s, s.sub(s.load(vector), shift)), vector);
    }
    let mut padded = [max; LANES];
    padded[..rest.len()].copy_from_slice(rest);
    s.store(vector_math::exp(s, s.sub(s.load(&padded), shift)), &mut padded);
    rest.copy_from_slice(&padded[..rest.len()]);
}

/// The sum in torch's order: fewer elements than lanes one after the other.
#[inline(always)]
fn sum<S: Simd>(s: S, x: &[f32]) -> f32 {
    if x.len() < LANES {
        return x.iter().sum();
    }
    let (full, last) = vectors(x, 0.0);
    let mut lanes = s.splat(0.0);
    for vector in full.iter().chain(&last) {
        lanes = s.add(lanes, s.load(vector));
    }
    sum_lanes(s, lanes)
}

/// Replaces each `x` by `exp(x - max)` and returns the sum.
#[inline(always)]
pub(crate) fn exp_and_sum<S: Simd>(s: S, x: &mut [f32], max: f32) -> f32 {
    let shift = s.splat(max);
    let mut lanes = s.splat(0.0);
    let (full, rest) = x.as_chunks_mut::<LANES>();
    for vector in full {
        let e = exp(s, s.sub(s.load(vector), shift));
        s.store(e, vector);
        lanes = s.add(lanes, e);
    }
    if !rest.is_empty() {
        let mut padded = [f32::NEG_INFINITY; LANES];
        padded[..rest.len()].copy_from_slice(rest);
        let e = exp(s, s.sub(s.load(&padded), shift));
        s.store(e, &mut padded);
        rest.copy_from_slice(&padded[..rest.len()]);
        lanes = s.add(lanes, e);
    }
    sum_lanes(s, lanes)
}

struct LogSumExp<'a>(&'a [f32]);

impl SimdOp for LogSumExp<'_> {
    type Output = f32;

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) -> f32 {
        let max = maximum_of(s, self.0);
        if !max.is_finite() {
            return max;
        }
        // A lane takes a few terms in `f32`, and no more than that, so that a long row is as exact as a short
        // one.
        let mut total = 0.0_f64;
        for block in self.0.chunks(SUMMED_TOGETHER) {
            let (full, last) = vectors(block, f32::NEG_INFINITY);
            let mut lanes = s.splat(0.0);
            for vector in full.iter().chain(&last) {
                lanes = s.add(lanes, exp(s, s.sub(s.load(vector), s.splat(max))));
            }
            total += f64::from(sum_lanes(s, lanes));
        }
        (f64::from(max) + total.ln()) as f32
    }
}

/// The scores whose exponentials are summed in `f32`.
const SUMMED_TOGETHER: usize = 16 * LANES;

struct Maximum<'a>(&'a [f32]);

impl SimdOp for Maximum<'_> {
    type Output = f32;

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) -> f32 {
        maximum_of(s, self.0)
    }
}

/// The largest score, or NaN. Two passes that vectorize, rather than one that does not.
#[inline(always)]
fn maximum_of<S: Simd>(s: S, x: &[f32]) -> f32 {
    let max = reduce::max(s, x);
    if any_nan(x) { f32::NAN } else { max }
}

#[inline(always)]
fn any_nan(x: &[f32]) -> bool {
    x.iter().fold(false, |any, value| any | value.is_nan())
}

struct BlockMaxima<'a> {
    scores: &'a [f32],
    block: usize,
    maxima: &'a mut [f32],
}

impl SimdOp for BlockMaxima<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        for (scores, max) in self.scores.chunks(self.block).zip(self.maxima) {
            *max = reduce::max(s, scores);
        }
    }
}

struct Argmax<'a>(&'a [f32]);

impl SimdOp for Argmax<'_> {
    type Output = usize;

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) -> usize {
        let max = maximum_of(s, self.0);
        let wanted = |value: &f32| if max.is_nan() { value.is_nan() } else { *value == max };
        self.0.iter().position(wanted).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scalar;

    fn row(len: usize) -> Vec<f32> {
        (0..len).map(|i| ((i * 7919 + 13) % 1009) as f32 * 0.03 - 15.0).collect()
    }

    /// A number that all bits of a row go into.
    fn digest(row: &[f32]) -> u32 {
        row.iter().fold(0, |digest: u32, value| digest.wrapping_mul(31).wrapping_add(value.to_bits()))
    }

    #[test]
    fn softmax_equals_its_twin_and_is_equal_on_every_instruction_set() {
        for len in [1, 2, 15, 16, 17, 100, 2048, 2049] {
            let mut expected = row(len);
            scalar::softmax(&mut expected);
            let results: Vec<Vec<f32>> = Isa::available()
                .into_iter()
                .map(|isa| {
                    let mut x = row(len);
                    softmax(isa, &mut x);
                    x
                })
                .collect();
            for (i, &value) in expected.iter().enumerate() {
                assert!((results[0][i] - value).abs() <= 2e-6 * value.max(1e-6), "{len}: {i}");
            }
            assert!(results.iter().all(|other| *other == results[0]));
        }
    }

    // torch.softmax and torch.log_softmax of torch 2.13 with AVX-512, as bits
    #[test]
    fn softmax_has_the_bits_of_torch() {
        for isa in Isa::available() {
            for (len, probabilities, logs) in [
                (5, 1_994_012_722, 226_732_369),
                (17, 2_257_237_786, 87_466_701),
                (40, 902_621_808, 1_605_640_219),
            ] {
                let (mut p, mut log) = (row(len), row(len));
                softmax(isa, &mut p);
                log_softmax(isa, &mut log);
                assert_eq!((digest(&p), digest(&log)), (probabilities, logs), "{len} on {isa:?}");
            }
        }
    }

    #[test]
    fn log_softmax_is_the_logarithm_and_equal_on_every_instruction_set() {
        for len in [1, 2, 15, 16, 17, 100, 2049] {
            let results = Isa::available().into_iter().map(|isa| {
                let (mut probabilities, mut logs) = (row(len), row(len));
                softmax(isa, &mut probabilities);
                log_softmax(isa, &mut logs);
                for (p, log) in probabilities.iter().zip(&logs) {
                    assert!((p.ln() - log).abs() < 2e-6 * log.abs().max(1.0), "{len}: {p} {log}");
                }
                logs
            });
            let results: Vec<_> = results.collect();
            assert!(results.iter().all(|other| *other == results[0]));
        }
    }

    #[test]
    fn rows_without_a_finite_maximum_become_nan() {
        for isa in Isa::available() {
            for mut row in [vec![f32::NEG_INFINITY; 20], vec![0.0, f32::NAN, 1.0], vec![f32::INFINITY, 0.0]] {
                let mut logs = row.clone();
                softmax(isa, &mut row);
                log_softmax(isa, &mut logs);
                assert!(row.iter().chain(&logs).all(|value| value.is_nan()));
            }
        }
    }

    #[test]
    fn log_sum_exp_equals_its_twin_and_handles_the_infinities() {
        for isa in Isa::available() {
            for len in [1, 5, 16, 33, 4096, 50_000] {
                let x = row(len);
                assert!((log_sum_exp(isa, &x) - scalar::log_sum_exp(&x)).abs() < 2e-6);
            }
            assert_eq!(log_sum_exp(isa, &[f32::NEG_INFINITY; 20]), f32::NEG_INFINITY);
            assert_eq!(log_sum_exp(isa, &[0.0, f32::INFINITY]), f32::INFINITY);
            assert!(log_sum_exp(isa, &[0.0, f32::NAN, 1.0]).is_nan());
            assert!(log_sum_exp(isa, &[f32::NEG_INFINITY, f32::NAN]).is_nan());
            let masked = [f32::NEG_INFINITY, 3.0, f32::NEG_INFINITY];
            assert_eq!(log_sum_exp(isa, &masked), 3.0);
        }
    }

    #[test]
    fn maxima_are_those_of_the_row_and_of_its_blocks() {
        for isa in Isa::available() {
            for len in [1, 15, 16, 100, 1000] {
                let x = row(len);
                assert_eq!(maximum(isa, &x), x.iter().copied().fold(f32::NEG_INFINITY, f32::max));
                for block in [1, 16, 30, 2000] {
                    let mut maxima = vec![0.0; len.div_ceil(block)];
                    block_maxima(isa, &x, block, &mut maxima);
                    let expected: Vec<f32> = x.chunks(block).map(|block| maximum(isa, block)).collect();
                    assert_eq!(maxima, expected);
                }
            }
            assert_eq!(maximum(isa, &[]), f32::NEG_INFINITY);
            assert!(maximum(isa, &[1.0, f32::NAN, 2.0]).is_nan());
        }
    }

    #[test]
    fn argmax_takes_the_lowest_index_on_ties_and_the_first_nan() {
        for isa in Isa::available() {
            let mut x = row(100);
            (x[40], x[77]) = (99.0, 99.0);
            assert_eq!(argmax(isa, &x), 40);
            x[90] = f32::NAN;
            assert_eq!(argmax(isa, &x), 90);
            assert_eq!(argmax(isa, &[f32::NEG_INFINITY; 3]), 0);
            assert_eq!(argmax(isa, &[]), 0);
        }
    }
}
