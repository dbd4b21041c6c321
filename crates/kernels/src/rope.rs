//! Rotary position embedding (Su et al., arXiv:2104.09864).

use super::isa::Isa;
use super::reduce::vectors;
use super::simd::{LANES, Simd, SimdOp};

/// Which dimensions of a head are rotated together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RotaryPairs {
    /// `i` and `i + cos.len()`, as in llama.
    #[default]
    Half,
    /// `2 i` and `2 i + 1`, as in GPT-J.
    Interleaved,
}

/// Rotates every head of one row: each pair of its first `2 * cos.len()` dimensions by an angle whose cosine
/// and sine are `cos[i]` and `sin[i]`. The dimensions after them stay as they are.
///
/// `x` is `[num_heads, head_dim]`, `cos` and `sin` are `[head_dim / 2]` or less.
pub fn rotate(isa: Isa, pairs: RotaryPairs, x: &mut [f32], head_dim: usize, cos: &[f32], sin: &[f32]) {
    assert_eq!(cos.len(), sin.len(), "one cosine and one sine per pair");
    assert!(2 * cos.len() <= head_dim, "the pairs lie within a head");
    match pairs {
        RotaryPairs::Half => isa.run(RotateHalf { x, head_dim, cos, sin }),
        RotaryPairs::Interleaved => rotate_interleaved(x, head_dim, cos, sin),
    }
}

fn rotate_interleaved(x: &mut [f32], head_dim: usize, cos: &[f32], sin: &[f32]) {
    for head in x.chunks_exact_mut(head_dim) {
        let (pairs, _) = head.as_chunks_mut::<2>();
        for (([x, y], cos), sin) in pairs.iter_mut().zip(cos).zip(sin) {
            (*x, *y) = (*x * cos - *y * sin, *y * cos + *x * sin);
        }
    }
}

struct RotateHalf<'a> {
    x: &'a mut [f32],
    head_dim: usize,
    cos: &'a [f32],
    sin: &'a [f32],
}

impl SimdOp for RotateHalf<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let half = self.cos.len();
        let (cos, _) = vectors(self.cos, 0.0);
        let (sin, _) = vectors(self.sin, 0.0);
        for head in self.x.chunks_exact_mut(self.head_dim) {
            let (first, second) = head[..2 * half].split_at_mut(half);
            let (a_full, a_rest) = first.as_chunks_mut::<LANES>();
            let (b_full, b_rest) = second.as_chunks_mut::<LANES>();
            for (((a, b), c), sn) in a_full.iter_mut().zip(b_full).zip(cos).zip(sin) {
                let (x, y, c, sn) = (s.load(a), s.load(b), s.load(c), s.load(sn));
                s.store(s.sub(s.mul(x, c), s.mul(y, sn)), a);
                s.store(s.add(s.mul(y, c), s.mul(x, sn)), b);
            }
            let done = half - a_rest.len();
            for i in 0..a_rest.len() {
                let (x, y, c, sn) = (a_rest[i], b_rest[i], self.cos[done + i], self.sin[done + i]);
                a_rest[i] = x * c - y * sn;
                b_rest[i] = y * c + x * sn;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scalar;

    #[test]
    fn rotation_equals_its_twin_on_every_instruction_set() {
        let widths = [(1, 0), (4, 0), (16, 0), (20, 0), (32, 0), (64, 0), (1, 1), (3, 10), (24, 16)];
        let kinds = [RotaryPairs::Half, RotaryPairs::Interleaved];
        for ((half, rest), pairs) in widths.into_iter().flat_map(|width| kinds.map(|kind| (width, kind))) {
            let head_dim = 2 * half + rest;
            let x: Vec<f32> = (0..3 * head_dim).map(|i| (i as f32 * 1.3).cos()).collect();
            let (sin, cos): (Vec<f32>, Vec<f32>) = (0..half).map(|i| (i as f32 * 0.4).sin_cos()).unzip();
            let mut expected = x.clone();
            scalar::rotate(pairs, &mut expected, head_dim, &cos, &sin);
            for isa in Isa::available() {
                let mut actual = x.clone();
                rotate(isa, pairs, &mut actual, head_dim, &cos, &sin);
                assert_eq!(actual, expected);
                let kept = |x: &[f32]| {
                    x.chunks(head_dim).flat_map(|head| head[2 * half..].to_vec()).collect::<Vec<_>>()
                };
                assert_eq!(kept(&actual), kept(&x), "what lies behind the pairs stays");
            }
        }
    }
}
