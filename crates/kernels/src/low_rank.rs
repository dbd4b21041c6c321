//! Updates of low rank (Hu et al., arXiv:2106.09685): `w + scale * (left · right)`, element by element.

use super::isa::Isa;
use super::simd::{LANES, Simd, SimdOp};

/// A product of two narrow matrices, and what it is multiplied with.
#[derive(Debug, Clone, Copy)]
pub struct LowRank<'a> {
    /// `[num_rows, rank]`, row-major.
    pub left: &'a [f32],
    /// `[rank, num_columns]`, row-major.
    pub right: &'a [f32],
    /// The rows of `right`.
    pub rank: usize,
    /// The columns of `right`.
    pub num_columns: usize,
    /// What each element of the product is multiplied with.
    pub scale: f32,
}

/// Adds the product to elements `first..first + values.len()`, in row-major order, of a matrix
/// `[num_rows, num_columns]`.
///
/// An element of the product is one chain over the rank, from 0 on, each step with a single rounding; then it
/// is rounded when it is scaled, and when it is added.
///
/// # Panics
/// When elements are beyond the matrix.
pub fn add_low_rank(isa: Isa, product: LowRank<'_>, first: usize, values: &mut [f32]) {
    isa.run(AddLowRank { product, first, values });
}

struct AddLowRank<'a> {
    product: LowRank<'a>,
    first: usize,
    values: &'a mut [f32],
}

impl SimdOp for AddLowRank<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let LowRank { left, right, rank, num_columns, scale } = self.product;
        let scale = s.splat(scale);
        let (mut at, mut values) = (self.first, self.values);
        while !values.is_empty() {
            let (row, column) = (at / num_columns, at % num_columns);
            let len = values.len().min(num_columns - column);
            let (now, rest) = values.split_at_mut(len);
            let factors = &left[row * rank..(row + 1) * rank];
            for (part, now) in now.chunks_mut(LANES).enumerate() {
                let column = column + part * LANES;
                let mut sum = s.splat(0.0);
                for (k, &factor) in factors.iter().enumerate() {
                    let place = k * num_columns + column;
                    let other = match right[place..].first_chunk::<LANES>() {
                        Some(other) => s.load(other),
                        // The lanes beyond the last element are not stored.
                        None => s.load(&padded(&right[place..])),
                    };
                    sum = s.fma(s.splat(factor), other, sum);
                }
                let mut out = padded(now);
                let added = s.add(s.load(&out), s.mul(sum, scale));
                s.store(added, &mut out);
                now.copy_from_slice(&out[..now.len()]);
            }
            (at, values) = (at + len, rest);
        }
    }
}

#[inline(always)]
fn padded(values: &[f32]) -> [f32; LANES] {
    let mut lanes = [0.0; LANES];
    lanes[..values.len()].copy_from_slice(values);
    lanes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(len: usize, step: f32) -> Vec<f32> {
        (0..len).map(|at| (at as f32 * step).sin()).collect()
    }

    #[test]
    fn any_piece_of_a_matrix_gets_the_bits_of_the_formula_on_every_instruction_set() {
        for (num_rows, num_columns, rank) in [(3, 5, 1), (4, 16, 3), (5, 37, 8), (2, 100, 64)] {
            let (left, right) = (numbers(num_rows * rank, 0.7), numbers(rank * num_columns, 0.3));
            let weights = numbers(num_rows * num_columns, 1.1);
            let product = LowRank { left: &left, right: &right, rank, num_columns, scale: 0.37 };
            let formula = |at: usize| {
                let (row, column) = (at / num_columns, at % num_columns);
                let sum = (0..rank).fold(0.0f32, |sum, k| {
                    left[row * rank + k].mul_add(right[k * num_columns + column], sum)
                });
                weights[at] + sum * 0.37
            };
            let expected: Vec<f32> = (0..weights.len()).map(formula).collect();
            for isa in Isa::available() {
                for range in [0..weights.len(), 1..weights.len() - 1, 3..4, num_columns - 1..num_columns + 1]
                {
                    let mut values = weights[range.clone()].to_vec();
                    add_low_rank(isa, product, range.start, &mut values);
                    assert_eq!(values, expected[range], "{isa:?}");
                }
            }
        }
    }
}
