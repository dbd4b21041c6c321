//! Root-mean-square layer normalization (Zhang and Sennrich, arXiv:1910.07467), as llama uses it.

use super::isa::Isa;
use super::reduce::{sum_of_squares, vectors};
use super::simd::{LANES, Simd, SimdOp};

/// A normalization: `x / sqrt(mean(x^2) + eps) * weight` for each row.
#[derive(Debug, Clone, Copy)]
pub struct Norm<'a> {
    /// As many as a row has elements.
    pub weight: &'a [f32],
    /// Added to the mean of the squares.
    pub eps: f32,
}

impl Norm<'_> {
    /// The reciprocal RMS of a row, with `eps`.
    #[inline(always)]
    pub(super) fn scale<S: Simd>(&self, s: S, row: &[f32]) -> f32 {
        let mean = sum_of_squares(s, row) / self.weight.len() as f32;
        1.0 / (mean + self.eps).sqrt()
    }
}

/// Normalizes the rows of `x` into `out`; both are `[num_rows, norm.weight.len()]`.
pub fn rms_norm(isa: Isa, x: &[f32], norm: Norm<'_>, out: &mut [f32]) {
    out.copy_from_slice(x);
    rms_norm_in_place(isa, out, norm);
}

/// Normalizes the rows of `x`, `[num_rows, norm.weight.len()]`.
pub fn rms_norm_in_place(isa: Isa, x: &mut [f32], norm: Norm<'_>) {
    isa.run(RmsNorm { x, norm });
}

struct RmsNorm<'a> {
    x: &'a mut [f32],
    norm: Norm<'a>,
}

impl SimdOp for RmsNorm<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let (weights, last_weights) = vectors(self.norm.weight, 0.0);
        for x in self.x.chunks_exact_mut(self.norm.weight.len()) {
            let scale = s.splat(self.norm.scale(s, x));
            let (full, rest) = x.as_chunks_mut::<LANES>();
            for (v, w) in full.iter_mut().zip(weights) {
                s.store(s.mul(s.load(w), s.mul(s.load(v), scale)), v);
            }
            if let Some(w) = &last_weights {
                let mut v = [0.0; LANES];
                v[..rest.len()].copy_from_slice(rest);
                let normed = s.mul(s.load(w), s.mul(s.load(&v), scale));
                s.store(normed, &mut v);
                rest.copy_from_slice(&v[..rest.len()]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scalar;

    #[test]
    fn rms_norm_equals_its_twin_and_is_equal_on_every_instruction_set() {
        for width in [1, 16, 23, 64, 200] {
            let x: Vec<f32> = (0..3 * width).map(|i| (i as f32 * 0.7).sin() * 3.0).collect();
            let weight: Vec<f32> = (0..width).map(|i| 0.5 + i as f32 * 0.01).collect();
            let mut expected = vec![0.0; x.len()];
            scalar::rms_norm(&x, &weight, 1e-5, &mut expected);
            let results: Vec<Vec<f32>> = Isa::available()
                .into_iter()
                .map(|isa| {
                    let mut out = vec![0.0; x.len()];
                    rms_norm(isa, &x, Norm { weight: &weight, eps: 1e-5 }, &mut out);
                    out
                })
                .collect();
            for (a, b) in results[0].iter().zip(&expected) {
                assert!((a - b).abs() <= 1e-6 * b.abs().max(1.0));
            }
            assert!(results.iter().all(|other| *other == results[0]));
        }
    }
}
