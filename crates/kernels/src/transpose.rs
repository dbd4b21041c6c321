//! Transposes blocks of 16 × 16 words.

use super::simd::{LANES, Simd};

/// Transposes a block. The words are not interpreted.
#[inline(always)]
pub(crate) fn transpose<S: Simd>(s: S, rows: &mut [S::F; LANES]) {
    stage::<S, 8, _>(s, rows);
    stage::<S, 4, _>(s, rows);
    stage::<S, 2, _>(s, rows);
    stage::<S, 1, _>(s, rows);
}

/// Transposes two blocks of 8 × 8 words that lie side by side.
#[inline(always)]
pub(crate) fn transpose_halves<S: Simd>(s: S, rows: &mut [S::F; LANES / 2]) {
    stage::<S, 4, _>(s, rows);
    stage::<S, 2, _>(s, rows);
    stage::<S, 1, _>(s, rows);
}

/// Transposes squares of `2 * DISTANCE` words, each as four squares of half the size.
#[inline(always)]
fn stage<S: Simd, const DISTANCE: usize, const N: usize>(s: S, rows: &mut [S::F; N]) {
    for i in 0..N {
        if i & DISTANCE == 0 {
            (rows[i], rows[i + DISTANCE]) = s.exchange::<DISTANCE>(rows[i], rows[i + DISTANCE]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;
    use crate::simd::SimdOp;

    /// Transposes a block, or two halves of the height.
    struct Transpose<'a, const N: usize>(&'a mut [[u32; LANES]; N]);

    impl<const N: usize> SimdOp for Transpose<'_, N> {
        type Output = ();

        #[inline(always)]
        fn eval<S: Simd>(self, s: S) {
            let mut rows = [s.splat(0.0); N];
            for (row, words) in rows.iter_mut().zip(&*self.0) {
                *row = s.load(&words.map(f32::from_bits));
            }
            if let Ok(block) = <&mut [S::F; LANES]>::try_from(&mut rows[..]) {
                transpose(s, block);
            } else {
                let halves: &mut [S::F; LANES / 2] = (&mut rows[..]).try_into().unwrap();
                transpose_halves(s, halves);
            }
            for (row, words) in rows.iter().zip(self.0) {
                let mut lanes = [0.0; LANES];
                s.store(*row, &mut lanes);
                *words = lanes.map(f32::to_bits);
            }
        }
    }

    /// Among these are infinities and NaN of both kinds, should the words be numbers.
    fn word(row: usize, column: usize) -> u32 {
        (((row << 4 | column) as u32) << 20).wrapping_mul(0x0010_0801) | 1
    }

    #[test]
    fn rows_become_columns_and_no_bit_changes() {
        let words: [[u32; LANES]; LANES] =
            std::array::from_fn(|row| std::array::from_fn(|column| word(row, column)));
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

    #[test]
    fn rows_of_both_halves_become_columns_of_their_half() {
        let words: [[u32; LANES]; LANES / 2] =
            std::array::from_fn(|row| std::array::from_fn(|column| word(row, column)));
        for isa in Isa::available() {
            let mut turned = words;
            isa.run(Transpose(&mut turned));
            for (row, turned) in turned.iter().enumerate() {
                for (column, &turned) in turned.iter().enumerate() {
                    let first = column / 8 * 8;
                    assert_eq!(turned, word(column - first, first + row), "{} {row} {column}", isa.name());
                }
            }
        }
    }
}
