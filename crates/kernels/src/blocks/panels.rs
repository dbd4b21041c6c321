//! Panels of blocks: the same layout as other panels, with a step for each block of the inputs. They are decoded
//! while they are multiplied: into `float32` panels here, into integers in `integers`. A single row takes the weights
//! from registers.

use std::hint::black_box;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;

use super::codes::Codes;
use super::decoded::{DecodedMatrix, MultiplyRowOf, PanelSource};
use super::scales::Scales;
use super::{Block, BlockType, MOST_ELEMENTS};
use crate::matmul::{
    DecodedFormat, F32Panels, LINE, PANEL_ROWS, PREFETCH, PanelLayout, PanelMatrix, Region, WeightStep,
    store_pair,
};
use crate::quant::{PackedWeights, RowOrder, WeightFormat, pack_panels};
use crate::simd::{Simd, SimdOp};
use crate::tensor::{Encoding, StoredMatrix};
use crate::{F32Step, Isa, Work, Workers};
use rsgen_core::Result;

/// The inputs that are decoded at a time: a part of a block, or a whole one.
const RUN: usize = 32;

/// Weights in blocks of one type.
pub(crate) struct BlockPanels<B>(PhantomData<fn() -> B>);

/// A block of each of 32 outputs.
#[repr(C, align(64))]
pub(crate) struct BlockStep<B: Block> {
    pub(super) scales: B::Scales,
    pub(super) codes: B::Codes,
}

impl<B: Block> Clone for BlockStep<B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Block> Copy for BlockStep<B> {}

impl<B: Block> Default for BlockStep<B> {
    fn default() -> Self {
        Self { scales: B::Scales::ZERO, codes: B::Codes::ZERO }
    }
}

impl<B: Block> PanelLayout for BlockPanels<B> {
    type Weights = BlockStep<B>;
    const INPUTS: usize = B::ELEMENTS;
}

/// Decodes some inputs of a panel.
struct Decode<'a, B: Block> {
    steps: &'a [BlockStep<B>],
    inputs: Range<usize>,
    out: &'a mut [F32Step],
}

impl<B: Block> SimdOp for Decode<'_, B> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        for (index, out) in self.out.chunks_exact_mut(RUN / 2).enumerate() {
            let first = (self.inputs.start / RUN + index) * RUN;
            let step = &self.steps[first / B::ELEMENTS];
            step.prefetch(s, first % B::ELEMENTS);
            // One loop for both, and one for each eight inputs: unrolled, the code of all types is large.
            for half in 0..black_box(2) {
                step.decode(s, half, first % B::ELEMENTS, out);
            }
        }
    }
}

/// Multiplies a row with a panel, each weight as soon as it is decoded.
struct MultiplyRow<'a, B: Block> {
    steps: &'a [BlockStep<B>],
    row: &'a [[f32; 2]],
    products: &'a mut [f32; PANEL_ROWS],
}

impl<B: Block> SimdOp for MultiplyRow<'_, B> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let mut sums = [s.splat(0.0); 2];
        for (index, inputs) in self.row.as_flattened().chunks_exact(RUN).enumerate() {
            let first = index * RUN;
            let step = &self.steps[first / B::ELEMENTS];
            step.prefetch(s, first % B::ELEMENTS);
            step.multiply_add(s, first % B::ELEMENTS, inputs, &mut sums);
        }
        store_pair(s, sums, self.products);
    }
}

impl<B: Block> BlockStep<B> {
    /// Fetches what is decoded later, while [`RUN`] inputs are decoded.
    #[inline(always)]
    pub(super) fn prefetch<S: Simd>(&self, s: S, first: usize) {
        self.prefetch_part(s, first, 0, 1);
    }

    /// Part `index` of `count` of the same.
    #[inline(always)]
    pub(super) fn prefetch_part<S: Simd>(&self, s: S, first: usize, index: usize, count: usize) {
        let lines = const { (size_of::<Self>() * RUN / B::ELEMENTS).div_ceil(LINE) };
        for line in index * lines / count..(index + 1) * lines / count {
            s.prefetch(self, PREFETCH + (first / RUN * lines + line) * LINE);
        }
    }

    /// Decodes [`RUN`] inputs of 16 outputs.
    #[inline(always)]
    fn decode<S: Simd>(&self, s: S, half: usize, first: usize, out: &mut [F32Step]) {
        let group = B::GROUP.min(RUN);
        // Multiples of constants: then shifts of codes are constants, too.
        for index in 0..RUN / group {
            let start = index * group;
            let scales = self.scales.vectors(s, half, (first + start) / B::GROUP);
            for index in 0..black_box(group / 8) {
                let eight = start + 8 * index;
                for i in 0..8 {
                    let numbers = B::numbers(&self.codes, s, half, first + eight + i);
                    s.store(
                        B::Scales::weights(s, numbers, scales),
                        out[eight / 2 + i / 2].lanes_mut(i % 2, half),
                    );
                }
            }
        }
    }

