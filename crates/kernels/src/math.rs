//! The exponential function and its relatives in 16 lanes, as the forward pass uses them: fast, and without
//! subnormal results.

use super::simd::Simd;

/// `1.5 * 2^23`: adding it to a small number rounds that number to an integer, in the low bits of the result.
const ROUND: f32 = 12_582_912.0;
/// `ln 2` split in two, the first with few enough bits that its product with an integer below 128 is exact.
const LN2_HIGH: f32 = 0.693_359_4;
const LN2_LOW: f32 = -2.121_944_4e-4;
/// Below this, the result is 0 (an `f32` would be subnormal); above the other, it stays finite.
const LOWEST: f32 = -88.0;
const HIGHEST: f32 = 88.0;
/// The coefficients of `(e^r - 1 - r) / r^2` for |r| <= ln(2) / 2, highest power first: those of the Taylor
/// series adjusted to the interval, as in the Cephes library's `expf`.
const COEFFICIENTS: [f32; 6] =
    [1.987_569_1e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 5e-1];

/// `-ln(erfc(x)) / x` for x from 0 to 3.95, highest power first, fitted to the least relative error of
/// [`erf_of_positive`]: 2e-7.
const ERF: [f32; 8] = [
    4.070_334e-5,
    -3.809_719_6e-4,
    1.251_678_8e-3,
    2.057_925_4e-4,
    -1.932_175_8e-2,
    1.028_144_2e-1,
    6.366_164_7e-1,
    1.128_379_2,
];
/// Beyond this, `erf` is 1.
const ERF_HIGHEST: f32 = 3.95;

/// `e^x`; 0 below -88 (so for -inf too), `e^88` above 88, NaN for NaN.
#[inline(always)]
pub(crate) fn exp<S: Simd>(s: S, x: S::F) -> S::F {
    let (p, power) = exp_parts(s, x);
    s.mul(s.add(p, s.splat(1.0)), power)
}

/// `e^x - 1`, exact near 0 as well; -1 below -88, `e^88` above 88.
#[inline(always)]
pub(crate) fn exp_m1<S: Simd>(s: S, x: S::F) -> S::F {
    let (p, power) = exp_parts(s, x);
    s.fma(p, power, s.sub(power, s.splat(1.0)))
}

/// `p` and `2^n` with `e^x = (1 + p) 2^n`.
#[inline(always)]
fn exp_parts<S: Simd>(s: S, x: S::F) -> (S::F, S::F) {
    // The order of the arguments lets NaN through.
    let x = s.min(s.splat(HIGHEST), s.max(s.splat(LOWEST), x));
    let shifted = s.fma(x, s.splat(std::f32::consts::LOG2_E), s.splat(ROUND));
    let n = s.sub(shifted, s.splat(ROUND));
    let r = s.fma(n, s.splat(-LN2_HIGH), x);
    let r = s.fma(n, s.splat(-LN2_LOW), r);
    let r2 = s.mul(r, r);
    (s.fma(polynomial(s, r, &COEFFICIENTS), r2, r), s.exp2_biased(shifted))
}

/// The error function of a number that is not negative.
#[inline(always)]
pub(crate) fn erf_of_positive<S: Simd>(s: S, x: S::F) -> S::F {
    let x = s.min(s.splat(ERF_HIGHEST), x);
    let zero = s.splat(0.0);
    s.sub(zero, exp_m1(s, s.sub(zero, s.mul(x, polynomial(s, x, &ERF)))))
}

/// A polynomial whose coefficients are given, that of the highest power first.
#[inline(always)]
fn polynomial<S: Simd, const N: usize>(s: S, x: S::F, coefficients: &[f32; N]) -> S::F {
    let mut sum = s.splat(coefficients[0]);
    for &coefficient in &coefficients[1..] {
        sum = s.fma(sum, x, s.splat(coefficient));
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;
    use crate::simd::{LANES, SimdOp};

    struct Exp([f32; LANES]);

    impl SimdOp for Exp {
        type Output = [f32; LANES];

        #[inline(always)]
        fn eval<S: Simd>(self, s: S) -> [f32; LANES] {
            let mut out = [0.0; LANES];
            s.store(exp(s, s.load(&self.0)), &mut out);
            out
        }
    }

    #[test]
    fn exp_is_within_two_ulps_and_equal_on_every_instruction_set() {
        for start in -8700..8798 {
            let x: [f32; LANES] = std::array::from_fn(|lane| start as f32 * 0.01 + lane as f32 * 0.000_7);
            let results: Vec<_> = Isa::available().into_iter().map(|isa| isa.run(Exp(x))).collect();
            for lane in 0..LANES {
                let exact = f64::from(x[lane]).exp();
                let error = (f64::from(results[0][lane]) - exact).abs() / exact;
                assert!(error < 2.0 * f64::from(f32::EPSILON), "exp({}) is off by {error:e}", x[lane]);
                assert!(results.iter().all(|other| other[lane].to_bits() == results[0][lane].to_bits()));
            }
        }
    }

    #[test]
    fn exp_has_the_limits_that_masks_rely_on() {
        let mut x = [0.0; LANES];
        (x[1], x[2], x[3], x[4]) = (f32::NEG_INFINITY, f32::NAN, 1000.0, -88.5);
        for isa in Isa::available() {
            let y = isa.run(Exp(x));
            assert_eq!(y[0], 1.0);
            assert_eq!(y[1].to_bits(), 0);
            assert!(y[2].is_nan());
            assert!(y[3].is_finite());
            assert_eq!(y[4], 0.0);
        }
    }
}
