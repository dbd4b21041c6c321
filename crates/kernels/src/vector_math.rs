//! `exp` and `log` with the bits of torch's vectorized functions, so that probabilities equal torch's.
//!
//! torch uses the functions of the Sleef library with an error of at most 1.0 ulp. This is their formula:
//! argument reduction, polynomials and order of operations.

use super::portable::fused_multiply_add;
use super::simd::Simd;

/// `1.5 * 2^23`: adding it to a small number rounds that number to an integer, in the low bits of the result.
const ROUND: f32 = 12_582_912.0;
/// Results are 0 below this; above the other, no argument is ever given.
const LOWEST: f32 = -105.0;
/// `ln 2` in two parts, the first with few enough bits that its product with a small integer is exact.
const LN2_HIGH: f32 = 0.693_145_75;
const LN2_LOW: f32 = 1.428_606_8e-6;
/// The coefficients of `(e^r - 1 - r) / r^2`, highest power first.
const EXP: [f32; 6] = [1.985_276_2e-4, 1.393_043_6e-3, 8.333_361e-3, 4.166_648_5e-2, 1.666_666_7e-1, 0.5];

/// `e^x` for `x` of 0 and below, subnormal results included; 0 for -inf. Not for NaN.
#[inline(always)]
pub(super) fn exp<S: Simd>(s: S, x: S::F) -> S::F {
    let x = s.max(x, s.splat(LOWEST));
    let round = s.splat(ROUND);
    let n = s.sub(s.add(s.mul(x, s.splat(std::f32::consts::LOG2_E)), round), round);
    let r = s.fma(n, s.splat(-LN2_HIGH), x);
    let r = s.fma(n, s.splat(-LN2_LOW), r);
    let mut p = s.splat(EXP[0]);
    for &coefficient in &EXP[1..] {
        p = s.fma(p, r, s.splat(coefficient));
    }
    let y = s.add(s.splat(1.0), s.fma(s.mul(r, r), p, r));
    // 2^n in two factors, each of which is a normal number: n / 2 rounded down, and the rest.
    let half = s.add(s.fma(n, s.splat(0.5), s.splat(-0.25)), round);
    let rest = s.add(s.sub(n, s.sub(half, round)), round);
    s.mul(s.mul(y, s.exp2_biased(half)), s.exp2_biased(rest))
}

/// The natural logarithm of a positive normal number.
pub(super) fn log(x: f32) -> f32 {
    // Two numbers whose sum is exact: their rounded sum, and what was rounded away.
    fn exact_sum(a: f32, b: f32) -> (f32, f32) {
        let sum = a + b;
        let shadow = sum - a;
        (sum, (a - (sum - shadow)) + (b - shadow))
    }
    /// The sum of two such pairs, when the first is the larger.
    fn add(a: (f32, f32), b: (f32, f32)) -> (f32, f32) {
        let sum = a.0 + b.0;
        (sum, ((a.0 - sum) + b.0) + a.1 + b.1)
    }
    let fma = fused_multiply_add;

    // x = m * 2^e with m from 0.75 to 1.5.
    let exponent = ((x * (1.0 / 0.75)).to_bits() >> 23) as i32 - 127;
    let m = f32::from_bits(x.to_bits().wrapping_sub((exponent << 23) as u32));
    let e = exponent as f32;

    // y = (m - 1) / (m + 1) in a pair, since ln m = 2 artanh y.
    let (numerator, denominator) = (exact_sum(-1.0, m), exact_sum(1.0, m));
    let inverse = 1.0 / denominator.0;
    let y = numerator.0 * inverse;
    let missing = fma(inverse, numerator.0, -y);
    let correction = fma(-denominator.1, inverse, fma(-denominator.0, inverse, 1.0));
    let y_low = fma(y, correction, fma(numerator.1, inverse, missing));

    let y2 = y * y;
    let series = fma(fma(0.302_729_5, y2, 0.399_610_82), y2, 0.666_669_5);
    let (ln2, ln2_low) = (std::f32::consts::LN_2, -1.904_654_3e-9);
    let scaled = e * ln2;
    let scaled = (scaled, fma(ln2_low, e, fma(e, ln2, -scaled)));
    let sum = add(add(scaled, (2.0 * y, 2.0 * y_low)), (y2 * y * series, 0.0));
    sum.0 + sum.1
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
    fn exp_is_within_an_ulp_and_equal_on_every_instruction_set() {
        for start in 0..10_400 {
            let x: [f32; LANES] = std::array::from_fn(|lane| start as f32 * -0.01 - lane as f32 * 0.000_7);
            let results: Vec<_> = Isa::available().into_iter().map(|isa| isa.run(Exp(x))).collect();
            for lane in 0..LANES {
                let exact = f64::from(x[lane]).exp();
                let error = (f64::from(results[0][lane]) - exact).abs();
                let ulp = f64::from(f32::EPSILON) * exact.max(f64::from(f32::MIN_POSITIVE));
                assert!(error <= ulp, "exp({}) is off by {error:e}", x[lane]);
                assert!(results.iter().all(|other| other[lane].to_bits() == results[0][lane].to_bits()));
            }
        }
    }

    #[test]
    fn exp_has_the_limits_that_masks_rely_on() {
        let mut x = [0.0; LANES];
        (x[1], x[2], x[3]) = (f32::NEG_INFINITY, -104.5, f32::MIN);
        for isa in Isa::available() {
            assert_eq!(isa.run(Exp(x))[..4], [1.0, 0.0, 0.0, 0.0]);
        }
    }

    #[test]
    fn log_is_within_an_ulp() {
        assert_eq!(log(1.0), 0.0);
        for step in 0..200_000_u32 {
            let x = f32::from_bits(0x0080_0000 + step * 10_000);
            let exact = f64::from(x).ln();
            let error = (f64::from(log(x)) - exact).abs();
            assert!(error <= f64::from(f32::EPSILON) * exact.abs(), "log({x:e}) is off by {error:e}");
        }
    }
}
