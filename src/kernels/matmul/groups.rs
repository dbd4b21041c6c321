//! Weights as 8-bit or 4-bit integers in groups along the inputs, each with a scale. Activations are rounded to 8 bits in the
//! same groups, so that the products of a group are sums of integers, exact in any order.
//!
//! ```text
//! a group:   scales of 32 outputs  │ weights, four or eight inputs of 16 outputs to a vector
//!            bfloat16, 64 bytes    │ [word][half][output][byte]
//! ```
//!
//! A sum in `float32` takes one number for each group: the integer, converted, times the weights' scale, rounded, then fused
//! with the activations' scale. Every instruction set does the same.

use std::mem::MaybeUninit;

use half::bf16;

use super::format::{FileFormat, PANEL_ROWS, PanelFormat, PanelProducts, load_block};
use super::rows::{Buffers, RowStep, STRIP_VECTORS};
use crate::kernels::isa::Isa;
use crate::kernels::simd::{LANES, Simd, SimdOp, round_bf16};

/// Weights as integers from -127 to 127, 64 inputs to a group: 8.25 bits a weight.
#[derive(Debug, Clone, Copy)]
pub struct I8Groups;

/// Weights as one of 16 integers, closer to each other around 0, 32 inputs to a group: 4.5 bits a weight.
#[derive(Debug, Clone, Copy)]
pub struct I4Groups;

/// The largest integer of an activation, and of an 8-bit weight.
const MOST: f32 = 127.0;
/// Beside each other in a byte: the weights of input `i` and of input `i + 4`.
const NIBBLES: usize = 4;
/// The integers that 4 bits stand for, plus 128. Of 16 integers to which normally distributed weights, in groups of 32, are
/// rounded, these have about the least squared error: 7.3 % of the weights, where equidistant ones have 8.1 %.
const CODES: [u8; 16] = [1, 28, 48, 65, 80, 94, 106, 119, 130, 142, 153, 165, 178, 193, 211, 235];
/// The index of the code that is nearest to each integer from -128 to 127, and that code.
static NEAREST: [u8; 256] = nearest_codes();
static NEAREST_CODE: [i8; 256] = {
    let (nearest, mut codes, mut integer) = (nearest_codes(), [0; 256], 0);
    while integer < 256 {
        codes[integer] = (CODES[nearest[integer] as usize] ^ 0x80).cast_signed();
        integer += 1;
    }
    codes
};
/// The scales that are tried for a group of 4-bit weights, over that which gives the largest weight an integer of -127.
const I4_SCALES: [f32; 4] = [1.0, 0.9, -1.19, -1.07];

const fn nearest_codes() -> [u8; 256] {
    let (mut nearest, mut code, mut integer) = ([0; 256], 0, 0);
    while integer < 256 {
        while code + 1 < CODES.len() && 2 * integer > CODES[code] as usize + CODES[code + 1] as usize {
            code += 1;
        }
        nearest[integer] = code as u8;
        integer += 1;
    }
    nearest
}

/// A vector of weights: a word of four bytes for each of 16 outputs.
type Words = [u8; 4 * LANES];

/// A group of inputs of 32 outputs, in `N` words.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C, align(64))]
pub struct WeightGroup<const N: usize> {
    /// The scale of each output, the bits of a `bfloat16`.
    scales: [[u16; LANES]; 2],
    /// `[word][half][output][byte]`
    words: [[Words; 2]; N],
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
    fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.scales.as_flattened().iter().flat_map(|scale| scale.to_le_bytes()));
        out.extend_from_slice(self.words.as_flattened().as_flattened());
    }

    /// The group that a file holds; `None` if a scale is NaN or infinite.
    fn read(bytes: &[u8]) -> Option<Self> {
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
    words: [u32; N],
    scale: f32,
    /// Where sums begin: minus the sum of the integers, times what weights are stored in excess.
    start: i32,
}

impl<const N: usize> Default for RowGroup<N> {
    fn default() -> Self {
        Self { words: [0; N], scale: 0.0, start: 0 }
    }
}

