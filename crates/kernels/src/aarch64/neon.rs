//! NEON, which has fused multiply-add on every 64-bit ARM: a vector is four registers. With and without the
//! instructions of Armv8.2 for dot products of bytes and those of Armv8.6 for `bf16`.

#[allow(clippy::wildcard_imports, reason = "the intrinsics carry their prefix")]
use std::arch::aarch64::*;
use std::arch::is_aarch64_feature_detected;
use std::mem::transmute;

use super::instructions::{
    bfcvtn, bfmlal, fcvtl, prfm_first, prfm_second, rounded_bf16, sdot, sdot_in_steps, usdot,
};
use crate::simd::{LANES, Simd, SimdOp, emulated_dot_bf16};

/// Proof that NEON is present, `dotprod` if `DOTPROD`, and `bf16` and `i8mm` if `BF16`: [`Neon::new`] is the
/// only constructor.
#[derive(Clone, Copy)]
pub(crate) struct Neon<const DOTPROD: bool = false, const BF16: bool = false>(());

impl<const DOTPROD: bool, const BF16: bool> Neon<DOTPROD, BF16> {
    /// The token, if the machine has the instructions.
    pub(crate) fn new() -> Option<Self> {
        let has_dots = is_aarch64_feature_detected!("dotprod");
        let has_bf16 = is_aarch64_feature_detected!("bf16") && is_aarch64_feature_detected!("i8mm");
        (is_aarch64_feature_detected!("neon") && (has_dots || !DOTPROD) && (has_bf16 || !BF16))
            .then_some(Self(()))
    }

    /// The same machine without the instructions for products of bytes and of `bf16`.
    pub(crate) fn plain(self) -> Neon {
        let Self(()) = self;
        Neon(())
    }
}

impl Neon {
    /// Runs an operation inside a function that is compiled for these instructions.
    pub(crate) fn run<O: SimdOp>(self, operation: O) -> O::Output {
        #[target_feature(enable = "neon")]
        fn inner<O: SimdOp>(token: Neon, operation: O) -> O::Output {
            operation.eval(token)
        }
        // SAFETY: the token proves that the features are present.
        unsafe { inner(self, operation) }
    }
}

impl Neon<true> {
    /// Runs an operation inside a function that is compiled for these instructions.
    pub(crate) fn run<O: SimdOp>(self, operation: O) -> O::Output {
        #[target_feature(enable = "neon,dotprod")]
        fn inner<O: SimdOp>(token: Neon<true>, operation: O) -> O::Output {
            operation.eval(token)
        }
        // SAFETY: the token proves that the features are present.
        unsafe { inner(self, operation) }
    }
}

impl Neon<true, true> {
    /// Runs an operation inside a function that is compiled for these instructions.
    pub(crate) fn run<O: SimdOp>(self, operation: O) -> O::Output {
        #[target_feature(enable = "neon,dotprod,bf16,i8mm")]
        fn inner<O: SimdOp>(token: Neon<true, true>, operation: O) -> O::Output {
            operation.eval(token)
        }
        // SAFETY: the token proves that the features are present.
        unsafe { inner(self, operation) }
    }
}

/// Four registers: lanes 0 to 3, 4 to 7, 8 to 11 and 12 to 15.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Quarters<T>(T, T, T, T);

/// Evaluates an expression of intrinsics for each register of some vectors.
macro_rules! quarters {
    (|$($value:ident),+| $result:expr) => {
        // SAFETY: the token of the method proves the instruction set.
        unsafe {
            Quarters(
                { $(let $value = $value.0;)+ $result },
                { $(let $value = $value.1;)+ $result },
                { $(let $value = $value.2;)+ $result },
                { $(let $value = $value.3;)+ $result },
            )
        }
    };
}

/// The same register four times.
#[inline(always)]
fn four<T: Copy>(register: T) -> Quarters<T> {
    Quarters(register, register, register, register)
}

// Vectors are copied as values. The intrinsics that load and store check their pointers where debug
// assertions are on, and then the compiler keeps no vector in a register.
impl<const DOTPROD: bool, const BF16: bool> Simd for Neon<DOTPROD, BF16> {
    type F = Quarters<float32x4_t>;
    type I = Quarters<int32x4_t>;
    type B = Quarters<uint8x16_t>;

    // Of 32 registers, half a panel: 20 accumulators, 4 for the weights as they are stored, 4 for them
    // widened and 1 broadcast; with products of `bf16` 24, 4 and 1. More would go through memory.
    const WIDE_TILE_ROWS: usize = if BF16 { 3 } else { 2 };
    const HALF_TILE_ROWS: usize = if BF16 { 6 } else { 5 };
    // Half a panel: 16 integer sums, 4 registers of weights and 1 broadcast. The 16 float sums are needed
    // once for each group.
    const WIDE_INTEGER_ROWS: usize = 1;
    const HALF_INTEGER_ROWS: usize = 4;
    const I8_EXCESS: i32 = if BF16 { 128 } else { 0 };
    const QUERY_TILE: usize = if BF16 { 3 } else { 2 };

