//! Integers whose scales an index finds: each input of a matrix names its group, as GPTQ's `g_idx` does with
//! `desc_act`. Groups may have any size. The weights are those of [`super::zero_point`], `(code - zero) *
//! scale`.
//!
//! A stored row has all that its weights need: for each group a `float32` and the integer of zero, for each
//! input the 16 bits of its group, and a byte for each code. In memory panels hold the codes, each panel has
//! a table of its outputs' scales, and the matrix has one index. A table stays in the first cache while its
//! panel is decoded.

use std::hint::black_box;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use super::codes::{Codes, Joined, Plane};
use super::decoded::{DecodedMatrix, PanelSource};
use super::scales::{Scales as _, ZeroPoint};
use crate::matmul::{F32Panels, LINE, PANEL_ROWS, PREFETCH, PanelLayout, PanelMatrix, Region, WeightStep};
use crate::quant::{Mixed, PackedWeights, RowOrder, WeightFormat, read_rows};
use crate::simd::{Simd, SimdOp};
use crate::tensor::{ComputeDtype, DType, Encoding, StoredMatrix, not_finite};
use crate::{F32Step, Isa, Work, Workers};
use rsgen_core::{Error, Mutex, Result, memory};

/// The bytes of a group's scale and zero in a stored row.
const SCALE_BYTES: usize = 5;
/// The bytes of an input's group.
const INDEX_BYTES: usize = 2;
/// The inputs of a step.
const RUN: usize = 32;

/// Rows of integers of so many bits, with groups that an index finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IndexedType {
    bits: u8,
    num_inputs: usize,
    num_groups: usize,
}

impl IndexedType {
    /// The type of rows of `num_inputs` integers of 2, 3, 4 or 8 bits. `None` for others, and where so many
    /// groups leave nothing that is smaller than `float32`.
    pub fn new(bits: usize, num_inputs: usize, num_groups: usize) -> Option<Self> {
        let is_smaller = 8 * SCALE_BYTES * num_groups + bits * num_inputs < 32 * num_inputs;
        let fits = matches!(bits, 2 | 3 | 4 | 8) && is_smaller && u16::try_from(num_groups).is_ok();
        fits.then_some(Self { bits: bits as u8, num_inputs, num_groups })
    }

    /// The name that reports use.
    pub const fn name(self) -> &'static str {
        match self.bits {
            2 => "int2 in groups by index",
            3 => "int3 in groups by index",
            4 => "int4 in groups by index",
            _ => "int8 in groups by index",
        }
    }

    /// The weights of a row.
    pub const fn elements(self) -> usize {
        self.num_inputs
    }

    /// The bytes of a stored row.
    pub const fn bytes(self) -> usize {
        SCALE_BYTES * self.num_groups + (INDEX_BYTES + 1) * self.num_inputs
    }

    /// Writes a stored row: `scale(group)` gives the scales and the integers of zero, `group(input)` the
    /// group of each input and `code(input)` its integer.
    ///
    /// # Panics
    /// When `out` has another length.
    pub fn encode(
        self,
        out: &mut [u8],
        scale: impl Fn(usize) -> (f32, u8),
        group: impl Fn(usize) -> usize,
        code: impl Fn(usize) -> u8,
    ) {
        assert_eq!(out.len(), self.bytes(), "room for a row");
        let (scales, rest) = out.split_at_mut(SCALE_BYTES * self.num_groups);
        let (index, codes) = rest.split_at_mut(INDEX_BYTES * self.num_inputs);
        for (at, out) in scales.as_chunks_mut::<SCALE_BYTES>().0.iter_mut().enumerate() {
            let (scale, zero) = scale(at);
            out[..4].copy_from_slice(&scale.to_le_bytes());
            out[4] = zero;
        }
        for (input, out) in index.as_chunks_mut().0.iter_mut().enumerate() {
            *out = (group(input) as u16).to_le_bytes();
        }
        codes.iter_mut().enumerate().for_each(|(input, out)| *out = code(input));
    }

    /// Writes the weights of whole rows to `out`, `[rows * elements]`.
    ///
    /// # Panics
    /// When `out` has no room for them, or a row names a group that it lacks.
    pub fn dequantize(self, rows: &[u8], out: &mut [f32]) {
        let rows = rows.chunks_exact(self.bytes());
        assert_eq!(rows.len() * self.elements(), out.len(), "room for each weight");
        for (row, out) in rows.zip(out.chunks_exact_mut(self.elements())) {
            let row = self.row(row);
            for ((out, group), &code) in out.iter_mut().zip(row.groups()).zip(row.codes) {
                *out = ZeroPoint::weight(&row.scale(group), 0, f32::from(code));
            }
        }
    }

    /// A stored row by its parts.
    fn row(self, bytes: &[u8]) -> Row<'_> {
        let (scales, rest) = bytes.split_at(SCALE_BYTES * self.num_groups);
        let (index, codes) = rest.split_at(INDEX_BYTES * self.num_inputs);
        Row { scales, index, codes }
    }

    /// The format that keeps the integers.
    pub(crate) fn format(self) -> &'static dyn WeightFormat {
        match self.bits {
            2 => const { &IndexedFormat::<Plane<2, 2>>::new("int2 in groups by index") },
            3 => {
                const { &IndexedFormat::<Joined<2, Plane<2, 2>, Plane<1, 1>>>::new("int3 in groups by index") }
            }
            4 => const { &IndexedFormat::<Plane<4, 4>>::new("int4 in groups by index") },
            _ => const { &IndexedFormat::<Plane<8, 8>>::new("int8 in groups by index") },
        }
    }
}

