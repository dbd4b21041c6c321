//! Panels of blocks whose codes are multiplied as integers, with activations that are rounded to 8 bits.

use std::hint::black_box;
use std::ops::Range;

use super::Block;
use super::codes::Codes as _;
use super::panels::{BlockProducts, BlockStep};
use super::scales::Scales;
use crate::matmul::{
    DecodedFormat, IntegerProducts, IntegerStep, IntegerWeights, PANEL_ROWS, RowIntegers, STEP_INPUTS,
    STEP_WORDS, store_pair, words_of_short_sums,
};
use crate::simd::{Simd, SimdOp};
use crate::{Isa, Work};

/// The inputs of a word.
const WORD_INPUTS: usize = STEP_INPUTS / STEP_WORDS;

/// 32 inputs of a block of 32 outputs, from `first` on. With `FETCHES`, each word of bytes fetches a part of what is read
/// later: at once, so many lines would keep the words waiting.
struct Part<'a, B: Block, const SCALES: usize, const RUN: usize, const FETCHES: bool> {
    step: &'a BlockStep<B>,
    first: usize,
}

impl<'a, B: Block, const SCALES: usize, const RUN: usize, const FETCHES: bool>
    Part<'a, B, SCALES, RUN, FETCHES>
{
    /// Part `index` of a panel.
    #[inline(always)]
    fn of_panel(steps: &'a [BlockStep<B>], index: usize) -> Self {
        let parts = const { B::ELEMENTS / STEP_INPUTS };
        Self { step: &steps[index / parts], first: index % parts * STEP_INPUTS }
    }
}

impl<B: Block, const SCALES: usize, const RUN: usize, const FETCHES: bool> IntegerWeights
    for Part<'_, B, SCALES, RUN, FETCHES>
{
    #[inline(always)]
    fn word<S: Simd>(&self, s: S, q: usize, vector: usize) -> S::B {
        if FETCHES && RUN == 0 && vector == 0 {
            self.step.prefetch_part(s, self.first, q, STEP_WORDS);
        }
        let codes = s.as_bytes(self.step.codes.fours(s, vector, self.first + q * WORD_INPUTS));
        if RUN == 0 { s.at_least_one(codes) } else { codes }
    }

    #[inline(always)]
    fn linear<S: Simd>(&self, s: S, group: usize, vector: usize) -> [S::F; 2] {
        let place = (self.first + group * STEP_INPUTS / SCALES) / B::GROUP;
        let [scale, mut offset] = B::Scales::linear(s, self.step.scales.vectors(s, vector, place));
        if RUN == 0 {
            offset = s.fma(scale, s.splat(128.0), offset);
        }
        [scale, offset]
    }
}

/// Decodes some inputs of a panel.
struct Decode<'a, B: Block, const SCALES: usize, const RUN: usize> {
    steps: &'a [BlockStep<B>],
    inputs: Range<usize>,
    fetches: bool,
    out: &'a mut [IntegerStep<SCALES>],
}

impl<B: Block, const SCALES: usize, const RUN: usize> SimdOp for Decode<'_, B, SCALES, RUN> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        for (index, out) in self.out.iter_mut().enumerate() {
            let index = self.inputs.start / STEP_INPUTS + index;
            let part = Part::<B, SCALES, RUN, false>::of_panel(self.steps, index);
            if self.fetches {
                part.step.prefetch(s, part.first);
            }
            // Loops: unrolled, the code of all types is large.
            for half in 0..black_box(2) {
                for (q, words) in out.words[..black_box(STEP_WORDS)].iter_mut().enumerate() {
                    s.store_bytes(part.word(s, q, half), &mut words[half]);
                }
                for group in 0..SCALES {
                    let [scale, offset] = part.linear(s, group, half);
                    s.store(scale, &mut out.scales[group][half]);
                    s.store(offset, &mut out.offsets[group][half]);
                }
            }
        }
    }
}

/// Multiplies a row with a panel.
struct MultiplyRow<'a, B: Block, const SCALES: usize, const RUN: usize> {
    steps: &'a [BlockStep<B>],
    row: &'a [RowIntegers],
    products: &'a mut [f32; PANEL_ROWS],
}

impl<B: Block, const SCALES: usize, const RUN: usize> SimdOp for MultiplyRow<'_, B, SCALES, RUN> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let mut sums = [[s.splat(0.0); 2]];
        for (index, row) in self.row.as_chunks().0.iter().enumerate() {
            let part = Part::<B, SCALES, RUN, true>::of_panel(self.steps, index);
            if RUN > 0 {
                part.step.prefetch(s, part.first);
            }
            IntegerProducts::<SCALES, RUN>::multiply_add_weights(s, &part, 0, row, &mut sums);
        }
        store_pair(s, sums[0], self.products);
    }
}

impl<B: Block, const SCALES: usize, const RUN: usize> BlockProducts<B> for IntegerProducts<SCALES, RUN>
where
    Self: DecodedFormat<Step = IntegerStep<SCALES>, Row = RowIntegers>,
{
    fn decode(isa: Isa, steps: &[BlockStep<B>], inputs: Range<usize>, fetches: bool, out: &mut [Self::Step]) {
        const {
            assert!(RUN <= words_of_short_sums(B::Codes::BITS), "sums of 16 bits hold all products");
            assert!((RUN == 0) == (B::Codes::BITS > 7) && B::GROUP * SCALES >= STEP_INPUTS);
        }
        isa.run(Decode::<B, SCALES, RUN> { steps, inputs, fetches, out });
    }

    fn multiply_row(isa: Isa, steps: &[BlockStep<B>], row: &[RowIntegers], products: &mut [f32; PANEL_ROWS]) {
        isa.run_integers(MultiplyRow::<B, SCALES, RUN> { steps, row, products });
    }

    fn work(bytes: u64, operations: u64) -> Work {
        Work { bytes, int8_ops: operations, ..Work::default() }
    }
}

/// The format of codes of up to 4 bits in groups of 32 or more.
macro_rules! small {
    ($block:ty, $kind:expr) => {
        Some(const { &panels::BlockFormat::<$block, IntegerProducts<1, 8>>::new($kind) })
    };
}

/// The format of codes of 5 or 6 bits in groups of 32 or more.
macro_rules! middle {
    ($block:ty, $kind:expr) => {
        Some(const { &panels::BlockFormat::<$block, IntegerProducts<1, 2>>::new($kind) })
    };
}

/// The format of codes of up to 6 bits in groups of 16.
macro_rules! pairs {
    ($block:ty, $kind:expr) => {
        Some(const { &panels::BlockFormat::<$block, IntegerProducts<2, 2>>::new($kind) })
    };
}

/// The format of codes of 8 bits in groups of 32 or more.
macro_rules! wide {
    ($block:ty, $kind:expr) => {
        Some(const { &panels::BlockFormat::<$block, IntegerProducts<1, 0>>::new($kind) })
    };
}

/// None: the codes are no integers.
macro_rules! none {
    ($block:ty, $kind:expr) => {
        None
    };
}

pub(super) use {middle, none, pairs, small, wide};
