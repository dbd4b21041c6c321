//! Panels of blocks whose codes are multiplied as integers, with activations that are rounded to 8 bits.

use std::hint::black_box;
use std::ops::Range;

use super::Block;
use super::codes::Codes as _;
use super::panels::{BlockProducts, BlockStep};
use super::scales::Scales;
use crate::matmul::{DecodedFormat, IntegerProducts, IntegerStep, STEP_INPUTS, STEP_WORDS};
use crate::simd::{Simd, SimdOp};
use crate::{Isa, Work};

/// The inputs of a word.
const WORD_INPUTS: usize = STEP_INPUTS / STEP_WORDS;

/// Decodes some inputs of a panel.
struct Decode<'a, B: Block, const SCALES: usize, const IS_WIDE: bool> {
    steps: &'a [BlockStep<B>],
    inputs: Range<usize>,
    out: &'a mut [IntegerStep<SCALES>],
}

impl<B: Block, const SCALES: usize, const IS_WIDE: bool> SimdOp for Decode<'_, B, SCALES, IS_WIDE> {
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
                    s.store_bytes(if IS_WIDE { s.at_least_one(codes) } else { codes }, &mut words[half]);
                }
                for group in 0..SCALES {
                    let place = (first + group * STEP_INPUTS / SCALES) / B::GROUP;
                    let [scale, mut offset] = B::Scales::linear(s, step.scales.vectors(s, half, place));
                    if IS_WIDE {
                        offset = s.fma(scale, s.splat(128.0), offset);
                    }
                    s.store(scale, &mut out.scales[group][half]);
                    s.store(offset, &mut out.offsets[group][half]);
                }
            }
        }
    }
}

impl<B: Block, const SCALES: usize, const IS_WIDE: bool> BlockProducts<B> for IntegerProducts<SCALES, IS_WIDE>
where
    Self: DecodedFormat<Step = IntegerStep<SCALES>>,
{
    fn decode(isa: Isa, steps: &[BlockStep<B>], inputs: Range<usize>, out: &mut [Self::Step]) {
        const { assert!(IS_WIDE == (B::Codes::BITS > 7) && B::GROUP * SCALES >= STEP_INPUTS) }
        isa.run(Decode::<B, SCALES, IS_WIDE> { steps, inputs, out });
    }

    fn work(bytes: u64, operations: u64) -> Work {
        Work { bytes, int8_ops: operations, ..Work::default() }
    }
}

/// The format of codes of up to 7 bits in groups of 32 or more.
macro_rules! single {
    ($block:ty, $kind:expr) => {
        Some(const { &panels::BlockFormat::<$block, IntegerProducts<1, false>>::new($kind) })
    };
}

/// The format of codes of up to 7 bits in groups of 16.
macro_rules! pairs {
    ($block:ty, $kind:expr) => {
        Some(const { &panels::BlockFormat::<$block, IntegerProducts<2, false>>::new($kind) })
    };
}

/// The format of codes of 8 bits in groups of 32 or more.
macro_rules! wide {
    ($block:ty, $kind:expr) => {
        Some(const { &panels::BlockFormat::<$block, IntegerProducts<1, true>>::new($kind) })
    };
}

/// None: the codes are no integers.
macro_rules! none {
    ($block:ty, $kind:expr) => {
        None
    };
}

pub(super) use {none, pairs, single, wide};
