//! The gated activation of llama's MLP: `silu(gate) * up`, where `silu(x) = x / (1 + exp(-x))`.

use super::math::exp;
use super::simd::Simd;

/// `silu(gate) * up`.
#[inline(always)]
pub(super) fn silu_times<S: Simd>(s: S, gate: S::F, up: S::F) -> S::F {
    let e = exp(s, s.sub(s.splat(0.0), gate));
    s.mul(s.div(gate, s.add(s.splat(1.0), e)), up)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;
    use crate::scalar;
    use crate::simd::{LANES, SimdOp};

    struct SiluTimes([f32; LANES], [f32; LANES]);

    impl SimdOp for SiluTimes {
        type Output = [f32; LANES];

        #[inline(always)]
        fn eval<S: Simd>(self, s: S) -> [f32; LANES] {
            let mut out = [0.0; LANES];
            s.store(silu_times(s, s.load(&self.0), s.load(&self.1)), &mut out);
            out
        }
    }

    #[test]
    fn silu_times_equals_its_twin_and_is_equal_on_every_instruction_set() {
        for start in -100..100 {
            let gate: [f32; LANES] = std::array::from_fn(|lane| start as f32 + lane as f32 * 0.07);
            let up: [f32; LANES] = std::array::from_fn(|lane| (lane as f32 * 0.9).sin() * 30.0);
            let mut expected = [0.0; LANES];
            scalar::silu_mul(&[gate, up].concat(), LANES, &mut expected);
            let results: Vec<_> =
                Isa::available().into_iter().map(|isa| isa.run(SiluTimes(gate, up))).collect();
            for lane in 0..LANES {
                let error = (results[0][lane] - expected[lane]).abs();
                assert!(error <= 4e-6 * expected[lane].abs().max(1e-3), "{}: {error}", gate[lane]);
            }
            assert!(results.iter().all(|other| *other == results[0]));
        }
    }
}
