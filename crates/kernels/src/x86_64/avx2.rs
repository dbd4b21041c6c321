//! AVX2 with FMA: a vector is two registers.

#[allow(clippy::wildcard_imports, reason = "the intrinsics carry their prefix")]
use std::arch::x86_64::*;
use std::mem::transmute;

use crate::simd::{LANES, Simd, SimdOp};

/// Proof that AVX2, FMA and F16C are present, and AVX-VNNI if `VNNI`: [`Avx2::new`] is the only constructor.
#[derive(Clone, Copy)]
pub(crate) struct Avx2<const VNNI: bool = false>(());

impl Avx2<true> {
    /// The token, if the machine has the instructions.
    pub(crate) fn new() -> Option<Self> {
        (Avx2::<false>::new().is_some() && is_x86_feature_detected!("avxvnni")).then_some(Self(()))
    }

    /// The same machine without the instructions for products of 8-bit integers.
    pub(crate) fn plain(self) -> Avx2<false> {
        let Self(()) = self;
        Avx2(())
    }

    /// Runs an operation inside a function that is compiled for these instructions.
    pub(crate) fn run<O: SimdOp>(self, operation: O) -> O::Output {
        #[target_feature(enable = "avx2,fma,f16c,avxvnni")]
        fn inner<O: SimdOp>(token: Avx2<true>, operation: O) -> O::Output {
            operation.eval(token)
        }
        // SAFETY: the token proves that the features are present.
        unsafe { inner(self, operation) }
    }
}

impl Avx2<false> {
    /// The token, if the machine has the instructions.
    pub(crate) fn new() -> Option<Self> {
        (is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c"))
        .then_some(Self(()))
    }

    /// Runs an operation inside a function that is compiled for these instructions.
    pub(crate) fn run<O: SimdOp>(self, operation: O) -> O::Output {
        #[target_feature(enable = "avx2,fma,f16c")]
        fn inner<O: SimdOp>(token: Avx2<false>, operation: O) -> O::Output {
            operation.eval(token)
        }
        // SAFETY: the token proves that the features are present.
        unsafe { inner(self, operation) }
    }
}

/// The low and the high half of an integer vector.
#[derive(Clone, Copy)]
pub(crate) struct IntegerHalves(__m256i, __m256i);

/// The low and the high eight lanes.
#[derive(Clone, Copy)]
pub(crate) struct Halves(__m256, __m256);

macro_rules! both {
    ($intrinsic:ident, $($value:ident),+) => {
        // SAFETY: the token of the method proves the instruction set.
        unsafe { Halves($intrinsic($($value.0),+), $intrinsic($($value.1),+)) }
    };
}

// Vectors are copied as values. The intrinsics that load and store check their pointers where debug
// assertions are on, and then the compiler keeps no vector in a register: the matrix kernels took four times
// as long.
impl<const VNNI: bool> Simd for Avx2<VNNI> {
    type F = Halves;
    type I = IntegerHalves;
    type B = IntegerHalves;

    // Of 16 registers: 8 accumulators, 4 for the weights and 1 broadcast; half a panel: 12, 2 and 1.
    const WIDE_TILE_ROWS: usize = 2;
    const HALF_TILE_ROWS: usize = 6;
    // 8 integer sums, 2 registers of weights, 2 constants and 1 broadcast. The float sums, of which a group changes each
    // once, are in memory.
    const WIDE_INTEGER_ROWS: usize = 2;
    const HALF_INTEGER_ROWS: usize = 4;
    const I8_EXCESS: i32 = if VNNI { 128 } else { 0 };
    const QUERY_TILE: usize = 2;
    // 10 sums, 2 registers of loaded pairs, 2 of widened ones, 1 of zeros, and 1 broadcast.
    const HALF_QUERY_TILE: usize = 5;

    #[inline(always)]
    fn splat(self, value: f32) -> Self::F {
        // SAFETY: `self` proves the instruction set.
        unsafe { Halves(_mm256_set1_ps(value), _mm256_set1_ps(value)) }
    }