    #[inline(always)]
    fn splat(self, value: f32) -> Self::F {
        // SAFETY: `self` proves the instruction set.
        four(unsafe { vdupq_n_f32(value) })
    }

    #[inline(always)]
    fn load(self, source: &[f32; LANES]) -> Self::F {
        // SAFETY: all bits are values of both types.
        unsafe { transmute::<[f32; LANES], Quarters<float32x4_t>>(*source) }
    }

    #[inline(always)]
    fn store(self, value: Self::F, target: &mut [f32; LANES]) {
        // SAFETY: all bits are values of both types.
        *target = unsafe { transmute::<Quarters<float32x4_t>, [f32; LANES]>(value) };
    }

    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        quarters!(|a, b| vaddq_f32(a, b))
    }

    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        quarters!(|a, b| vsubq_f32(a, b))
    }

    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        quarters!(|a, b| vmulq_f32(a, b))
    }

    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        quarters!(|a, b| vdivq_f32(a, b))
    }

    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        quarters!(|a, b, c| vfmaq_f32(c, a, b))
    }

    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        // `FMAX` gives NaN where either is NaN.
        quarters!(|a, b| vbslq_f32(vcgtq_f32(a, b), a, b))
    }

    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        quarters!(|a, b| vbslq_f32(vcltq_f32(a, b), a, b))
    }

    #[inline(always)]
    fn exp2_biased(self, shifted: Self::F) -> Self::F {
        quarters!(|shifted| {
            let exponent = vshlq_n_u32::<23>(vreinterpretq_u32_f32(shifted));
            vreinterpretq_f32_u32(vaddq_u32(exponent, vdupq_n_u32(127 << 23)))
        })
    }

    #[inline(always)]
    fn bf16_low(self, pairs: &[u32; LANES]) -> Self::F {
        let pairs = words(pairs);
        quarters!(|pairs| vreinterpretq_f32_u32(vshlq_n_u32::<16>(pairs)))
    }

    #[inline(always)]
    fn bf16_high(self, pairs: &[u32; LANES]) -> Self::F {
        let pairs = words(pairs);
        quarters!(|pairs| vreinterpretq_f32_u32(vandq_u32(pairs, vdupq_n_u32(0xffff_0000))))
    }

    #[inline(always)]
    fn dot_bf16(self, weights: &[u32; LANES], inputs: u32, sum: Self::F) -> Self::F {
        if !BF16 {
            return emulated_dot_bf16(self, weights, inputs, sum);
        }
        let (weights, inputs) = (words(weights), f32::from_bits(inputs));
        quarters!(|sum, weights| bfmlal(sum, weights, inputs))
    }

    #[inline(always)]
    fn bf16_pairs(self, first: Self::F, second: Self::F) -> Self::F {
        let pairs = |low, high| {
            // SAFETY: `self` proves the instruction set.
            unsafe { if BF16 { bfcvtn(low, high) } else { rounded_bf16(low, high) } }
        };
        Quarters(
            pairs(first.0, first.1),
            pairs(first.2, first.3),
            pairs(second.0, second.1),
            pairs(second.2, second.3),
        )
    }

    #[inline(always)]
    fn bf16(self, bits: &[u16; LANES]) -> Self::F {
        // SAFETY: `self` proves the instruction set; all bits are values of both types.
        unsafe {
            let [low, high] = transmute::<[u16; LANES], [uint16x8_t; 2]>(*bits);
            let zero = vdupq_n_u16(0);
            Quarters(
                vreinterpretq_f32_u16(vzip1q_u16(zero, low)),
                vreinterpretq_f32_u16(vzip2q_u16(zero, low)),
                vreinterpretq_f32_u16(vzip1q_u16(zero, high)),
                vreinterpretq_f32_u16(vzip2q_u16(zero, high)),
            )
        }
    }

    #[inline(always)]
    fn f16(self, bits: &[u16; LANES]) -> Self::F {
        // SAFETY: `self` proves the instruction set; all bits are values of both types.
        let (low, high) = unsafe {
            let [low, high] = transmute::<[u16; LANES], [uint16x8_t; 2]>(*bits);
            (fcvtl(low), fcvtl(high))
        };
        Quarters(low.0, low.1, high.0, high.1)
    }

    #[inline(always)]
    fn i8(self, values: &[i8; LANES]) -> Self::F {
        // SAFETY: `self` proves the instruction set; all bits are values of both types.
        let bytes = unsafe { veorq_u8(transmute::<[i8; LANES], uint8x16_t>(*values), vdupq_n_u8(128)) };
        let above = shifted_up(self, bytes);
        quarters!(|above| vsubq_f32(above, vdupq_n_f32(8_388_736.0)))
    }

    #[inline(always)]
    fn u8(self, values: &[u8; LANES]) -> Self::F {
        // SAFETY: all bits are values of both types.
        let above = shifted_up(self, unsafe { transmute::<[u8; LANES], uint8x16_t>(*values) });
        quarters!(|above| vsubq_f32(above, vdupq_n_f32(8_388_608.0)))
    }

    #[inline(always)]
    fn bits(self, words: &[u32; LANES], shift: u32, mask: u32) -> Self::I {
        let words = self::words(words);
        quarters!(|words| {
            let shifted = vshlq_u32(words, vdupq_n_s32(-shift.cast_signed()));
            vreinterpretq_s32_u32(vandq_u32(shifted, vdupq_n_u32(mask)))
        })
    }

    #[inline(always)]
    fn masked(self, words: Self::I, mask: u32) -> Self::I {
        quarters!(|words| vandq_s32(words, vdupq_n_s32(mask.cast_signed())))
    }

    #[inline(always)]
    fn shifted_left<const BITS: u32>(self, words: Self::I) -> Self::I {
        quarters!(|words| vshlq_s32(words, vdupq_n_s32(BITS.cast_signed())))
    }

    #[inline(always)]
    fn as_floats(self, words: Self::I) -> Self::F {
        quarters!(|words| vreinterpretq_f32_s32(words))
    }

    #[inline(always)]
    fn join<const BITS: u32>(self, low: Self::I, high: Self::I) -> Self::I {
        quarters!(|low, high| vorrq_s32(low, vshlq_s32(high, vdupq_n_s32(BITS.cast_signed()))))
    }

    #[inline(always)]
    fn look_up_f32(self, table: &[f32; LANES], places: Self::I) -> Self::F {
        // SAFETY: all bits are values of both types.
        let table = unsafe { transmute::<[f32; LANES], uint8x16x4_t>(*table) };
        quarters!(|places| {
            // The places of the four bytes of each number.
            let places = vmlaq_n_s32(vdupq_n_s32(0x0302_0100), places, 0x0404_0404);
            vreinterpretq_f32_u8(vqtbl4q_u8(table, vreinterpretq_u8_s32(places)))
        })
    }

    #[inline(always)]
    fn swap<const DISTANCE: usize>(self, value: Self::F) -> Self::F {
        let Quarters(a, b, c, d) = value;
        match DISTANCE {
            8 => Quarters(c, d, a, b),
            4 => Quarters(b, a, d, c),
            2 => quarters!(|value| vextq_f32::<2>(value, value)),
            _ => quarters!(|value| vrev64q_f32(value)),
        }
    }

    #[inline(always)]
    fn exchange<const DISTANCE: usize>(self, a: Self::F, b: Self::F) -> (Self::F, Self::F) {
        match DISTANCE {
            8 => (Quarters(a.0, a.1, b.0, b.1), Quarters(a.2, a.3, b.2, b.3)),
            4 => (Quarters(a.0, b.0, a.2, b.2), Quarters(a.1, b.1, a.3, b.3)),
            2 => {
                let (a, b) =
                    (quarters!(|a| vreinterpretq_f64_f32(a)), quarters!(|b| vreinterpretq_f64_f32(b)));
                (
                    quarters!(|a, b| vreinterpretq_f32_f64(vzip1q_f64(a, b))),
                    quarters!(|a, b| vreinterpretq_f32_f64(vzip2q_f64(a, b))),
                )
            }
            _ => (quarters!(|a, b| vtrn1q_f32(a, b)), quarters!(|a, b| vtrn2q_f32(a, b))),
        }
    }

    #[inline(always)]
    fn splat_i32(self, value: i32) -> Self::I {
        // SAFETY: `self` proves the instruction set.
        four(unsafe { vdupq_n_s32(value) })
    }

    #[inline(always)]
    fn to_f32(self, value: Self::I) -> Self::F {
        quarters!(|value| vcvtq_f32_s32(value))
    }

    #[inline(always)]
    fn nearest_i8(self, value: Self::F) -> [i8; LANES] {
        let words = quarters!(|value| vcvtnq_s32_f32(value));
        // SAFETY: `self` proves the instruction set; all bits are values of both types.
        unsafe {
            let low = vqmovn_high_s32(vqmovn_s32(words.0), words.1);
            let high = vqmovn_high_s32(vqmovn_s32(words.2), words.3);
            transmute::<int8x16_t, [i8; LANES]>(vqmovn_high_s16(vqmovn_s16(low), high))
        }
    }

    #[inline(always)]
    fn load_bytes(self, source: &[u8; 4 * LANES]) -> Self::B {
        // SAFETY: all bits are values of both types.
        unsafe { transmute::<[u8; 4 * LANES], Quarters<uint8x16_t>>(*source) }
    }

    #[inline(always)]
    fn store_bytes(self, bytes: Self::B, target: &mut [u8; 4 * LANES]) {
        // SAFETY: all bits are values of both types.
        *target = unsafe { transmute::<Quarters<uint8x16_t>, [u8; 4 * LANES]>(bytes) };
    }

    #[inline(always)]
    fn as_bytes(self, words: Self::I) -> Self::B {
        quarters!(|words| vreinterpretq_u8_s32(words))
    }

    #[inline(always)]
    fn at_least_one(self, bytes: Self::B) -> Self::B {
        quarters!(|bytes| vmaxq_u8(bytes, vdupq_n_u8(1)))
    }

    #[inline(always)]
    fn reached(self, bytes: Self::B, least: &[u8; 15]) -> Self::B {
        quarters!(|bytes| {
            let mut count = vdupq_n_u8(0);
            for &least in least {
                // All bits, which are -1, where it is reached.
                count = vsubq_u8(count, vcgeq_u8(bytes, vdupq_n_u8(least)));
            }
            count
        })
    }

    #[inline(always)]
    fn low_nibbles(self, bytes: Self::B) -> Self::B {
        quarters!(|bytes| vandq_u8(bytes, vdupq_n_u8(15)))
    }

    #[inline(always)]
    fn high_nibbles(self, bytes: Self::B) -> Self::B {
        quarters!(|bytes| vshrq_n_u8::<4>(bytes))
    }

    #[inline(always)]
    fn look_up(self, table: &[u8; 16], places: Self::B) -> Self::B {
        // SAFETY: all bits are values of both types.
        let table = unsafe { transmute::<[u8; 16], uint8x16_t>(*table) };
        quarters!(|places| vqtbl1q_u8(table, places))
    }

    #[inline(always)]
    fn flip_signs(self, bytes: Self::B) -> Self::B {
        quarters!(|bytes| veorq_u8(bytes, vdupq_n_u8(128)))
    }

    #[inline(always)]
    fn dot_i8(self, weights: Self::B, inputs: u32, sum: Self::I) -> Self::I {
        if !BF16 {
            return self.dot_u7(weights, inputs, sum);
        }
        let inputs = f32::from_bits(inputs);
        quarters!(|sum, weights| usdot(sum, weights, inputs))
    }

    // Bytes up to 127 are the same with and without a sign.
    #[inline(always)]
    fn dot_u7(self, weights: Self::B, inputs: u32, sum: Self::I) -> Self::I {
        let inputs = f32::from_bits(inputs);
        if DOTPROD {
            return quarters!(|sum, weights| sdot(sum, weights, inputs));
        }
        quarters!(|sum, weights| sdot_in_steps(sum, weights, inputs))
    }

    #[inline(always)]
    fn add_short(self, short: Self::I, sum: Self::I) -> Self::I {
        quarters!(|short, sum| vaddq_s32(short, sum))
    }

    #[inline(always)]
    fn prefetch<T>(self, near: *const T, bytes: usize) {
        prfm_first(near.cast::<u8>().wrapping_add(bytes));
    }

    #[inline(always)]
    fn prefetch_far<T>(self, near: *const T, bytes: usize) {
        prfm_second(near.cast::<u8>().wrapping_add(bytes));
    }
}

