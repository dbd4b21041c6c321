//! Panels of blocks whose codes are multiplied as integers, with activations that are rounded to 8 bits.

use std::hint::black_box;
use std::ops::Range;

use super::Block;
use super::codes::Codes as _;
use super::panels::{BlockProducts, BlockStep};
use super::scales::Scales;
use crate::matmul::{
    DecodedFormat, IntegerProducts, IntegerStep, STEP_INPUTS, STEP_WORDS, words_of_short_sums,
};
use crate::simd::{Simd, SimdOp};
use crate::{Isa, Work};

/// The inputs of a word.
const WORD_INPUTS: usize = STEP_INPUTS / STEP_WORDS;

/// Decodes some inputs of a panel.
struct Decode<'a, B: Block, const SCALES: usize, const RUN: usize> {
    steps: &'a [BlockStep<B>],
    inputs: Range<usize>,
    out: &'a mut [IntegerStep<SCALES>],
}

impl<B: Block, const SCALES: usize, const RUN: usize> SimdOp for Decode<'_, B, SCALES, RUN> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        for (index, out) in self.out.iter_mut().enumerate() {
            let first = self.inputs.start + index * STEP_INPUTS;
            let step = &self.steps[first / B::ELEMENTS];
            let first = first % B::ELEMENTS;
            step.prefetch(s, first);
            // Loops: unrolled, the code of all types is large.
            for half in 0..black_box(2) {
                for (q, words) in out.words[..black_box(STEP_WORDS)].iter_mut().enumerate() {
                    let codes = step.codes.fours(s, half, first + q * WORD_INPUTS);
                    let codes = s.as_bytes(codes);
                    s.store_bytes(if RUN == 0 { s.at_least_one(codes) } else { codes }, &mut words[half]);
                }
                for group in 0..SCALES {
                    let place = (first + group * STEP_INPUTS / SCALES) / B::GROUP;
                    let [scale, mut offset] = B::Scales::linear(s, step.scales.vectors(s, half, place));
                    if RUN == 0 {
                        offset = s.fma(scale, s.splat(128.0), offset);
                    }
                    s.store(scale, &mut out.scales[group][half]);
                    s.store(offset, &mut out.offsets[group][half]);
                }
            }
        }
    }
}

impl<B: Block, const SCALES: usize, const RUN: usize> BlockProducts<B> for IntegerProducts<SCALES, RUN>
where
    Self: DecodedFormat<Step = IntegerStep<SCALES>>,
{
    fn decode(isa: Isa, steps: &[BlockStep<B>], inputs: Range<usize>, out: &mut [Self::Step]) {
        const {
            assert!(RUN <= words_of_short_sums(B::Codes::BITS), "sums of 16 bits hold all products");
            assert!((RUN == 0) == (B::Codes::BITS > 7) && B::GROUP * SCALES >= STEP_INPUTS);
        }
        isa.run(Decode::<B, SCALES, RUN> { steps, inputs, out });
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
