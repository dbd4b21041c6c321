//! Weights as 8-bit or 4-bit integers in groups along the inputs, each with a scale. Activations are rounded
//! to 8 bits in the same groups, so that the products of a group are integer sums, exact in any order.
//!
//! ```text
//! a group:   scales of 32 outputs  │ weights, four or eight inputs of 16 outputs to a vector
//!            bfloat16, 64 bytes    │ [word][half][output][byte]
//! ```
//!
//! A sum in `float32` takes one number for each group: the integer, converted, times the weights' scale,
//! rounded, then fused with the activations' scale. Every instruction set does the same.

use std::cell::RefCell;
use std::mem::MaybeUninit;

use half::bf16;

use super::PanelJob;
use super::decoded::{TemporaryPanel, run_made, with_steps};
use super::format::{Fetch, FileStep, PANEL_ROWS, PanelFormat, PanelProducts, WeightStep};
use super::rounding::pack_groups;
use super::rows::{Buffers, RowStep, STRIP_VECTORS, tile_rows};
use crate::isa::Isa;
use crate::reduce::{max_lanes, sum_lanes};
use crate::simd::{LANES, Simd, SimdOp};

/// Weights as integers from -127 to 127, `4 * N` inputs to a group.
#[derive(Debug, Clone, Copy)]
pub struct ByteGroups<const N: usize>;

/// 64 inputs to a group: 8.25 bits a weight.
pub type I8Groups = ByteGroups<16>;

/// Weights as one of 16 integers, closer to each other around 0, 32 inputs to a group: 4.5 bits a weight.
#[derive(Debug, Clone, Copy)]
pub struct I4Groups;

/// The largest integer of an activation, and of an 8-bit weight.
pub(super) const MOST: f32 = 127.0;
/// Beside each other in a byte: the weights of input `i` and of input `i + 4`.
pub(super) const NIBBLES: usize = 4;
/// The integers that 4 bits stand for, plus 128. Of 16 integers to which normally distributed weights, in
/// groups of 32, are rounded, these have about the least squared error: 7.3 % of the weights, where
/// equidistant ones have 8.1 %.
pub(super) const CODES: [u8; 16] = [1, 28, 48, 65, 80, 94, 106, 119, 130, 142, 153, 165, 178, 193, 211, 235];
/// The same as signed bytes.
pub(super) const SIGNED_CODES: [u8; 16] = {
    let (mut codes, mut i) = (CODES, 0);
    while i < codes.len() {
        codes[i] ^= 0x80;
        i += 1;
    }
    codes
};
/// A vector of weights: a word of four bytes for each of 16 outputs.
pub(super) type Words = [u8; 4 * LANES];

/// A group of inputs of 32 outputs, in `N` words.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C, align(64))]
pub struct WeightGroup<const N: usize> {
    /// The scale of each output, the bits of a `bfloat16`.
    pub(super) scales: [[u16; LANES]; 2],
    /// `[word][half][output][byte]`
    pub(super) words: [[Words; 2]; N],
}

impl<const N: usize> Default for WeightGroup<N> {
    fn default() -> Self {
        Self { scales: [[0; LANES]; 2], words: [[[0; 4 * LANES]; 2]; N] }
    }
}

impl<const N: usize> WeightGroup<N> {
    fn scale(&self, lane: usize) -> f32 {
        bf16::from_bits(self.scales[lane / LANES][lane % LANES]).to_f32()
    }

    /// Appends the group as a file holds it: as in memory, little-endian.
    fn add_to(&self, out: &mut Vec<u8>) {
        out.extend(self.scales.as_flattened().iter().flat_map(|scale| scale.to_le_bytes()));
        out.extend_from_slice(self.words.as_flattened().as_flattened());
    }

    /// The group that a file holds; `None` if a scale is NaN or infinite.
    fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let mut group = Self::default();
        let (scales, words) = bytes.split_at(size_of_val(&group.scales));
        let mut finite = true;
        for (scale, &bytes) in group.scales.as_flattened_mut().iter_mut().zip(scales.as_chunks().0) {
            *scale = u16::from_le_bytes(bytes);
            finite &= *scale & 0x7f80 != 0x7f80;
        }
        group.words.as_flattened_mut().as_flattened_mut().copy_from_slice(words);
        finite.then_some(group)
    }

    /// The byte of an output: byte `i` of all its words.
    fn byte(&self, lane: usize, i: usize) -> u8 {
        self.words[i / 4][lane / LANES][4 * (lane % LANES) + i % 4]
    }
}

/// A group of inputs of a row, rounded to integers from -127 to 127 in the unit of `scale`, four to a word.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub struct RowGroup<const N: usize> {
    pub(super) words: [u32; N],
    pub(super) scale: f32,
    /// Where sums begin: minus the sum of the integers, times what weights are stored in excess.
    pub(super) start: i32,
}

impl<const N: usize> Default for RowGroup<N> {
    fn default() -> Self {
        Self { words: [0; N], scale: 0.0, start: 0 }
    }
}

