//! The path for machines without AVX2 or NEON: arrays of 16 lanes that the compiler vectorizes as far as it can.

use half::f16;

use super::simd::{LANES, Simd};

/// Available on all machines.
#[derive(Clone, Copy)]
pub(crate) struct Portable;

macro_rules! lanes {
    ($lane:ident => $value:expr) => {{
        let mut out = [0.0f32; LANES];
        for $lane in 0..LANES {
            out[$lane] = $value;
        }
        out
    }};
}

impl Simd for Portable {
    type F = [f32; LANES];
    type I = [i32; LANES];
    type B = [u8; 4 * LANES];

    const WIDE_TILE_ROWS: usize = 1;
    const HALF_TILE_ROWS: usize = 2;
    const WIDE_INTEGER_ROWS: usize = 1;
    const HALF_INTEGER_ROWS: usize = 0;
    const I8_EXCESS: i32 = 0;
    const QUERY_TILE: usize = 1;

    #[inline(always)]
    fn splat(self, value: f32) -> Self::F {
        [value; LANES]
    }

    #[inline(always)]
    fn load(self, source: &[f32; LANES]) -> Self::F {
        *source
    }

    #[inline(always)]
    fn store(self, value: Self::F, target: &mut [f32; LANES]) {
        *target = value;
    }

    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        lanes!(i => a[i] + b[i])
    }

    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        lanes!(i => a[i] - b[i])
    }

    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        lanes!(i => a[i] * b[i])
    }

    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        lanes!(i => a[i] / b[i])
    }

    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        if HAS_FUSED { lanes!(i => a[i].mul_add(b[i], c[i])) } else { emulated_fma(&a, &b, &c) }
    }

    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        lanes!(i => if a[i] > b[i] { a[i] } else { b[i] })
    }

    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        lanes!(i => if a[i] < b[i] { a[i] } else { b[i] })
    }

    #[inline(always)]
    fn exp2_biased(self, shifted: Self::F) -> Self::F {
        lanes!(i => f32::from_bits((shifted[i].to_bits() << 23).wrapping_add(127 << 23)))
    }

    #[inline(always)]
    fn bf16_low(self, pairs: &[u32; LANES]) -> Self::F {
        lanes!(i => f32::from_bits(pairs[i] << 16))
    }

    #[inline(always)]
    fn bf16_high(self, pairs: &[u32; LANES]) -> Self::F {
        lanes!(i => f32::from_bits(pairs[i] & 0xffff_0000))
    }

    #[inline(always)]
    fn bf16(self, bits: &[u16; LANES]) -> Self::F {
        lanes!(i => f32::from_bits(u32::from(bits[i]) << 16))
    }

    #[inline(always)]
    fn f16(self, bits: &[u16; LANES]) -> Self::F {
        lanes!(i => f16::from_bits(bits[i]).to_f32())
    }

    #[inline(always)]
    fn i8(self, values: &[i8; LANES]) -> Self::F {
        lanes!(i => f32::from(values[i]))
    }

    #[inline(always)]
    fn u8(self, values: &[u8; LANES]) -> Self::F {
        lanes!(i => f32::from(values[i]))
    }

    #[inline(always)]
    fn bits(self, words: &[u32; LANES], shift: u32, mask: u32) -> Self::I {
        words.map(|word| (word >> shift & mask).cast_signed())
    }

    #[inline(always)]
    fn masked(self, words: Self::I, mask: u32) -> Self::I {
        words.map(|word| word & mask.cast_signed())
    }

    #[inline(always)]
    fn shifted_left<const BITS: u32>(self, words: Self::I) -> Self::I {
        words.map(|word| word << BITS)
    }

    #[inline(always)]
    fn as_floats(self, words: Self::I) -> Self::F {
        lanes!(i => f32::from_bits(words[i].cast_unsigned()))
    }

    #[inline(always)]
    fn join<const BITS: u32>(self, low: Self::I, high: Self::I) -> Self::I {
        std::array::from_fn(|i| low[i] | high[i] << BITS)
    }

    #[inline(always)]
    fn look_up_f32(self, table: &[f32; LANES], places: Self::I) -> Self::F {
        lanes!(i => table[places[i] as usize & 15])
    }

    #[inline(always)]
    fn swap<const DISTANCE: usize>(self, value: Self::F) -> Self::F {
        lanes!(i => value[i ^ DISTANCE])
    }

    #[inline(always)]
    fn exchange<const DISTANCE: usize>(self, a: Self::F, b: Self::F) -> (Self::F, Self::F) {
        let first = lanes!(i => if i & DISTANCE == 0 { a[i] } else { b[i ^ DISTANCE] });
        (first, lanes!(i => if i & DISTANCE == 0 { a[i ^ DISTANCE] } else { b[i] }))
    }

    #[inline(always)]
    fn splat_i32(self, value: i32) -> Self::I {
        [value; LANES]
    }

    #[inline(always)]
    fn to_f32(self, value: Self::I) -> Self::F {
        lanes!(i => value[i] as f32)
    }

    #[inline(always)]
    fn nearest_i8(self, value: Self::F) -> [i8; LANES] {
        // 1.5 * 2^23: the sum has no digits after the point, and its low bits are those of the integer.
        value.map(|value| (value + 12_582_912.0).to_bits() as i8)
    }

    #[inline(always)]
    fn load_bytes(self, source: &[u8; 4 * LANES]) -> Self::B {
        *source
    }

    #[inline(always)]
    fn store_bytes(self, bytes: Self::B, target: &mut [u8; 4 * LANES]) {
        *target = bytes;
    }

    #[inline(always)]
    fn as_bytes(self, words: Self::I) -> Self::B {
        let mut bytes = [0; 4 * LANES];
        for (bytes, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *bytes = word.to_le_bytes();
        }
        bytes
    }

    #[inline(always)]
    fn at_least_one(self, bytes: Self::B) -> Self::B {
        bytes.map(|byte| byte.max(1))
    }

    #[inline(always)]
    fn reached(self, bytes: Self::B, least: &[u8; 15]) -> Self::B {
        bytes.map(|byte| least.iter().fold(0, |count, &least| count + u8::from(byte >= least)))
    }

    #[inline(always)]
    fn low_nibbles(self, bytes: Self::B) -> Self::B {
        bytes.map(|byte| byte & 15)
    }

    #[inline(always)]
    fn high_nibbles(self, bytes: Self::B) -> Self::B {
        bytes.map(|byte| byte >> 4)
    }

    #[inline(always)]
    fn look_up(self, table: &[u8; 16], places: Self::B) -> Self::B {
        places.map(|place| table[usize::from(place & 15)])
    }

    #[inline(always)]
    fn flip_signs(self, bytes: Self::B) -> Self::B {
        bytes.map(|byte| byte ^ 0x80)
    }

    #[inline(always)]
    fn dot_i8(self, weights: Self::B, inputs: u32, sum: Self::I) -> Self::I {
        let inputs = inputs.to_le_bytes().map(|byte| i32::from(byte.cast_signed()));
        let mut sum = sum;
        for (sum, weights) in sum.iter_mut().zip(weights.as_chunks::<4>().0) {
            for i in 0..4 {
                *sum += i32::from(weights[i].cast_signed()) * inputs[i];
            }
        }
        sum
    }

    #[inline(always)]
    fn dot_u7(self, weights: Self::B, inputs: u32, sum: Self::I) -> Self::I {
        self.dot_i8(weights, inputs, sum)
    }

    #[inline(always)]
    fn add_short(self, short: Self::I, sum: Self::I) -> Self::I {
        std::array::from_fn(|i| short[i].wrapping_add(sum[i]))
    }

    #[inline(always)]
    fn prefetch<T>(self, _near: *const T, _bytes: usize) {}

    #[inline(always)]
    fn prefetch_far<T>(self, _near: *const T, _bytes: usize) {}
}