    /// Adds the products of [`RUN`] inputs of a row with 32 outputs.
    #[inline(always)]
    fn multiply_add<S: Simd>(&self, s: S, first: usize, inputs: &[f32], sums: &mut [S::F; 2]) {
        let group = B::GROUP.min(RUN);
        for index in 0..RUN / group {
            let start = index * group;
            let place = (first + start) / B::GROUP;
            let scales = [self.scales.vectors(s, 0, place), self.scales.vectors(s, 1, place)];
            // A loop for each eight inputs, as above; within it none, lest shifts are no constants.
            for index in 0..black_box(group / 8) {
                let eight = start + 8 * index;
                let inputs = &inputs.as_chunks::<8>().0[eight / 8];
                macro_rules! add_products {
                    ($($i:literal)*) => {$(
                        let input = s.splat(inputs[$i]);
                        for half in 0..2 {
                            let numbers = B::numbers(&self.codes, s, half, first + eight + $i);
                            let weights = B::Scales::weights(s, numbers, scales[half]);
                            sums[half] = s.fma(weights, input, sums[half]);
                        }
                    )*};
                }
                add_products!(0 1 2 3 4 5 6 7);
            }
        }
    }
}

impl<B: Block> WeightStep for BlockStep<B> {
    fn stored_bytes(num_inputs: usize) -> usize {
        num_inputs / B::ELEMENTS * B::BYTES
    }

    fn pack<S: Simd>(_: S, rows: &[&[u8]; PANEL_ROWS], steps: &mut [MaybeUninit<Self>]) -> bool {
        pack_blocks(rows, steps)
    }

    fn weight(&self, lane: usize, i: usize) -> f32 {
        B::Scales::weight(&self.scales.get(lane), i / B::GROUP, B::number(self.codes.get(lane, i)))
    }
}

/// [`WeightStep::pack`], once for all instruction sets.
#[inline(never)]
fn pack_blocks<B: Block>(rows: &[&[u8]; PANEL_ROWS], steps: &mut [MaybeUninit<BlockStep<B>>]) -> bool {
    let mut all_finite = true;
    let codes = &mut [0; MOST_ELEMENTS][..B::ELEMENTS];
    for (index, step) in steps.iter_mut().enumerate() {
        // Filled where it stays, without a copy.
        let step = step.write(BlockStep::<B>::default());
        for (lane, row) in rows.iter().enumerate().filter(|(_, row)| !row.is_empty()) {
            let block = &row[index * B::BYTES..][..B::BYTES];
            B::codes(block, codes);
            step.codes.set(lane, codes);
            all_finite &= step.scales.set(lane, B::scales(block));
        }
    }
    all_finite
}

/// Products with blocks, which are decoded for them.
pub(super) trait BlockProducts<B: Block>: DecodedFormat {
    /// See [`PanelSource::decode`]; these are the steps of the panel.
    fn decode(isa: Isa, steps: &[BlockStep<B>], inputs: Range<usize>, fetches: bool, out: &mut [Self::Step]);

    /// Multiplies a row with the steps of a panel, each sum one chain, inputs ascending.
    fn multiply_row(isa: Isa, steps: &[BlockStep<B>], row: &[Self::Row], products: &mut [f32; PANEL_ROWS]);

    /// The work of so many multiplications and additions with a matrix of so many bytes.
    fn work(bytes: u64, operations: u64) -> Work;
}

impl<B: Block> BlockProducts<B> for F32Panels {
    fn decode(isa: Isa, steps: &[BlockStep<B>], inputs: Range<usize>, _: bool, out: &mut [F32Step]) {
        isa.run(Decode::<B> { steps, inputs, out });
    }

    fn multiply_row(isa: Isa, steps: &[BlockStep<B>], row: &[[f32; 2]], products: &mut [f32; PANEL_ROWS]) {
        isa.run(MultiplyRow::<B> { steps, row, products });
    }

    fn work(bytes: u64, operations: u64) -> Work {
        Work { bytes, f32_flops: operations, ..Work::default() }
    }
}

/// The format of panels that keep the bits of blocks, for products of type `F`.
pub(super) struct BlockFormat<B, F> {
    kind: BlockType,
    types: PhantomData<fn() -> (B, F)>,
}

impl<B, F> BlockFormat<B, F> {
    pub(super) const fn new(kind: BlockType) -> Self {
        Self { kind, types: PhantomData }
    }
}

impl<B: Block, F: BlockProducts<B>> WeightFormat for BlockFormat<B, F> {
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
        Ok(Box::new(DecodedMatrix::<_, F>::new(panels)))
    }

    fn work(&self, bytes: u64, operations: u64) -> Work {
        F::work(bytes, operations)
    }
}

impl<B: Block, F: BlockProducts<B>> PanelSource<F> for PanelMatrix<BlockPanels<B>> {
    const MULTIPLY_ROW: Option<MultiplyRowOf<Self, F::Row>> =
        Some(|matrix, isa, panel, row, products| F::multiply_row(isa, matrix.panel(panel), row, products));

    fn decode(&self, isa: Isa, panel: usize, inputs: Range<usize>, fetches: bool, out: &mut [F::Step]) {
        F::decode(isa, self.panel(panel), inputs, fetches, out);
    }

    fn stored(&self, panel: usize, inputs: Range<usize>) -> Region {
        self.region(panel, inputs)
    }

    fn row(&self, output: usize, out: &mut [f32]) {
        self.row(output, out);
    }

    fn num_outputs(&self) -> usize {
        self.num_outputs()
    }

    fn num_inputs(&self) -> usize {
        self.num_inputs()
    }

    fn bytes(&self) -> usize {
        self.bytes()
    }
}