/// The registers of 16 words.
#[inline(always)]
fn words(words: &[u32; LANES]) -> Quarters<uint32x4_t> {
    // SAFETY: all bits are values of both types.
    unsafe { transmute::<[u32; LANES], Quarters<uint32x4_t>>(*words) }
}

/// Sixteen bytes as `2^23` plus each: they are the low bits of these numbers. The instructions that convert
/// integers take fewer numbers at once, on some processors in one pipeline of two.
#[inline(always)]
fn shifted_up<S: Simd<F = Quarters<float32x4_t>>>(_: S, bytes: uint8x16_t) -> Quarters<float32x4_t> {
    // SAFETY: a token whose vectors are these proves the instruction set.
    unsafe {
        let (zero, exponent) = (vdupq_n_u8(0), vdupq_n_u16(0x4b00));
        let low = vreinterpretq_u16_u8(vzip1q_u8(bytes, zero));
        let high = vreinterpretq_u16_u8(vzip2q_u8(bytes, zero));
        Quarters(
            vreinterpretq_f32_u16(vzip1q_u16(low, exponent)),
            vreinterpretq_f32_u16(vzip2q_u16(low, exponent)),
            vreinterpretq_f32_u16(vzip1q_u16(high, exponent)),
            vreinterpretq_f32_u16(vzip2q_u16(high, exponent)),
        )
    }
}