impl<const N: usize> RowGroup<N> {
    /// Rounds a group: vectors of inputs. If one is NaN or infinite the scale is NaN, and so are all
    /// products.
    #[inline(always)]
    pub(super) fn new<S: Simd>(s: S, vectors: &[S::F]) -> Self {
        let zero = s.splat(0.0);
        let (mut largest, mut finite) = (zero, zero);
        for &vector in vectors {
            largest = s.max(largest, s.max(vector, s.sub(zero, vector)));
            finite = s.fma(vector, zero, finite);
        }
        let largest = max_lanes(s, largest) + sum_lanes(s, finite);
        let scale = largest / MOST;
        if !scale.is_normal() {
            return Self { scale: if scale.is_nan() { f32::NAN } else { 0.0 }, ..Self::default() };
        }
        let inverse = s.splat(MOST / largest);
        let (mut words, mut sum) = ([0; N], 0);
        for (words, &vector) in words.chunks_exact_mut(4).zip(vectors) {
            let bytes = s.nearest_i8(s.mul(vector, inverse));
            for (word, &bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
                *word = u32::from_le_bytes(bytes.map(i8::cast_unsigned));
            }
            sum += bytes.iter().map(|&byte| i32::from(byte)).sum::<i32>();
        }
        Self { words, scale, start: -sum * S::I8_EXCESS }
    }
}

macro_rules! row_groups {
    ($words:literal, $buffer:ident) => {
        impl RowStep for RowGroup<$words> {
            const INPUTS: usize = 4 * $words;
            const VECTORS: usize = STRIP_VECTORS;
            const SPANS_PANELS: bool = true;
            const HAS_INTEGER_SUMS: bool = true;

            #[inline(always)]
            fn arrange<S: Simd, const V: usize>(s: S, rows: &[[S::F; V]], out: &mut [Self]) {
                for (group, out) in out.chunks_exact_mut(rows.len()).enumerate() {
                    for (out, row) in out.iter_mut().zip(rows) {
                        *out = Self::new(s, &row[group * $words / 4..(group + 1) * $words / 4]);
                    }
                }
            }

            /// Few rows read the weights once in one tile; many take the tiles with fewer operations for each
            /// product: wide ones of three rows and more.
            #[inline(always)]
            fn most_rows<S: Simd>(num_rows: usize) -> usize {
                let (wide, half) = const { tile_rows::<S, Self>() };
                if num_rows > half && wide >= 3 { wide } else { wide.max(half) }
            }

            fn run<O: SimdOp>(isa: Isa, operation: O) -> O::Output {
                isa.run_integers(operation)
            }

            fn buffer(rows: &mut Buffers) -> &mut Vec<Self> {
                &mut rows.$buffer
            }

            fn values(rows: &Buffers) -> &[Self] {
                &rows.$buffer
            }
        }
    };
}

row_groups!(16, long_groups);
row_groups!(8, short_groups);

/// Adds the products of a group to the sums: `dots` are the integer sums.
#[inline(always)]
fn add_group<S: Simd, const N: usize, const M: usize, const V: usize>(
    s: S,
    scales: &[[u16; LANES]],
    rows: &[RowGroup<N>; M],
    dots: &[[S::I; V]; M],
    sums: &mut [[S::F; V]; M],
) {
    let mut of_outputs = [s.splat(0.0); V];
    for v in 0..V {
        of_outputs[v] = s.bf16(&scales[v]);
    }
    for r in 0..M {
        let of_row = s.splat(rows[r].scale);
        for v in 0..V {
            sums[r][v] = s.fma(s.mul(s.to_f32(dots[r][v]), of_outputs[v]), of_row, sums[r][v]);
        }
    }
}

impl<const N: usize> PanelProducts for ByteGroups<N>
where
    RowGroup<N>: RowStep,
{
    type Step = WeightGroup<N>;
    type Row = RowGroup<N>;
    const FETCHES: bool = true;

    #[inline(always)]
    fn multiply_add<S: Simd, const M: usize, const V: usize>(
        s: S,
        step: &Self::Step,
        first: usize,
        rows: &[Self::Row; M],
        sums: &mut [[S::F; V]; M],
    ) {
        Self::multiply_and_fetch(s, step, first, rows, sums, None);
    }

    #[inline(always)]
    fn multiply_and_fetch<S: Simd, const M: usize, const V: usize>(
        s: S,
        step: &Self::Step,
        first: usize,
        rows: &[Self::Row; M],
        sums: &mut [[S::F; V]; M],
        fetch: Option<Fetch>,
    ) {
        let mut dots = [[s.splat_i32(0); V]; M];
        for r in 0..M {
            dots[r] = [s.splat_i32(rows[r].start); V];
        }
        for q in 0..N {
            if let Some(fetch) = fetch {
                fetch.part(s, step, q, N);
            }
            for v in 0..V {
                let weights = s.operands(s.load_bytes(&step.words[q][first + v]));
                for r in 0..M {
                    dots[r][v] = s.dot_i8(weights, rows[r].words[q], dots[r][v]);
                }
            }
        }
        add_group(s, &step.scales[first..first + V], rows, &dots, sums);
    }
}