/// A stored row.
struct Row<'a> {
    scales: &'a [u8],
    index: &'a [u8],
    codes: &'a [u8],
}

impl Row<'_> {
    fn groups(&self) -> impl Iterator<Item = usize> {
        self.index.as_chunks().0.iter().map(|&bytes| usize::from(u16::from_le_bytes(bytes)))
    }

    fn scale(&self, group: usize) -> (f32, u8) {
        let [a, b, c, d, zero] = self.scales.as_chunks().0[group];
        (f32::from_le_bytes([a, b, c, d]), zero)
    }
}

/// The integers of 32 outputs for 32 inputs.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct IndexedStep<C>(C);

impl<C: Codes> Default for IndexedStep<C> {
    fn default() -> Self {
        Self(C::ZERO)
    }
}

impl<C: Codes> WeightStep for IndexedStep<C> {
    fn stored_bytes(num_inputs: usize) -> usize {
        num_inputs
    }

    fn pack<S: Simd>(_: S, rows: &[&[u8]; PANEL_ROWS], steps: &mut [MaybeUninit<Self>]) -> bool {
        for (index, packed) in steps.iter_mut().enumerate() {
            let mut step = Self::default();
            for (lane, row) in rows.iter().enumerate().filter(|(_, row)| !row.is_empty()) {
                let mut codes = [0; RUN];
                let stored = &row[index * RUN..];
                let len = stored.len().min(RUN);
                codes[..len].copy_from_slice(&stored[..len]);
                step.0.set(lane, &codes);
            }
            packed.write(step);
        }
        true
    }

    /// The integer, which a scale makes a weight.
    fn weight(&self, lane: usize, i: usize) -> f32 {
        f32::from(self.0.get(lane, i))
    }
}

/// Integers in panels.
struct CodePanels<C>(C);

impl<C: Codes> PanelLayout for CodePanels<C> {
    type Weights = IndexedStep<C>;
    const INPUTS: usize = RUN;
}

/// A matrix of integers whose scales an index finds.
struct IndexedMatrix<C: Codes> {
    codes: PanelMatrix<CodePanels<C>>,
    /// `[panels, groups]`
    scales: Vec<ZeroPoint>,
    num_groups: usize,
    /// The group of each input.
    index: Vec<u16>,
}

/// The table of a panel has one group more than the matrix: that of the input after an odd last one, whose
/// weight is 0.
const fn groups_of_tables(kind: IndexedType) -> usize {
    kind.num_groups + kind.num_inputs % 2
}

impl<C: Codes> IndexedMatrix<C> {
    /// Packs parts whose inputs have one index.
    fn pack(
        workers: &Workers,
        parts: &[StoredMatrix<'_>],
        order: RowOrder,
        kind: IndexedType,
        mut index: Vec<u16>,
    ) -> Result<Self> {
        let num_rows = parts.iter().map(|part| part.num_rows).sum();
        let (num_outputs, num_inputs) = (order.num_outputs(num_rows), kind.num_inputs);
        let num_groups = groups_of_tables(kind);
        let mut scales = Vec::new();
        let len = num_outputs.div_ceil(PANEL_ROWS) * num_groups;
        memory::reserve(&mut scales, len, "scales")?;
        scales.resize(len, ZeroPoint::ZERO);
        let (scales, all_finite) = (Mutex::new(scales), AtomicBool::new(true));
        let read = |outputs: Range<usize>, codes: &mut [u8]| {
            let mut rows = vec![0; outputs.len() * kind.bytes()];
            read_rows(parts, order, Encoding::Indexed(kind), kind.bytes(), outputs.clone(), &mut rows)?;
            let mut table = vec![ZeroPoint::ZERO; num_groups];
            let mut finite = true;
            let rows = rows.chunks_exact(kind.bytes()).map(|row| kind.row(row));
            for ((lane, row), codes) in rows.enumerate().zip(codes.chunks_exact_mut(num_inputs)) {
                codes.copy_from_slice(row.codes);
                for (group, scales) in table[..kind.num_groups].iter_mut().enumerate() {
                    finite &= scales.set(lane, row.scale(group));
                }
                let is_padding = order.row(outputs.start + lane, num_rows).is_none();
                if !is_padding && !row.groups().eq(index.iter().copied().map(usize::from)) {
                    return Err(Error::internal("the rows of a matrix have one index of groups"));
                }
            }
            let first = outputs.start / PANEL_ROWS * num_groups;
            scales.lock()[first..][..num_groups].copy_from_slice(&table);
            all_finite.fetch_and(finite, Ordering::Relaxed);
            Ok(())
        };
        let codes = PanelMatrix::pack(workers, num_outputs, num_inputs, read)?;
        let codes = codes.filter(|_| all_finite.load(Ordering::Relaxed)).ok_or_else(not_finite)?;
        if num_inputs % 2 == 1 {
            index.push(kind.num_groups as u16);
        }
        let scales = std::mem::take(&mut *scales.lock());
        Ok(Self { codes, scales, num_groups, index })
    }

    /// The scales of a panel's outputs.
    fn table(&self, panel: usize) -> &[ZeroPoint] {
        &self.scales[panel * self.num_groups..][..self.num_groups]
    }
}

/// Decodes some inputs of a panel.
struct Decode<'a, C> {
    steps: &'a [IndexedStep<C>],
    table: &'a [ZeroPoint],
    index: &'a [u16],
    out: &'a mut [F32Step],
}

