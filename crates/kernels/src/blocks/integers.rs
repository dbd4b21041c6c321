//! Panels of blocks whose codes are multiplied as integers, with activations that are rounded to 8 bits.

use std::any::TypeId;
use std::hint::black_box;
use std::marker::PhantomData;
use std::ops::Range;

use super::codes::Codes as _;
use super::panels::{BlockPanels, BlockStep};
use super::scales::Scales;
use super::{Block, BlockType};
use crate::matmul::{
    DecodedFormat, DecodedPanels, IntegerProducts, IntegerStep, PackRows, PanelMatrix, RowIntegers,
    STEP_INPUTS, STEP_WORDS,
};
use crate::quant::{PackedWeights, RowOrder, WeightFormat, pack_panels};
use crate::simd::{Simd, SimdOp};
use crate::tensor::{Encoding, StoredMatrix};
use crate::{Gated, Inputs, Isa, MatrixOutput, PackedRows, Work, Workers};
use rsgen_core::Result;

/// The inputs of a word.
const WORD_INPUTS: usize = STEP_INPUTS / STEP_WORDS;

/// The format of panels that keep the bits of blocks, and multiply their codes as integers: `SCALES` groups of 32
/// inputs have a scale each, and codes above 127 are `IS_WIDE`.
pub(super) struct IntegerFormat<B, const SCALES: usize, const IS_WIDE: bool> {
    kind: BlockType,
    block: PhantomData<fn() -> B>,
}

impl<B: Block, const SCALES: usize, const IS_WIDE: bool> IntegerFormat<B, SCALES, IS_WIDE> {
    pub(super) const fn new(kind: BlockType) -> Self {
        assert!(IS_WIDE == (B::Codes::BITS > 7) && B::GROUP * SCALES >= STEP_INPUTS);
        Self { kind, block: PhantomData }
    }
}

impl<B: Block, const SCALES: usize, const IS_WIDE: bool> WeightFormat for IntegerFormat<B, SCALES, IS_WIDE>
where
    IntegerProducts<SCALES, IS_WIDE>: DecodedFormat<Step = IntegerStep<SCALES>, Row = RowIntegers>,
{
    fn name(&self) -> &'static str {
        self.kind.name()
    }

    fn pack(
        &self,
        workers: &Workers,
        parts: &[StoredMatrix<'_>],
        order: RowOrder,
    ) -> Result<Box<dyn PackedWeights>> {
        let panels = pack_panels::<BlockPanels<B>>(workers, parts, order, Encoding::Blocks(self.kind))?;
        Ok(Box::new(IntegerBlocks::<B, SCALES, IS_WIDE>(panels)))
    }

    fn work(&self, bytes: u64, operations: u64) -> Work {
        Work { bytes, int8_ops: operations, ..Work::default() }
    }
}

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

/// A matrix of blocks whose codes are multiplied as integers.
struct IntegerBlocks<B: Block, const SCALES: usize, const IS_WIDE: bool>(PanelMatrix<BlockPanels<B>>);

impl<B: Block, const SCALES: usize, const IS_WIDE: bool> IntegerBlocks<B, SCALES, IS_WIDE>
where
    IntegerProducts<SCALES, IS_WIDE>: DecodedFormat<Step = IntegerStep<SCALES>, Row = RowIntegers>,
{
    /// Calls `multiply` with the matrix as one that is decoded.
    fn decoded(&self, multiply: impl FnOnce(DecodedPanels<'_, IntegerProducts<SCALES, IS_WIDE>>)) {
        let matrix = &self.0;
        let decode = |isa: Isa, panel: usize, inputs: Range<usize>, out: &mut [IntegerStep<SCALES>]| {
            isa.run(Decode::<B, SCALES, IS_WIDE> { steps: matrix.panel(panel), inputs, out });
        };
        let (num_outputs, num_inputs, bytes) = (matrix.num_outputs(), matrix.num_inputs(), matrix.bytes());
        multiply(DecodedPanels { num_outputs, num_inputs, bytes, decode: &decode });
    }
}

impl<B: Block, const SCALES: usize, const IS_WIDE: bool> PackedWeights for IntegerBlocks<B, SCALES, IS_WIDE>
where
    IntegerProducts<SCALES, IS_WIDE>: DecodedFormat<Step = IntegerStep<SCALES>, Row = RowIntegers>,
{
    fn pack_rows(&self, workers: &Workers, inputs: Inputs<'_>, rows: &mut PackedRows) {
        rows.pack::<RowIntegers>(workers, inputs, self.0.num_inputs());
    }

    fn matmul(&self, workers: &Workers, rows: &PackedRows, output: MatrixOutput<'_>, out: &mut [f32]) {
        self.decoded(|panels| panels.matmul(workers, rows, output, out));
    }

    fn row_type(&self) -> TypeId {
        TypeId::of::<RowIntegers>()
    }

    fn gated_matmul(
        &self,
        workers: &Workers,
        rows: &PackedRows,
        gated: Gated<'_>,
        next: &dyn PackedWeights,
        out: &mut PackedRows,
    ) {
        let pack: &PackRows<'_> = &|workers, inputs, rows| next.pack_rows(workers, inputs, rows);
        self.decoded(|panels| panels.gated_matmul(workers, rows, gated, Some(pack), out));
    }

    fn write(&self, _: &mut Vec<u8>) {}

    fn row(&self, output: usize, out: &mut [f32]) {
        self.0.row(output, out);
    }

    fn num_outputs(&self) -> usize {
        self.0.num_outputs()
    }

    fn num_inputs(&self) -> usize {
        self.0.num_inputs()
    }

    fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

/// The format of codes of up to 7 bits in groups of 32 or more.
macro_rules! single {
    ($block:ty, $kind:expr) => {
        Some(const { &integers::IntegerFormat::<$block, 1, false>::new($kind) })
    };
}

/// The format of codes of up to 7 bits in groups of 16.
macro_rules! pairs {
    ($block:ty, $kind:expr) => {
        Some(const { &integers::IntegerFormat::<$block, 2, false>::new($kind) })
    };
}

/// The format of codes of 8 bits in groups of 32 or more.
macro_rules! wide {
    ($block:ty, $kind:expr) => {
        Some(const { &integers::IntegerFormat::<$block, 1, true>::new($kind) })
    };
}

/// None: the codes are no integers.
macro_rules! none {
    ($block:ty, $kind:expr) => {
        None
    };
}

pub(super) use {none, pairs, single, wide};
