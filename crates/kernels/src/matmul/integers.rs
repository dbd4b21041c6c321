//! Products of activations, rounded to 8 bits, with blocks of integers, which are decoded into bytes while they are
//! multiplied.
//!
//! A weight is `code * scale + offset`, and an activation an integer in the unit of its group of 32. The integer
//! sums of a group of codes are exact, so that every instruction set gives the same bits, in any order:
//!
//! ```text
//! part = sum over groups of: sum(codes * integers) * scale + sum(integers) * offset      both fused, groups ascending
//! sum  = part * unit + sum                                                               fused, every 32 inputs
//! ```

use super::format::PanelProducts;
use super::groups::{RowGroup, Words};
use super::rows::{Buffers, RowStep, STRIP_VECTORS};
use crate::isa::Isa;
use crate::simd::{LANES, Simd, SimdOp};

/// The inputs of a step.
pub(crate) const STEP_INPUTS: usize = 32;
/// Words of four inputs of a step.
pub(crate) const STEP_WORDS: usize = STEP_INPUTS / 4;

/// Integers that have a scale and an offset for `SCALES` groups of a step: those of [`words_of_short_sums`] for `RUN`,
/// or for a `RUN` of 0 from 1 to 255, of which 128 is taken.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IntegerProducts<const SCALES: usize, const RUN: usize>;

/// The words of a step whose products with integers of so many bits can be added in 16 bits, two to a sum: a power of
/// two, or 0 for 8 bits.
pub(crate) const fn words_of_short_sums(bits: u32) -> usize {
    const MOST_INPUT: usize = 127;
    let most_sum = 2 * MOST_INPUT * ((1 << bits) - 1);
    let words = i16::MAX as usize / most_sum;
    if words >= STEP_WORDS { STEP_WORDS } else { (words + 1).next_power_of_two() / 2 }
}

/// 32 inputs of 32 outputs.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct IntegerStep<const SCALES: usize> {
    /// `[word][half][output][byte]`
    pub(crate) words: [[Words; 2]; STEP_WORDS],
    /// The scales and offsets of a group: `[group][half][output]`.
    pub(crate) scales: [[[f32; LANES]; 2]; SCALES],
    pub(crate) offsets: [[[f32; LANES]; 2]; SCALES],
}

impl<const SCALES: usize> Default for IntegerStep<SCALES> {
    fn default() -> Self {
        let zeros = [[[0.0; LANES]; 2]; SCALES];
        Self { words: [[[0; 4 * LANES]; 2]; STEP_WORDS], scales: zeros, offsets: zeros }
    }
}

/// 32 inputs of 32 outputs, wherever they come from.
pub(crate) trait IntegerWeights {
    /// A word of four inputs of a vector of outputs.
    fn word<S: Simd>(&self, s: S, q: usize, vector: usize) -> S::B;

    /// The scale and the offset of a group of a vector of outputs.
    fn linear<S: Simd>(&self, s: S, group: usize, vector: usize) -> [S::F; 2];
}

impl<const SCALES: usize> IntegerWeights for IntegerStep<SCALES> {
    #[inline(always)]
    fn word<S: Simd>(&self, s: S, q: usize, vector: usize) -> S::B {
        s.load_bytes(&self.words[q][vector])
    }

    #[inline(always)]
    fn linear<S: Simd>(&self, s: S, group: usize, vector: usize) -> [S::F; 2] {
        [s.load(&self.scales[group][vector]), s.load(&self.offsets[group][vector])]
    }
}

/// 32 inputs of a row, rounded.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RowIntegers {
    group: RowGroup<STEP_WORDS>,
    /// The sums of the integers of each half.
    sums: [f32; 2],
}

impl RowStep for RowIntegers {
    const INPUTS: usize = STEP_INPUTS;
    const VECTORS: usize = STRIP_VECTORS;
    const SPANS_PANELS: bool = true;
    const HAS_INTEGER_SUMS: bool = true;

    #[inline(always)]
    fn arrange<S: Simd, const V: usize>(s: S, rows: &[[S::F; V]], out: &mut [Self]) {
        for (step, out) in out.chunks_exact_mut(rows.len()).enumerate() {
            for (out, row) in out.iter_mut().zip(rows) {
                let group = RowGroup::new(s, &row[2 * step..2 * step + 2]);
                let (first, second) = group.words.split_at(STEP_WORDS / 2);
                *out = Self { group, sums: [first, second].map(sum_of) };
            }
        }
    }

    #[inline(always)]
    fn most_rows<S: Simd>(num_rows: usize) -> usize {
        RowGroup::<STEP_WORDS>::most_rows::<S>(num_rows)
    }

