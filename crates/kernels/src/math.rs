//! The exponential function in 16 lanes, as the forward pass uses it: fast, and without subnormal results.

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

/// `e^x`; 0 below -88 (so for -inf too), `e^88` above 88, NaN for NaN.
#[inline(always)]
pub(crate) fn exp<S: Simd>(s: S, x: S::F) -> S::F {
    // The order of the arguments lets NaN through.
    let x = s.min(s.splat(HIGHEST), s.max(s.splat(LOWEST), x));
    let shifted = s.fma(x, s.splat(std::f32::consts::LOG2_E), s.splat(ROUND));
    let n = s.sub(shifted, s.splat(ROUND));
    let r = s.fma(n, s.splat(-LN2_HIGH), x);
    let r = s.fma(n, s.splat(-LN2_LOW), r);
    let mut p = s.splat(COEFFICIENTS[0]);
    for &coefficient in &COEFFICIENTS[1..] {
        p = s.fma(p, r, s.splat(coefficient));
    }
    let r2 = s.mul(r, r);
    let y = s.add(s.fma(p, r2, r), s.splat(1.0));
    s.mul(y, s.exp2_biased(shifted))
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
