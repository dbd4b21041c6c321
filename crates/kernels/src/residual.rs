//! Adding the output of a block of a layer to the residual stream.

use super::norm::{Norm, norm_in_place};
use super::reduce::vectors;
use super::simd::{LANES, Simd, SimdOp};
use super::threads::Workers;

/// `out += factor * norm(rows)`, row by row; both are `[num_rows, width]`, and `rows` may be overwritten.
///
/// # Panics
/// When the lengths differ.
pub fn add_rows(
    workers: &Workers,
    rows: &mut [f32],
    width: usize,
    norm: Option<Norm<'_>>,
    factor: f32,
    out: &mut [f32],
) {
    const CHUNK_ROWS: usize = 8;
    assert_eq!(rows.len(), out.len(), "a row is added to each row");
    let isa = workers.isa();
    if let Some(norm) = norm {
        workers.for_each_chunk(rows, CHUNK_ROWS * width, |_, rows| norm_in_place(isa, rows, norm));
    }
    let rows = &*rows;
    workers.for_each_chunk(out, CHUNK_ROWS * width, |chunk, out| {
        let rows = &rows[chunk * CHUNK_ROWS * width..][..out.len()];
        isa.run(AddScaled { x: rows, factor, out });
    });
}

/// `out += factor * x`, each product rounded before it is added.
pub(super) struct AddScaled<'a> {
    pub(super) x: &'a [f32],
    pub(super) factor: f32,
    pub(super) out: &'a mut [f32],
}

impl SimdOp for AddScaled<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let (x, last) = vectors(self.x, 0.0);
        let (out, rest) = self.out.as_chunks_mut::<LANES>();
        let factor = s.splat(self.factor);
        for (x, out) in x.iter().zip(out) {
            s.store(s.add(s.load(out), s.mul(factor, s.load(x))), out);
        }
        for (x, out) in last.iter().flatten().zip(rest) {
            *out += self.factor * x;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Isa, NormKind, scalar};

    #[test]
    fn rows_are_added_in_two_roundings_on_every_instruction_set() {
        for (num_rows, width) in [(1, 5), (3, 16), (20, 37)] {
            let x: Vec<f32> = (0..num_rows * width).map(|i| (i as f32 * 0.7).sin()).collect();
            let weight: Vec<f32> = (0..width).map(|i| 1.0 + i as f32 * 0.01).collect();
            let norm = Norm { kind: NormKind::Rms, weight: &weight, bias: None, eps: 1e-5 };
            for isa in Isa::available() {
                let workers = Workers::new(2, isa).unwrap();
                let (mut rows, mut out) = (x.clone(), vec![1.5; x.len()]);
                add_rows(&workers, &mut rows, width, None, 0.22, &mut out);
                let expected: Vec<f32> = x.iter().map(|x| 1.5 + 0.22 * x).collect();
                assert_eq!(out, expected);
                add_rows(&workers, &mut rows, width, Some(norm), 1.0, &mut out);
                let mut normed = vec![0.0; x.len()];
                scalar::norm(&x, norm, &mut normed);
                for ((out, old), normed) in out.iter().zip(expected).zip(normed) {
                    assert!((out - (old + normed)).abs() < 1e-6);
                }
            }
        }
    }
}
