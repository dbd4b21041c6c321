//! The gated activation of llama's MLP: `silu(gate) * up`.

use super::isa::Isa;
use super::math::exp;
use super::reduce::vectors;
use super::simd::{LANES, Simd, SimdOp};

/// `out = gate / (1 + exp(-gate)) * up`, row by row.
///
/// `gate_up` is `[num_rows, 2 * width]`, each row the gates and then the ups; `out` is `[num_rows, width]`.
pub fn silu_mul(isa: Isa, gate_up: &[f32], width: usize, out: &mut [f32]) {
    assert_eq!(gate_up.len(), 2 * out.len(), "two inputs for each output");
    isa.run(SiluMul { gate_up, width, out });
}

struct SiluMul<'a> {
    gate_up: &'a [f32],
    width: usize,
    out: &'a mut [f32],
}

#[inline(always)]
fn silu_times<S: Simd>(s: S, gate: S::F, up: S::F) -> S::F {
    let e = exp(s, s.sub(s.splat(0.0), gate));
    s.mul(s.div(gate, s.add(s.splat(1.0), e)), up)
}

impl SimdOp for SiluMul<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        for (row, out) in self.gate_up.chunks_exact(2 * self.width).zip(self.out.chunks_exact_mut(self.width))
        {
            let (gates, last_gate) = vectors(&row[..self.width], 0.0);
            let (ups, last_up) = vectors(&row[self.width..], 0.0);
            let (out_full, out_rest) = out.as_chunks_mut::<LANES>();
            for ((gate, up), o) in gates.iter().zip(ups).zip(out_full) {
                s.store(silu_times(s, s.load(gate), s.load(up)), o);
            }
            if let (Some(gate), Some(up)) = (&last_gate, &last_up) {
                let mut o = [0.0; LANES];
                s.store(silu_times(s, s.load(gate), s.load(up)), &mut o);
                out_rest.copy_from_slice(&o[..out_rest.len()]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::scalar;

    #[test]
    fn silu_mul_equals_its_twin_and_is_equal_on_every_instruction_set() {
        for width in [1, 16, 21, 128] {
            let x: Vec<f32> = (0..2 * 2 * width).map(|i| (i as f32 * 0.9).sin() * 30.0).collect();
            let mut expected = vec![0.0; 2 * width];
            scalar::silu_mul(&x, width, &mut expected);
            let results: Vec<Vec<f32>> = Isa::available()
                .into_iter()
                .map(|isa| {
                    let mut out = vec![0.0; 2 * width];
                    silu_mul(isa, &x, width, &mut out);
                    out
                })
                .collect();
            for (a, b) in results[0].iter().zip(&expected) {
                assert!((a - b).abs() <= 1e-6 * b.abs().max(1e-3), "{a} {b}");
            }
            assert!(results.iter().all(|other| *other == results[0]));
        }
    }
}