impl PanelFormat for I8Groups {}

impl WeightStep for WeightGroup<16> {
    fn stored_bytes(num_inputs: usize) -> usize {
        size_of::<f32>() * num_inputs
    }

    #[inline(always)]
    fn pack<S: Simd>(s: S, rows: &[&[u8]; PANEL_ROWS], steps: &mut [MaybeUninit<Self>]) -> bool {
        pack_groups::<S, I8Groups, 16, 64>(s, rows, steps)
    }

    fn weight(&self, lane: usize, i: usize) -> f32 {
        f32::from((self.byte(lane, i) ^ 0x80).cast_signed()) * self.scale(lane)
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.add_to(out);
    }
}

impl FileStep for WeightGroup<16> {
    fn read(bytes: &[u8]) -> Option<Self> {
        // No weight is -128, which instruction sets treat differently.
        let group = Self::of_bytes(bytes)?;
        let zeros = group
            .words
            .as_flattened()
            .as_flattened()
            .iter()
            .fold(0, |zeros, &byte| zeros + u32::from(byte == 0));
        (zeros == 0).then_some(group)
    }
}

impl FileStep for WeightGroup<4> {
    fn read(bytes: &[u8]) -> Option<Self> {
        Self::of_bytes(bytes)
    }
}

impl PanelProducts for I4Groups {
    type Step = WeightGroup<4>;
    type Row = RowGroup<8>;

    #[inline(always)]
    fn multiply_add<S: Simd, const M: usize, const V: usize>(
        s: S,
        step: &Self::Step,
        first: usize,
        rows: &[Self::Row; M],
        sums: &mut [[S::F; V]; M],
    ) {
        let mut dots = [[s.splat_i32(0); V]; M];
        for r in 0..M {
            dots[r] = [s.splat_i32(rows[r].start); V];
        }
        // As [`Simd::operands`] makes them of the codes.
        let operands = if S::I8_EXCESS == 0 { &SIGNED_CODES } else { &CODES };
        for q in 0..4 {
            for v in 0..V {
                let weights = s.load_bytes(&step.words[q][first + v]);
                let low = s.look_up(operands, s.low_nibbles(weights));
                let high = s.look_up(operands, s.high_nibbles(weights));
                for r in 0..M {
                    dots[r][v] = s.dot_i8(low, rows[r].words[2 * q], dots[r][v]);
                    dots[r][v] = s.dot_i8(high, rows[r].words[2 * q + 1], dots[r][v]);
                }
            }
        }
        add_group(s, &step.scales[first..first + V], rows, &dots, sums);
    }
}

/// [`I4Groups`] whose weights are looked up once for several tiles.
type LookedUp = ByteGroups<8>;

thread_local! {
    static LOOKED_UP: RefCell<Vec<WeightGroup<8>>> = const { RefCell::new(Vec::new()) };
}

impl TemporaryPanel for LookedUp {
    fn with_steps(count: usize, run: impl FnOnce(&mut [WeightGroup<8>])) {
        with_steps(&LOOKED_UP, count, run);
    }
}

/// Looks the weights of a panel up.
struct LookUp<'a> {
    steps: &'a [WeightGroup<4>],
    out: &'a mut [WeightGroup<8>],
}

impl SimdOp for LookUp<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        for (step, out) in self.steps.iter().zip(self.out) {
            out.scales = step.scales;
            for q in 0..4 {
                for half in 0..2 {
                    let weights = s.load_bytes(&step.words[q][half]);
                    let low = s.look_up(&CODES, s.low_nibbles(weights));
                    let high = s.look_up(&CODES, s.high_nibbles(weights));
                    s.store_bytes(low, &mut out.words[2 * q][half]);
                    s.store_bytes(high, &mut out.words[2 * q + 1][half]);
                }
            }
        }
    }
}

impl PanelFormat for I4Groups {
    fn run(isa: Isa, job: PanelJob<'_, Self>) {
        if job.tiles.len() == 1 {
            return <Self as PanelProducts>::Row::run(isa, job);
        }
        run_made::<Self, LookedUp>(isa, job, |steps, out| isa.run_integers(LookUp { steps, out }));
    }
}

impl WeightStep for WeightGroup<4> {
    fn stored_bytes(num_inputs: usize) -> usize {
        size_of::<f32>() * num_inputs
    }

    #[inline(always)]
    fn pack<S: Simd>(s: S, rows: &[&[u8]; PANEL_ROWS], steps: &mut [MaybeUninit<Self>]) -> bool {
        pack_groups::<S, I4Groups, 4, 32>(s, rows, steps)
    }

    fn weight(&self, lane: usize, i: usize) -> f32 {
        let byte = self.byte(lane, i / 8 * 4 + i % NIBBLES);
        let code = CODES[usize::from(byte >> (i % 8 / NIBBLES * 4) & 15)];
        f32::from((code ^ 0x80).cast_signed()) * self.scale(lane)
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.add_to(out);
    }
}