    #[inline(always)]
    fn load(self, source: &[f32; LANES]) -> Self::F {
        // SAFETY: `self` proves the instruction set; all bits are values of both types.
        let [low, high] = unsafe { transmute::<[f32; LANES], [__m256; 2]>(*source) };
        Halves(low, high)
    }

    #[inline(always)]
    fn store(self, value: Self::F, target: &mut [f32; LANES]) {
        // SAFETY: `self` proves the instruction set; all bits are values of both types.
        *target = unsafe { transmute::<[__m256; 2], [f32; LANES]>([value.0, value.1]) };
    }

    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        both!(_mm256_add_ps, a, b)
    }

    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        both!(_mm256_sub_ps, a, b)
    }

    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        both!(_mm256_mul_ps, a, b)
    }

    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        both!(_mm256_div_ps, a, b)
    }

    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        both!(_mm256_fmadd_ps, a, b, c)
    }

    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        both!(_mm256_max_ps, a, b)
    }

    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        both!(_mm256_min_ps, a, b)
    }

    #[inline(always)]
    fn exp2_biased(self, shifted: Self::F) -> Self::F {
        // SAFETY: `self` proves the instruction set.
        unsafe {
            let bias = _mm256_set1_epi32(127 << 23);
            let low = _mm256_slli_epi32::<23>(_mm256_castps_si256(shifted.0));
            let high = _mm256_slli_epi32::<23>(_mm256_castps_si256(shifted.1));
            Halves(
                _mm256_castsi256_ps(_mm256_add_epi32(low, bias)),
                _mm256_castsi256_ps(_mm256_add_epi32(high, bias)),
            )
        }
    }

    #[inline(always)]
    fn bf16_low(self, pairs: &[u32; LANES]) -> Self::F {
        // SAFETY: `self` proves the instruction set; all bits are values of both types.
        unsafe {
            let [low, high] = transmute::<[u32; LANES], [__m256i; 2]>(*pairs);
            Halves(
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(low)),
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(high)),
            )
        }
    }

    #[inline(always)]
    fn bf16_high(self, pairs: &[u32; LANES]) -> Self::F {
        // SAFETY: `self` proves the instruction set; all bits are values of both types.
        unsafe {
            let mask = _mm256_set1_epi32(0xffff_0000_u32 as i32);
            let [low, high] = transmute::<[u32; LANES], [__m256i; 2]>(*pairs);
            Halves(
                _mm256_castsi256_ps(_mm256_and_si256(low, mask)),
                _mm256_castsi256_ps(_mm256_and_si256(high, mask)),
            )
        }
    }

    #[inline(always)]
    fn bf16(self, bits: &[u16; LANES]) -> Self::F {
        // SAFETY: `self` proves the instruction set; all bits are values of both types.
        unsafe {
            let [low, high] = transmute::<[u16; LANES], [__m128i; 2]>(*bits);
            let (low, high) = (_mm256_cvtepu16_epi32(low), _mm256_cvtepu16_epi32(high));
            Halves(
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(low)),
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(high)),
            )
        }
    }

    #[inline(always)]
    fn i8(self, values: &[i8; LANES]) -> Self::F {
        // SAFETY: `self` proves the instruction set; all bits are values of both types.
        unsafe {
            let bytes = transmute::<[i8; LANES], __m128i>(*values);
            let (low, high) = (_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128::<8>(bytes)));
            Halves(_mm256_cvtepi32_ps(low), _mm256_cvtepi32_ps(high))
        }
    }

    #[inline(always)]
    fn f16(self, bits: &[u16; LANES]) -> Self::F {
        // SAFETY: `self` proves the instruction set; all bits are values of both types.
        unsafe {
            let [low, high] = transmute::<[u16; LANES], [__m128i; 2]>(*bits);
            Halves(_mm256_cvtph_ps(low), _mm256_cvtph_ps(high))
        }
    }

    #[inline(always)]
    fn u8(self, values: &[u8; LANES]) -> Self::F {
        // SAFETY: `self` proves the instruction set; all bits are values of both types.
        unsafe {
            let bytes = transmute::<[u8; LANES], __m128i>(*values);
            let (low, high) = (_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128::<8>(bytes)));
            Halves(_mm256_cvtepi32_ps(low), _mm256_cvtepi32_ps(high))
        }
    }

    #[inline(always)]
    fn bits(self, words: &[u32; LANES], shift: u32, mask: u32) -> Self::I {
        // SAFETY: `self` proves the instruction set; all bits are values of both types.
        unsafe {
            let [low, high] = transmute::<[u32; LANES], [__m256i; 2]>(*words);
            let (shift, mask) =
                (_mm256_set1_epi32(shift.cast_signed()), _mm256_set1_epi32(mask.cast_signed()));
            let bits = |words| _mm256_and_si256(_mm256_srlv_epi32(words, shift), mask);
            IntegerHalves(bits(low), bits(high))
        }
    }

    #[inline(always)]
    fn masked(self, words: Self::I, mask: u32) -> Self::I {
        // SAFETY: `self` proves the instruction set.
        let masked = |words| unsafe { _mm256_and_si256(words, _mm256_set1_epi32(mask.cast_signed())) };
        IntegerHalves(masked(words.0), masked(words.1))
    }

    #[inline(always)]
    fn shifted_left<const BITS: u32>(self, words: Self::I) -> Self::I {
        // SAFETY: `self` proves the instruction set.
        let shifted = |words| unsafe { _mm256_sllv_epi32(words, _mm256_set1_epi32(BITS.cast_signed())) };
        IntegerHalves(shifted(words.0), shifted(words.1))
    }

    #[inline(always)]
    fn as_floats(self, words: Self::I) -> Self::F {
        // SAFETY: `self` proves the instruction set.
        unsafe { Halves(_mm256_castsi256_ps(words.0), _mm256_castsi256_ps(words.1)) }
    }

    #[inline(always)]
    fn join<const BITS: u32>(self, low: Self::I, high: Self::I) -> Self::I {
        // SAFETY: `self` proves the instruction set.
        let join = |low, high| unsafe {
            _mm256_or_si256(low, _mm256_sllv_epi32(high, _mm256_set1_epi32(BITS.cast_signed())))
        };
        IntegerHalves(join(low.0, high.0), join(low.1, high.1))
    }

    #[inline(always)]
    fn look_up_f32(self, table: &[f32; LANES], places: Self::I) -> Self::F {
        // SAFETY: `self` proves the instruction set; all bits are values of both types.
        let look_up = |places: __m256i| unsafe {
            let [low, high] = transmute::<[f32; LANES], [__m256; 2]>(*table);
            let (low, high) = (_mm256_permutevar8x32_ps(low, places), _mm256_permutevar8x32_ps(high, places));
            // Bit 3 of the place, as the sign that the instruction looks at.
            _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32::<28>(places)))
        };
        Halves(look_up(places.0), look_up(places.1))
    }

    #[inline(always)]
    fn swap<const DISTANCE: usize>(self, value: Self::F) -> Self::F {
        let Halves(low, high) = value;
        // SAFETY: `self` proves the instruction set.
        unsafe {
            match DISTANCE {
                8 => Halves(high, low),
                4 => Halves(_mm256_permute2f128_ps::<1>(low, low), _mm256_permute2f128_ps::<1>(high, high)),
                2 => {
                    Halves(_mm256_permute_ps::<0b01_00_11_10>(low), _mm256_permute_ps::<0b01_00_11_10>(high))
                }
                _ => {
                    Halves(_mm256_permute_ps::<0b10_11_00_01>(low), _mm256_permute_ps::<0b10_11_00_01>(high))
                }
            }
        }
    }

    #[inline(always)]
    fn exchange<const DISTANCE: usize>(self, a: Self::F, b: Self::F) -> (Self::F, Self::F) {
        // SAFETY: `self` proves the instruction set.
        let pair = |a: __m256, b: __m256| unsafe {
            match DISTANCE {
                4 => (_mm256_permute2f128_ps::<0x20>(a, b), _mm256_permute2f128_ps::<0x31>(a, b)),
                2 => (
                    _mm256_blend_ps::<0b1100_1100>(a, _mm256_permute_ps::<0b01_00_11_10>(b)),
                    _mm256_blend_ps::<0b0011_0011>(b, _mm256_permute_ps::<0b01_00_11_10>(a)),
                ),
                _ => (
                    _mm256_blend_ps::<0b1010_1010>(a, _mm256_permute_ps::<0b10_11_00_01>(b)),
                    _mm256_blend_ps::<0b0101_0101>(b, _mm256_permute_ps::<0b10_11_00_01>(a)),
                ),
            }
        };
        if DISTANCE == 8 {
            return (Halves(a.0, b.0), Halves(a.1, b.1));
        }
        let (low, high) = (pair(a.0, b.0), pair(a.1, b.1));
        (Halves(low.0, high.0), Halves(low.1, high.1))
    }

    #[inline(always)]
    fn splat_i32(self, value: i32) -> Self::I {
        // SAFETY: `self` proves the instruction set.
        unsafe { IntegerHalves(_mm256_set1_epi32(value), _mm256_set1_epi32(value)) }
    }

    #[inline(always)]
    fn to_f32(self, value: Self::I) -> Self::F {
        // SAFETY: `self` proves the instruction set.
        unsafe { Halves(_mm256_cvtepi32_ps(value.0), _mm256_cvtepi32_ps(value.1)) }
    }

    #[inline(always)]
    fn nearest_i8(self, value: Self::F) -> [i8; LANES] {
        // SAFETY: `self` proves the instruction set; all bits are values of both types.
        unsafe {
            // Packing works on halves of registers, so the quarters are put in order between its two steps.
            let words = _mm256_packs_epi32(_mm256_cvtps_epi32(value.0), _mm256_cvtps_epi32(value.1));
            let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(words);
            let packed = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words));
            transmute::<__m128i, [i8; LANES]>(packed)
        }
    }

    #[inline(always)]
    fn load_bytes(self, source: &[u8; 4 * LANES]) -> Self::B {
        // SAFETY: `self` proves the instruction set; all bits are values of both types.
        let [low, high] = unsafe { transmute::<[u8; 4 * LANES], [__m256i; 2]>(*source) };
        IntegerHalves(low, high)
    }

    #[inline(always)]
    fn store_bytes(self, bytes: Self::B, target: &mut [u8; 4 * LANES]) {
        // SAFETY: `self` proves the instruction set; all bits are values of both types.
        *target = unsafe { transmute::<[__m256i; 2], [u8; 4 * LANES]>([bytes.0, bytes.1]) };
    }

    #[inline(always)]
    fn as_bytes(self, words: Self::I) -> Self::B {
        words
    }

    #[inline(always)]
    fn at_least_one(self, bytes: Self::B) -> Self::B {
        // SAFETY: `self` proves the instruction set.
        let at_least_one = |bytes| unsafe { _mm256_max_epu8(bytes, _mm256_set1_epi8(1)) };
        IntegerHalves(at_least_one(bytes.0), at_least_one(bytes.1))
    }

    #[inline(always)]
    fn reached(self, bytes: Self::B, least: &[u8; 15]) -> Self::B {
        // SAFETY: `self` proves the instruction set.
        let reached = |bytes| unsafe {
            let mut count = _mm256_setzero_si256();
            for &least in least {
                let least = _mm256_set1_epi8(least.cast_signed());
                // A byte that reaches another is the larger one; -1 where it does.
                count = _mm256_sub_epi8(count, _mm256_cmpeq_epi8(_mm256_max_epu8(bytes, least), bytes));
            }
            count
        };
        IntegerHalves(reached(bytes.0), reached(bytes.1))
    }

    #[inline(always)]
    fn low_nibbles(self, bytes: Self::B) -> Self::B {
        // SAFETY: `self` proves the instruction set.
        let low = |bytes| unsafe { _mm256_and_si256(bytes, _mm256_set1_epi8(15)) };
        IntegerHalves(low(bytes.0), low(bytes.1))
    }

    #[inline(always)]
    fn high_nibbles(self, bytes: Self::B) -> Self::B {
        // SAFETY: `self` proves the instruction set.
        let high = |bytes| unsafe { _mm256_and_si256(_mm256_srli_epi16::<4>(bytes), _mm256_set1_epi8(15)) };
        IntegerHalves(high(bytes.0), high(bytes.1))
    }

    #[inline(always)]
    fn look_up(self, table: &[u8; 16], places: Self::B) -> Self::B {
        // SAFETY: `self` proves the instruction set; all bits are values of both types.
        let look_up = |places| unsafe {
            let table = _mm256_broadcastsi128_si256(transmute::<[u8; 16], __m128i>(*table));
            _mm256_shuffle_epi8(table, places)
        };
        IntegerHalves(look_up(places.0), look_up(places.1))
    }

    #[inline(always)]
    fn flip_signs(self, bytes: Self::B) -> Self::B {
        // SAFETY: `self` proves the instruction set.
        let flip = |bytes| unsafe { _mm256_xor_si256(bytes, _mm256_set1_epi8(-128)) };
        IntegerHalves(flip(bytes.0), flip(bytes.1))
    }

    #[inline(always)]
    fn dot_i8(self, weights: Self::B, inputs: u32, sum: Self::I) -> Self::I {
        // SAFETY: `self` proves the instruction set.
        let dot = |weights, sum| unsafe {
            let inputs = _mm256_set1_epi32(inputs.cast_signed());
            if VNNI {
                return _mm256_dpbusd_avx_epi32(sum, weights, inputs);
            }
            // The instruction multiplies unsigned with signed bytes and adds two products in 16 bits: with
            // both signs on one side they are at most 127 * 127, so two of them fit. The side of the weights is made
            // once for all rows.
            let pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(weights), _mm256_sign_epi8(inputs, weights));
            _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
        };
        IntegerHalves(dot(weights.0, sum.0), dot(weights.1, sum.1))
    }

    #[inline(always)]
    fn dot_u7(self, weights: Self::B, inputs: u32, sum: Self::I) -> Self::I {
        // SAFETY: `self` proves the instruction set.
        let dot = |weights, sum| unsafe {
            let inputs = _mm256_set1_epi32(inputs.cast_signed());
            if VNNI {
                return _mm256_dpbusd_avx_epi32(sum, weights, inputs);
            }
            // Two products are at most 2 * 127 * 127, which 16 bits hold.
            let pairs = _mm256_maddubs_epi16(weights, inputs);
            _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
        };
        IntegerHalves(dot(weights.0, sum.0), dot(weights.1, sum.1))
    }

    const HAS_SHORT_SUMS: bool = !VNNI;

    #[inline(always)]
    fn dot_short(self, weights: Self::B, inputs: u32, short: Self::I) -> Self::I {
        if VNNI {
            return self.dot_u7(weights, inputs, short);
        }
        // SAFETY: `self` proves the instruction set.
        let dot = |weights, short| unsafe {
            let inputs = _mm256_set1_epi32(inputs.cast_signed());
            _mm256_add_epi16(short, _mm256_maddubs_epi16(weights, inputs))
        };
        IntegerHalves(dot(weights.0, short.0), dot(weights.1, short.1))
    }

    #[inline(always)]
    fn add_short(self, short: Self::I, sum: Self::I) -> Self::I {
        // SAFETY: `self` proves the instruction set.
        let add = |short, sum| unsafe {
            let sums = if VNNI { short } else { _mm256_madd_epi16(short, _mm256_set1_epi16(1)) };
            _mm256_add_epi32(sum, sums)
        };
        IntegerHalves(add(short.0, sum.0), add(short.1, sum.1))
    }

    #[inline(always)]
    fn prefetch<T>(self, near: *const T, bytes: usize) {
        // SAFETY: a prefetch reads nothing, and `self` proves the instruction set.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(near.cast::<i8>().wrapping_add(bytes)) }
    }

    #[inline(always)]
    fn prefetch_far<T>(self, near: *const T, bytes: usize) {
        // SAFETY: a prefetch reads nothing, and `self` proves the instruction set.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(near.cast::<i8>().wrapping_add(bytes)) }
    }
}
