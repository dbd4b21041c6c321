//! How weights become the integers of [groups](super::groups), while a model is loaded.

use std::mem::MaybeUninit;

use super::format::{PANEL_ROWS, load_block};
use super::groups::{CODES, I4Groups, I8Groups, MOST, NIBBLES, SIGNED_CODES, WeightGroup, Words};
use crate::simd::{LANES, Simd, round_bf16};

/// The least integers, plus 128, that are nearest to the second code, the third and so on: the place of the code that is
/// nearest to an integer is how many of them it reaches.
const LEAST: [u8; 15] = least_integers();
/// The scales that are tried for a group of 4-bit weights, over that which gives the largest weight an
/// integer of -127.
const I4_SCALES: [f32; 4] = [1.0, 0.9, -1.19, -1.07];

const fn least_integers() -> [u8; CODES.len() - 1] {
    let (mut least, mut i) = ([0; CODES.len() - 1], 0);
    while i < least.len() {
        // Of two codes that are equally near, the lower one.
        least[i] = CODES[i].midpoint(CODES[i + 1]) + 1;
        i += 1;
    }
    least
}

/// How weights become integers.
pub(super) trait Rounding<const N: usize, const INPUTS: usize> {
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
            let factor = s.splat(1.0 / factor);
            let mut codes = integers_of(s, inputs, |weights| s.mul(s.mul(weights, inverse), factor));
            for four in codes.as_chunks_mut().0 {
                map_bytes(s, four, |bytes| s.look_up(&SIGNED_CODES, s.reached(bytes, &LEAST)));
            }
            let (mut products, mut squares) = (s.splat(0.0), s.splat(0.0));
            for (&weights, codes) in inputs.iter().zip(codes) {
                let (weights, integers) = (s.mul(weights, inverse), s.i8(&codes.map(u8::cast_signed)));
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
        let mut places = integers_of(s, inputs, |weights| s.mul(weights, inverse));
        for four in places.as_chunks_mut().0 {
            map_bytes(s, four, |bytes| s.reached(bytes, &LEAST));
        }
        for (q, places) in places.as_chunks::<8>().0.iter().enumerate() {
            let mut bytes = [[0; LANES]; NIBBLES];
            for i in 0..NIBBLES {
                for lane in 0..LANES {
                    bytes[i][lane] = places[i][lane] | places[i + NIBBLES][lane] << 4;
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
pub(super) fn pack_groups<S: Simd, F: Rounding<N, INPUTS>, const N: usize, const INPUTS: usize>(
    s: S,
    rows: &[&[u8]; PANEL_ROWS],
    groups: &mut [MaybeUninit<WeightGroup<N>>],
) -> bool {
    let mut finite = s.splat(0.0);
    for (index, out) in groups.iter_mut().enumerate() {
        let mut inputs = [[s.splat(0.0); INPUTS]; 2];
        for block in 0..INPUTS / LANES {
            let words = load_block(s, rows, index * INPUTS / LANES + block);
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

/// The scales of 16 outputs as they are stored, and their inverses; 0 for both where a scale is no normal
/// number.
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

/// The integers, plus 128, that are nearest to what `scale` makes of weights.
#[inline(always)]
fn integers_of<S: Simd, const INPUTS: usize>(
    s: S,
    inputs: &[S::F; INPUTS],
    scale: impl Fn(S::F) -> S::F,
) -> [[u8; LANES]; INPUTS] {
    let mut integers = [[0; LANES]; INPUTS];
    for (integers, &weights) in integers.iter_mut().zip(inputs) {
        let nearest = s.nearest_i8(s.max(s.splat(-MOST), s.min(s.splat(MOST), scale(weights))));
        for lane in 0..LANES {
            integers[lane] = nearest[lane].cast_unsigned() ^ 0x80;
        }
    }
    integers
}

/// Maps 64 bytes at once.
#[inline(always)]
fn map_bytes<S: Simd>(s: S, bytes: &mut [[u8; LANES]; 4], map: impl Fn(S::B) -> S::B) {
    let mut flat = [0; 4 * LANES];
    flat.copy_from_slice(bytes.as_flattened());
    let mapped = map(s.load_bytes(&flat));
    s.store_bytes(mapped, &mut flat);
    bytes.as_flattened_mut().copy_from_slice(&flat);
}