impl<const N: usize> RowGroup<N> {
    /// Rounds a group: vectors of inputs. If one is NaN or infinite the scale is NaN, and so are all products.
    #[inline(always)]
    fn new<S: Simd>(s: S, vectors: &[S::F]) -> Self {
        let zero = s.splat(0.0);
        let (mut largest, mut finite) = (zero, zero);
        for &vector in vectors {
            largest = s.max(largest, s.max(vector, s.sub(zero, vector)));
            finite = s.fma(vector, zero, finite);
        }
        largest = s.max(largest, s.swap::<8>(largest));
        largest = s.max(largest, s.swap::<4>(largest));
        largest = s.max(largest, s.swap::<2>(largest));
        largest = s.max(largest, s.swap::<1>(largest));
        finite = s.add(finite, s.swap::<8>(finite));
        finite = s.add(finite, s.swap::<4>(finite));
        finite = s.add(finite, s.swap::<2>(finite));
        finite = s.add(finite, s.swap::<1>(finite));
        let mut lanes = [0.0; LANES];
        s.store(s.add(largest, finite), &mut lanes);
        let scale = lanes[0] / MOST;
        if !scale.is_normal() {
            return Self { scale: if scale.is_nan() { f32::NAN } else { 0.0 }, ..Self::default() };
        }
        let inverse = s.splat(MOST / lanes[0]);
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

            #[inline(always)]
            fn arrange<S: Simd, const M: usize>(
                s: S,
                rows: &[[S::F; STRIP_VECTORS]; M],
                out: &mut [[Self; M]],
            ) {
                for (group, out) in out.iter_mut().enumerate() {
                    for r in 0..M {
                        let vectors = group * $words / 4..(group + 1) * $words / 4;
                        out[r] = Self::new(s, &rows[r][vectors]);
                    }
                }
            }

            #[inline(always)]
            fn tile_rows<S: Simd>() -> (usize, usize) {
                (S::WIDE_INTEGER_ROWS, S::HALF_INTEGER_ROWS)
            }

            /// Few rows read the weights once in one tile; many take the tiles with fewer operations for each product.
            #[inline(always)]
            fn most_rows<S: Simd>(num_rows: usize) -> usize {
                let (wide, half) = Self::tile_rows::<S>();
                if num_rows > half && 2 * wide >= half { wide } else { wide.max(half) }
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

/// Adds the products of a group to the sums: `dots` are the sums of integers.
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

impl PanelProducts for I8Groups {
    type Step = WeightGroup<16>;
    type Row = RowGroup<16>;

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
        for q in 0..16 {
            for v in 0..V {
                let weights = s.load_bytes(&step.words[q][first + v]);
                for r in 0..M {
                    dots[r][v] = s.dot_i8(weights, rows[r].words[q], dots[r][v]);
                }
            }
        }
        add_group(s, &step.scales[first..first + V], rows, &dots, sums);
    }
}

impl PanelFormat for I8Groups {
    const STORED_BYTES: usize = size_of::<f32>();

    #[inline(always)]
    fn pack<S: Simd>(s: S, rows: [&[u8]; PANEL_ROWS], steps: &mut [MaybeUninit<Self::Step>]) -> bool {
        pack_groups::<S, Self, 16, 64>(s, rows, steps)
    }

    fn get(step: &Self::Step, lane: usize, i: usize) -> f32 {
        f32::from((step.byte(lane, i) ^ 0x80).cast_signed()) * step.scale(lane)
    }
}

impl FileFormat for I8Groups {
    fn write(step: &Self::Step, out: &mut Vec<u8>) {
        step.write(out);
    }

    fn read(bytes: &[u8]) -> Option<Self::Step> {
        // No weight is -128, which instruction sets treat differently.
        let group = WeightGroup::read(bytes)?;
        let zeros = group
            .words
            .as_flattened()
            .as_flattened()
            .iter()
            .fold(0, |zeros, &byte| zeros + u32::from(byte == 0));
        (zeros == 0).then_some(group)
    }
}

impl FileFormat for I4Groups {
    fn write(step: &Self::Step, out: &mut Vec<u8>) {
        step.write(out);
    }

    fn read(bytes: &[u8]) -> Option<Self::Step> {
        WeightGroup::read(bytes)
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
        for q in 0..4 {
            for v in 0..V {
                let weights = s.load_bytes(&step.words[q][first + v]);
                let low = s.look_up(&CODES, s.low_nibbles(weights));
                let high = s.look_up(&CODES, s.high_nibbles(weights));
                for r in 0..M {
                    dots[r][v] = s.dot_i8(low, rows[r].words[2 * q], dots[r][v]);
                    dots[r][v] = s.dot_i8(high, rows[r].words[2 * q + 1], dots[r][v]);
                }
            }
        }
        add_group(s, &step.scales[first..first + V], rows, &dots, sums);
    }
}

impl PanelFormat for I4Groups {
    const STORED_BYTES: usize = size_of::<f32>();

    #[inline(always)]
    fn pack<S: Simd>(s: S, rows: [&[u8]; PANEL_ROWS], steps: &mut [MaybeUninit<Self::Step>]) -> bool {
        pack_groups::<S, Self, 4, 32>(s, rows, steps)
    }

    fn get(step: &Self::Step, lane: usize, i: usize) -> f32 {
        let byte = step.byte(lane, i / 8 * 4 + i % NIBBLES);
        let code = CODES[usize::from(byte >> (i % 8 / NIBBLES * 4) & 15)];
        f32::from((code ^ 0x80).cast_signed()) * step.scale(lane)
    }
}

/// How weights become integers.
trait Rounding<const N: usize, const INPUTS: usize> {
    /// Rounds the weights of 16 outputs, a vector for each input, to a half of a group of zeros.
    fn round<S: Simd>(s: S, inputs: &[S::F; INPUTS], half: usize, group: &mut WeightGroup<N>);
}

impl Rounding<16, 64> for I8Groups {
    #[inline(always)]
    fn round<S: Simd>(s: S, inputs: &[S::F; 64], half: usize, group: &mut WeightGroup<16>) {
        let zero = s.splat(0.0);
        let mut largest = zero;
        for &weights in inputs {
            largest = s.max(largest, s.max(weights, s.sub(zero, weights)));
        }
        let (scales, inverse) = scales_of(s, s.mul(largest, s.splat(1.0 / MOST)));
        group.scales[half] = scales;
        for (q, inputs) in inputs.as_chunks::<4>().0.iter().enumerate() {
            let mut bytes = [[0; LANES]; 4];
            for i in 0..4 {
                let integers = s.max(s.splat(-MOST), s.min(s.splat(MOST), s.mul(inputs[i], inverse)));
                bytes[i] = s.nearest_i8(integers).map(|integer| integer.cast_unsigned() ^ 0x80);
            }
            group.words[q][half] = in_words(&bytes);
        }
    }
}

impl Rounding<4, 32> for I4Groups {
    /// With the scale that has the least sum of squared errors for the integers of one of several scales.
    #[inline(always)]
    fn round<S: Simd>(s: S, inputs: &[S::F; 32], half: usize, group: &mut WeightGroup<4>) {
        // In this unit no square overflows.
        let mut unit = [0.0; LANES];
        s.store(s.mul(extreme_of(s, inputs), s.splat(-1.0 / MOST)), &mut unit);
        let inverse = s.load(&unit.map(|unit| if unit.is_normal() { 1.0 / unit } else { 0.0 }));
        let mut best = ([0.0; LANES], [0.0; LANES]);
        for factor in I4_SCALES {
            let (mut products, mut squares) = (s.splat(0.0), s.splat(0.0));
            for &weights in inputs {
                let weights = s.mul(weights, inverse);
                let integers =
                    s.i8(&places_of(s, s.mul(weights, s.splat(1.0 / factor))).map(|at| NEAREST_CODE[at]));
                products = s.fma(weights, integers, products);
                squares = s.fma(integers, integers, squares);
            }
            // The least sum of squares is that of the weights minus this gain.
            let scale = s.div(products, squares);
            let (mut scales, mut gains) = ([0.0; LANES], [0.0; LANES]);
            s.store(scale, &mut scales);
            s.store(s.mul(scale, products), &mut gains);
            for lane in 0..LANES {
                if gains[lane] > best.1[lane] {
                    (best.0[lane], best.1[lane]) = (scales[lane] * unit[lane], gains[lane]);
                }
            }
        }
        let (scales, inverse) = scales_of(s, s.load(&best.0));
        group.scales[half] = scales;
        for (q, inputs) in inputs.as_chunks::<8>().0.iter().enumerate() {
            let mut bytes = [[0; LANES]; NIBBLES];
            for i in 0..NIBBLES {
                let low = places_of(s, s.mul(inputs[i], inverse));
                let high = places_of(s, s.mul(inputs[i + NIBBLES], inverse));
                for lane in 0..LANES {
                    bytes[i][lane] = NEAREST[low[lane]] | NEAREST[high[lane]] << 4;
                }
            }
            group.words[q][half] = in_words(&bytes);
        }
    }
}

/// A byte of each output, four times, as words of four bytes.
#[inline(always)]
fn in_words(bytes: &[[u8; LANES]; 4]) -> Words {
    let mut words = [[0; 4]; LANES];
    for lane in 0..LANES {
        words[lane] = [bytes[0][lane], bytes[1][lane], bytes[2][lane], bytes[3][lane]];
    }
    let mut out = [0; 4 * LANES];
    out.copy_from_slice(words.as_flattened());
    out
}

/// Packs the rows of a panel, which hold `float32`, group by group. Returns whether all weights are finite.
#[inline(always)]
fn pack_groups<S: Simd, F: Rounding<N, INPUTS>, const N: usize, const INPUTS: usize>(
    s: S,
    rows: [&[u8]; PANEL_ROWS],
    groups: &mut [MaybeUninit<WeightGroup<N>>],
) -> bool {
    let mut finite = s.splat(0.0);
    for (index, out) in groups.iter_mut().enumerate() {
        let mut inputs = [[s.splat(0.0); INPUTS]; 2];
        for block in 0..INPUTS / LANES {
            let words = load_block(s, &rows, index * INPUTS / LANES + block);
            for (i, halves) in words.iter().enumerate() {
                for half in 0..2 {
                    let weights = s.load(&halves[half].map(f32::from_bits));
                    finite = s.fma(weights, s.splat(0.0), finite);
                    inputs[half][block * LANES + i] = weights;
                }
            }
        }
        let mut group = WeightGroup::default();
        for half in 0..2 {
            F::round(s, &inputs[half], half, &mut group);
        }
        out.write(group);
    }
    let mut lanes = [0.0; LANES];
    s.store(finite, &mut lanes);
    lanes.iter().all(|lane| lane.is_finite())
}

/// The weight with the largest magnitude of each output, with its sign.
#[inline(always)]
fn extreme_of<S: Simd>(s: S, inputs: &[S::F]) -> S::F {
    let (mut highest, mut lowest) = (s.splat(0.0), s.splat(0.0));
    for &weights in inputs {
        (highest, lowest) = (s.max(highest, weights), s.min(lowest, weights));
    }
    let (mut highs, mut lows) = ([0.0; LANES], [0.0; LANES]);
    s.store(highest, &mut highs);
    s.store(lowest, &mut lows);
    for lane in 0..LANES {
        if highs[lane] < -lows[lane] {
            highs[lane] = lows[lane];
        }
    }
    s.load(&highs)
}

/// The scales of 16 outputs as they are stored, and their inverses; 0 for both where a scale is no normal number.
#[inline(always)]
fn scales_of<S: Simd>(s: S, scales: S::F) -> ([u16; LANES], S::F) {
    let (mut lanes, mut bits) = ([0.0; LANES], [0; LANES]);
    s.store(scales, &mut lanes);
    for lane in 0..LANES {
        let rounded = round_bf16(lanes[lane]);
        let usable = f32::from_bits(rounded).is_normal();
        bits[lane] = if usable { (rounded >> 16) as u16 } else { 0 };
        lanes[lane] = if usable { 1.0 / f32::from_bits(rounded) } else { 0.0 };
    }
    (bits, s.load(&lanes))
}

/// The places of weights in [`NEAREST`].
#[inline(always)]
fn places_of<S: Simd>(s: S, weights: S::F) -> [usize; LANES] {
    let within = s.max(s.splat(-MOST), s.min(s.splat(MOST), weights));
    s.nearest_i8(within).map(|integer| usize::from(integer.cast_unsigned() ^ 0x80))
}