/// Whether the target has an instruction for `a * b + c` with a single rounding. Elsewhere the C library's `fmaf`
/// would be called lane by lane.
const HAS_FUSED: bool = cfg!(any(target_arch = "aarch64", target_feature = "fma"));

/// [`fused_multiply_add`] in each lane. A function, because its code is long.
#[inline(never)]
fn emulated_fma(a: &[f32; LANES], b: &[f32; LANES], c: &[f32; LANES]) -> [f32; LANES] {
    lanes!(i => fused_multiply_add(a[i], b[i], c[i]))
}

/// `a * b + c` with a single rounding.
///
/// Where the target has no instruction for it, this emulation vectorizes. The product of two `f32` is exact in `f64`.
/// The sum is rounded to odd (if it is inexact, its last bit is set), which keeps the second rounding, to `f32`, from
/// going astray.
#[inline(always)]
pub(crate) fn fused_multiply_add(a: f32, b: f32, c: f32) -> f32 {
    if HAS_FUSED {
        return a.mul_add(b, c);
    }
    let (product, addend) = (f64::from(a) * f64::from(b), f64::from(c));
    let sum = product + addend;
    // Knuth's two-sum: `sum + error` is exactly `product + addend`.
    let shadow = sum - product;
    let error = (product - (sum - shadow)) + (addend - shadow);
    let bits = sum.to_bits();
    let toward_zero = (error < 0.0) != (sum < 0.0);
    let truncated = bits.wrapping_sub(u64::from(toward_zero));
    // A NaN error (an infinite or NaN sum) is no inexactness.
    let inexact = error != 0.0 && !error.is_nan();
    (if inexact { f64::from_bits(truncated | 1) } else { sum }) as f32
}

#[cfg(test)]
mod tests {
    use super::fused_multiply_add;

    #[test]
    fn the_emulated_fma_equals_the_fused_one() {
        let mut state = 1u32;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state
        };
        for round in 0..2_000_000 {
            let (mut a, mut b, mut c) = (random(), random(), random());
            if round % 2 == 0 {
                // Similar exponents, so that the sum cancels or is a near tie.
                (a, b) = (a & 0x807f_ffff | 0x3f80_0000, b & 0x807f_ffff | 0x3f80_0000);
                c = c & 0x8fff_ffff | 0x3000_0000;
            }
            let (a, b, c) = (f32::from_bits(a), f32::from_bits(b), f32::from_bits(c));
            let (expected, actual) = (a.mul_add(b, c), fused_multiply_add(a, b, c));
            assert!(
                expected.to_bits() == actual.to_bits() || expected.is_nan() && actual.is_nan(),
                "{a:e} * {b:e} + {c:e} = {expected:e}, not {actual:e}"
            );
        }
    }
}