    fn run<O: SimdOp>(isa: Isa, operation: O) -> O::Output {
        isa.run_integers(operation)
    }

    fn buffer(rows: &mut Buffers) -> &mut Vec<Self> {
        &mut rows.integers
    }

    fn values(rows: &Buffers) -> &[Self] {
        &rows.integers
    }
}

/// The sum of the integers of some words.
#[inline(always)]
fn sum_of(words: &[u32]) -> f32 {
    let integers = words.iter().flat_map(|word| word.to_le_bytes());
    integers.map(|byte| i32::from(byte.cast_signed())).sum::<i32>() as f32
}

impl<const SCALES: usize, const RUN: usize> IntegerProducts<SCALES, RUN> {
    /// The integer sums of a group.
    #[inline(always)]
    fn dots<S: Simd, const M: usize, const V: usize>(
        s: S,
        weights: &impl IntegerWeights,
        group: usize,
        first: usize,
        rows: &[RowIntegers; M],
    ) -> [[S::I; V]; M] {
        let mut dots = [[s.splat_i32(0); V]; M];
        let (start, num_words) = (group * STEP_WORDS / SCALES, const { STEP_WORDS / SCALES });
        if RUN == 0 {
            for r in 0..M {
                dots[r] = [s.splat_i32(rows[r].group.start); V];
            }
        } else if S::HAS_SHORT_SUMS {
            let mut short = [[s.splat_i32(0); V]; M];
            // No loop: where it is not unrolled the shifts of codes are no constants.
            macro_rules! add_words {
                ($($q:literal)*) => {$(
                    if $q < num_words {
                        for v in 0..V {
                            let word = weights.word(s, start + $q, first + v);
                            for r in 0..M {
                                short[r][v] = s.dot_short(word, rows[r].group.words[start + $q], short[r][v]);
                            }
                        }
                        if ($q + 1) % RUN == 0 {
                            for r in 0..M {
                                for v in 0..V {
                                    dots[r][v] = s.add_short(short[r][v], dots[r][v]);
                                    short[r][v] = s.splat_i32(0);
                                }
                            }
                        }
                    }
                )*};
            }
            add_words!(0 1 2 3 4 5 6 7);
            return dots;
        }
        for q in start..start + num_words {
            for v in 0..V {
                let word = weights.word(s, q, first + v);
                let word = if RUN == 0 { s.operands(word) } else { word };
                for r in 0..M {
                    let inputs = rows[r].group.words[q];
                    dots[r][v] = if RUN == 0 {
                        s.dot_i8(word, inputs, dots[r][v])
                    } else {
                        s.dot_u7(word, inputs, dots[r][v])
                    };
                }
            }
        }
        dots
    }

    /// See [`PanelProducts::multiply_add`].
    #[inline(always)]
    pub(crate) fn multiply_add_weights<S: Simd, const M: usize, const V: usize>(
        s: S,
        weights: &impl IntegerWeights,
        first: usize,
        rows: &[RowIntegers; M],
        sums: &mut [[S::F; V]; M],
    ) {
        let mut parts = [[s.splat(0.0); V]; M];
        for group in 0..SCALES {
            let dots = Self::dots::<S, M, V>(s, weights, group, first, rows);
            for v in 0..V {
                let [scale, offset] = weights.linear(s, group, first + v);
                for r in 0..M {
                    let [low, high] = rows[r].sums;
                    let integers = if SCALES == 2 { rows[r].sums[group] } else { low + high };
                    let part = s.fma(s.splat(integers), offset, parts[r][v]);
                    parts[r][v] = s.fma(s.to_f32(dots[r][v]), scale, part);
                }
            }
        }
        for r in 0..M {
            let unit = s.splat(rows[r].group.scale);
            for v in 0..V {
                sums[r][v] = s.fma(parts[r][v], unit, sums[r][v]);
            }
        }
    }
}

impl<const SCALES: usize, const RUN: usize> PanelProducts for IntegerProducts<SCALES, RUN> {
    type Step = IntegerStep<SCALES>;
    type Row = RowIntegers;

    #[inline(always)]
    fn multiply_add<S: Simd, const M: usize, const V: usize>(
        s: S,
        step: &Self::Step,
        first: usize,
        rows: &[Self::Row; M],
        sums: &mut [[S::F; V]; M],
    ) {
        Self::multiply_add_weights(s, step, first, rows, sums);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_sums_hold_the_largest_products() {
        assert_eq!([2, 4, 5, 6, 7].map(words_of_short_sums), [8, 8, 4, 2, 1]);
        assert_eq!(words_of_short_sums(8), 0);
    }
}