impl<C: Codes> SimdOp for Decode<'_, C> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let runs = self.out.chunks_mut(RUN / 2).zip(self.index.chunks(RUN));
        for ((out, groups), step) in runs.zip(self.steps) {
            for line in 0..size_of::<IndexedStep<C>>() / LINE {
                s.prefetch(step, PREFETCH + line * LINE);
            }
            for half in 0..black_box(2) {
                for (eight, groups) in groups.chunks(8).enumerate() {
                    for (i, &group) in groups.iter().enumerate() {
                        let numbers = s.to_f32(step.0.vector(s, half, 8 * eight + i));
                        let scales = self.table[usize::from(group)].vectors(s, half, 0);
                        let out = out[4 * eight + i / 2].lanes_mut(i % 2, half);
                        s.store(ZeroPoint::weights(s, numbers, scales), out);
                    }
                }
            }
        }
    }
}

impl<C: Codes> PanelSource<F32Panels> for IndexedMatrix<C> {
    fn decode(&self, isa: Isa, panel: usize, inputs: Range<usize>, _: bool, out: &mut [F32Step]) {
        let steps = &self.codes.panel(panel)[inputs.start / RUN..];
        let index = &self.index[inputs.start..][..2 * out.len()];
        isa.run(Decode { steps, table: self.table(panel), index, out });
    }

    fn stored(&self, panel: usize, inputs: Range<usize>) -> Region {
        self.codes.region(panel, inputs)
    }

    fn row(&self, output: usize, out: &mut [f32]) {
        self.codes.row(output, out);
        let table = self.table(output / PANEL_ROWS);
        for (out, &group) in out.iter_mut().zip(&self.index) {
            *out = ZeroPoint::weight(&table[usize::from(group)].get(output % PANEL_ROWS), 0, *out);
        }
    }

    fn num_outputs(&self) -> usize {
        self.codes.num_outputs()
    }

    fn num_inputs(&self) -> usize {
        self.codes.num_inputs()
    }

    fn bytes(&self) -> usize {
        self.codes.bytes() + size_of_val(&self.scales[..]) + size_of_val(&self.index[..])
    }
}

/// The format of panels of integers whose scales an index finds, which computes in `float32`.
struct IndexedFormat<C> {
    name: &'static str,
    codes: std::marker::PhantomData<fn() -> C>,
}

impl<C> IndexedFormat<C> {
    const fn new(name: &'static str) -> Self {
        Self { name, codes: std::marker::PhantomData }
    }
}

impl<C: Codes> WeightFormat for IndexedFormat<C> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn pack(
        &self,
        workers: &Workers,
        parts: &[StoredMatrix<'_>],
        order: RowOrder,
    ) -> Result<Box<dyn PackedWeights>> {
        let Encoding::Indexed(kind) = parts[0].encoding else {
            return Err(Error::internal("the parts have an index"));
        };
        let mut indexes = parts.iter().map(|part| index_of(part, kind)).collect::<Result<Vec<_>>>()?;
        let index = indexes.swap_remove(0);
        if indexes.iter().all(|other| *other == index) {
            let matrix = IndexedMatrix::<C>::pack(workers, parts, order, kind, index)?;
            return Ok(Box::new(DecodedMatrix::<_, F32Panels>::new(matrix)));
        }
        // Parts with other inputs in a group are matrices by themselves. Gates and ups are in one: they
        // become numbers.
        match order {
            RowOrder::Stacked => Mixed(ComputeDtype::F32).pack(workers, parts, order),
            _ => <dyn WeightFormat>::choose(DType::F32.into(), ComputeDtype::F32).pack(workers, parts, order),
        }
    }

    fn work(&self, bytes: u64, operations: u64) -> Work {
        Work { bytes, f32_flops: operations, ..Work::default() }
    }
}

/// The groups of a part's inputs, which its rows have in common.
fn index_of(part: &StoredMatrix<'_>, kind: IndexedType) -> Result<Vec<u16>> {
    let mut row = vec![0; kind.bytes()];
    part.read(0..kind.elements(), part.encoding, &mut row)?;
    let groups: Vec<_> = kind.row(&row).groups().collect();
    if groups.iter().any(|&group| group >= kind.num_groups) {
        return Err(Error::internal("an input names a group that the matrix lacks"));
    }
    Ok(groups.into_iter().map(|group| group as u16).collect())
}
