//! Transposes blocks of 16 × 16 words.

use super::simd::{LANES, Simd};

/// Transposes a block. The words are not interpreted.
#[inline(always)]
pub(crate) fn transpose<S: Simd>(s: S, rows: &mut [S::F; LANES]) {
    stage::<S, 8>(s, rows);
    stage::<S, 4>(s, rows);
    stage::<S, 2>(s, rows);
    stage::<S, 1>(s, rows);
}

/// Transposes squares of `2 * DISTANCE` words, each as four squares of half the size.
#[inline(always)]
fn stage<S: Simd, const DISTANCE: usize>(s: S, rows: &mut [S::F; LANES]) {
    for i in 0..LANES {
        if i & DISTANCE == 0 {
            (rows[i], rows[i + DISTANCE]) = s.exchange::<DISTANCE>(rows[i], rows[i + DISTANCE]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::isa::Isa;
    use crate::kernels::simd::SimdOp;

    struct Transpose<'a>(&'a mut [[u32; LANES]; LANES]);

    impl SimdOp for Transpose<'_> {
        type Output = ();

        #[inline(always)]
        fn eval<S: Simd>(self, s: S) {
            let mut rows = [s.splat(0.0); LANES];
            for (row, words) in rows.iter_mut().zip(&*self.0) {
                *row = s.load(&words.map(f32::from_bits));
            }
            transpose(s, &mut rows);
            for (row, words) in rows.iter().zip(self.0) {
                let mut lanes = [0.0; LANES];
                s.store(*row, &mut lanes);
                *words = lanes.map(f32::to_bits);
            }
        }
    }

    #[test]
    fn rows_become_columns_and_no_bit_changes() {
        // Among these are infinities and NaN of both kinds, should the words be numbers.
        let word =
            |row: usize, column: usize| (((row << 4 | column) as u32) << 20).wrapping_mul(0x0010_0801) | 1;
        let words = std::array::from_fn(|row| std::array::from_fn(|column| word(row, column)));
        for isa in Isa::available() {
            let mut turned = words;
            isa.run(Transpose(&mut turned));
            for (row, turned) in turned.iter().enumerate() {
                for (column, &turned) in turned.iter().enumerate() {
                    assert_eq!(turned, word(column, row), "{} {row} {column}", isa.name());
                }
            }
        }
    }
}
