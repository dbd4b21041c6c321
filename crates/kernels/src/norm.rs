//! Normalization of rows: by their root mean square (Zhang and Sennrich, arXiv:1910.07467), or by their mean
//! and variance (Ba et al., arXiv:1607.06450).

use super::isa::Isa;
use super::reduce::{sum, sum_of_squared_differences, sum_of_squares, vectors};
use super::simd::{LANES, Simd, SimdOp};

/// A normalization of each row.
#[derive(Debug, Clone, Copy)]
pub struct Norm<'a> {
    /// What a row is divided by.
    pub kind: NormKind,
    /// As many as a row has elements.
    pub weight: &'a [f32],
    /// As many, added at the end.
    pub bias: Option<&'a [f32]>,
    /// Added to the mean of the squares.
    pub eps: f32,
}

/// What a row is divided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NormKind {
    /// Its root mean square: `x / sqrt(mean(x^2) + eps) * weight`.
    Rms,
    /// Its standard deviation, around its mean: `(x - mean(x)) / sqrt(variance(x) + eps) * weight`.
    Layer,
}

/// What the elements of a row are moved and multiplied by.
#[derive(Clone, Copy, Default)]
pub(super) struct Moments {
    /// Subtracted, by [`NormKind::Layer`].
    mean: f32,
    scale: f32,
}

impl Norm<'_> {
    /// Those of a row.
    #[inline(always)]
    pub(super) fn moments<S: Simd>(&self, s: S, row: &[f32]) -> Moments {
        let len = self.weight.len() as f32;
        let (mean, squares) = match self.kind {
            NormKind::Rms => (0.0, sum_of_squares(s, row)),
            NormKind::Layer => {
                let mean = sum(s, row) / len;
                (mean, sum_of_squared_differences(s, row, mean))
            }
        };
        Moments { mean, scale: 1.0 / (squares / len + self.eps).sqrt() }
    }

    /// Normalizes some elements of a row, whose weights and biases are given.
    #[inline(always)]
    pub(super) fn apply<S: Simd>(
        &self,
        s: S,
        mut values: S::F,
        moments: Moments,
        weight: S::F,
        bias: impl Fn(&[f32]) -> S::F,
    ) -> S::F {
        if self.kind == NormKind::Layer {
            values = s.sub(values, s.splat(moments.mean));
        }
        let normed = s.mul(weight, s.mul(values, s.splat(moments.scale)));
        self.bias.map_or(normed, |values| s.add(normed, bias(values)))
    }
}

/// Normalizes the rows of `x` into `out`; both are `[num_rows, norm.weight.len()]`.
pub fn norm(isa: Isa, x: &[f32], norm: Norm<'_>, out: &mut [f32]) {
    out.copy_from_slice(x);
    norm_in_place(isa, out, norm);
}

/// Normalizes the rows of `x`, `[num_rows, norm.weight.len()]`.
pub fn norm_in_place(isa: Isa, x: &mut [f32], norm: Norm<'_>) {
    isa.run(NormRows { x, norm });
}

struct NormRows<'a> {
    x: &'a mut [f32],
    norm: Norm<'a>,
}

impl SimdOp for NormRows<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let Self { x, norm } = self;
        let width = norm.weight.len();
        for row in x.chunks_exact_mut(width) {
            let moments = norm.moments(s, row);
            let (full, rest) = row.as_chunks_mut::<LANES>();
            let done = width - rest.len();
            for (index, values) in full.iter_mut().enumerate() {
                let at = |of: &[f32]| s.load(&of.as_chunks().0[index]);
                s.store(norm.apply(s, s.load(values), moments, at(norm.weight), at), values);
            }
            if !rest.is_empty() {
                let at = |of: &[f32]| s.load(&vectors(&of[done..], 0.0).1.unwrap_or_default());
                let mut values = [0.0; LANES];
                values[..rest.len()].copy_from_slice(rest);
                s.store(norm.apply(s, s.load(&values), moments, at(norm.weight), at), &mut values);
                rest.copy_from_slice(&values[..rest.len()]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scalar;

    #[test]
    fn norms_equal_their_twin_and_are_equal_on_every_instruction_set() {
        for width in [1, 16, 23, 64, 200] {
            let x: Vec<f32> = (0..3 * width).map(|i| (i as f32 * 0.7).sin() * 3.0 + 1.5).collect();
            let weight: Vec<f32> = (0..width).map(|i| 0.5 + i as f32 * 0.01).collect();
            let biases: Vec<f32> = (0..width).map(|i| (i as f32 * 0.3).cos()).collect();
            for (kind, bias) in [
                (NormKind::Rms, None),
                (NormKind::Rms, Some(&biases[..])),
                (NormKind::Layer, None),
                (NormKind::Layer, Some(&biases[..])),
            ] {
                let described = Norm { kind, weight: &weight, bias, eps: 1e-5 };
                let mut expected = vec![0.0; x.len()];
                scalar::norm(&x, described, &mut expected);
                let normed = |isa| {
                    let mut out = vec![0.0; x.len()];
                    norm(isa, &x, described, &mut out);
                    out
                };
                let results: Vec<Vec<f32>> = Isa::available().into_iter().map(normed).collect();
                for (a, b) in results[0].iter().zip(&expected) {
                    assert!((a - b).abs() <= 2e-6 * b.abs().max(1.0), "{kind:?} {width}: {a} {b}");
                }
                assert!(results.iter().all(|other| *other == results[0]));
            }
        }
    }
}
