//! AVX-512: a vector is one register. With and without the instructions for `bf16`.

#[allow(clippy::wildcard_imports, reason = "the intrinsics carry their prefix")]
use std::arch::x86_64::*;
use std::mem::transmute;

#[cfg(without_avx512)]
use crate::portable::Portable;
use crate::simd::{LANES, Simd, SimdOp, emulated_dot_bf16};

/// Proof that AVX-512 F, BW, DQ and VL are present, those for `bf16` if `BF16`, and those for products of
/// 8-bit integers if `VNNI`: [`Avx512::new`] is the only constructor.
#[derive(Clone, Copy)]
pub(crate) struct Avx512<const BF16: bool, const VNNI: bool = false>(());

impl Avx512<false> {
    /// The token, if the machine and the build have the instructions.
    pub(crate) fn new() -> Option<Self> {
        (!cfg!(without_avx512)
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl"))
        .then_some(Self(()))
    }

    /// Runs an operation inside a function that is compiled for these instructions.
    #[cfg(not(without_avx512))]
    pub(crate) fn run<O: SimdOp>(self, operation: O) -> O::Output {
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,avx2")]
        fn inner<O: SimdOp>(token: Avx512<false>, operation: O) -> O::Output {
            operation.eval(token)
        }
        // SAFETY: the token proves that the features are present (every machine with AVX-512 F has FMA and
        // AVX2).
        unsafe { inner(self, operation) }
    }
}

/// In a build that leaves their code out nobody has a token.
#[cfg(without_avx512)]
impl<const BF16: bool, const VNNI: bool> Avx512<BF16, VNNI> {
    pub(crate) fn run<O: SimdOp>(self, operation: O) -> O::Output {
        let Self(()) = self;
        operation.eval(Portable)
    }
}

impl Avx512<true> {
    /// The token, if the machine has the instructions.
    pub(crate) fn new() -> Option<Self> {
        (Avx512::<false>::new().is_some() && is_x86_feature_detected!("avx512bf16")).then_some(Self(()))
    }

    /// The same machine without the instructions for `bf16`.
    pub(crate) fn plain(self) -> Avx512<false> {
        let Self(()) = self;
        Avx512(())
    }

    /// Runs an operation inside a function that is compiled for these instructions.
    #[cfg(not(without_avx512))]
    pub(crate) fn run<O: SimdOp>(self, operation: O) -> O::Output {
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma,avx2")]
        fn inner<O: SimdOp>(token: Avx512<true>, operation: O) -> O::Output {
            operation.eval(token)
        }
        // SAFETY: the token proves that the features are present (every machine with AVX-512 F has FMA and
        // AVX2).
        unsafe { inner(self, operation) }
    }
}

impl Avx512<false, true> {
    /// The token, if the machine has the instructions.
    pub(crate) fn new() -> Option<Self> {
        (Avx512::<false>::new().is_some() && is_x86_feature_detected!("avx512vnni")).then_some(Self(()))
    }

    /// Runs an operation inside a function that is compiled for these instructions.
    #[cfg(not(without_avx512))]
    pub(crate) fn run<O: SimdOp>(self, operation: O) -> O::Output {
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,avx2")]
        fn inner<O: SimdOp>(token: Avx512<false, true>, operation: O) -> O::Output {
            operation.eval(token)
        }
        // SAFETY: the token proves that the features are present (every machine with AVX-512 F has FMA and
        // AVX2).
        unsafe { inner(self, operation) }
    }
}

// Vectors are copied as values. The intrinsics that load and store check their pointers where debug
// assertions are on, and then the compiler keeps no vector in a register: the matrix kernels took four times
// as long.
impl<const BF16: bool, const VNNI: bool> Simd for Avx512<BF16, VNNI> {
    type F = __m512;
    type I = __m512i;
    type B = __m512i;

    // 24 accumulators, 2 vectors of weights and 1 broadcast of 32 registers.
    const WIDE_TILE_ROWS: usize = 12;
    const HALF_TILE_ROWS: usize = 0;
    // 12 integer sums, 12 float sums, 2 vectors of weights and 2 of scales; half a panel: 12, 12, 1 and 1.
    const WIDE_INTEGER_ROWS: usize = 6;
    const HALF_INTEGER_ROWS: usize = 12;
    const I8_EXCESS: i32 = 128;
    const QUERY_TILE: usize = 12;

    #[inline(always)]
    fn splat(self, value: f32) -> Self::F {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm512_set1_ps(value) }
    }

    #[inline(always)]
    fn load(self, source: &[f32; LANES]) -> Self::F {
        // SAFETY: `self` proves the instruction set; all bits are values of both types.
        unsafe { transmute::<[f32; LANES], __m512>(*source) }
    }

    #[inline(always)]
    fn store(self, value: Self::F, target: &mut [f32; LANES]) {
        // SAFETY: `self` proves the instruction set; all bits are values of both types.
        *target = unsafe { transmute::<__m512, [f32; LANES]>(value) };
    }

    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm512_add_ps(a, b) }
    }

    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm512_sub_ps(a, b) }
    }

    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm512_div_ps(a, b) }
    }

    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm512_max_ps(a, b) }
    }

    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm512_min_ps(a, b) }
    }

    #[inline(always)]
    fn exp2_biased(self, shifted: Self::F) -> Self::F {
        // SAFETY: `self` proves the instruction set.
        unsafe {
            let exponent = _mm512_slli_epi32::<23>(_mm512_castps_si512(shifted));
            _mm512_castsi512_ps(_mm512_add_epi32(exponent, _mm512_set1_epi32(127 << 23)))
        }
    }

    #[inline(always)]
    fn bf16_low(self, pairs: &[u32; LANES]) -> Self::F {
        // SAFETY: `self` proves the instruction set; all bits are values of both types.
        unsafe {
            let pairs = transmute::<[u32; LANES], __m512i>(*pairs);
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(pairs))
        }
    }

    #[inline(always)]
    fn bf16_high(self, pairs: &[u32; LANES]) -> Self::F {
        // SAFETY: `self` proves the instruction set; all bits are values of both types.
        unsafe {
            let high = _mm512_set1_epi32(0xffff_0000_u32 as i32);
            let pairs = transmute::<[u32; LANES], __m512i>(*pairs);
            _mm512_castsi512_ps(_mm512_and_si512(pairs, high))
        }
    }

    #[inline(always)]
    fn dot_bf16(self, weights: &[u32; LANES], inputs: u32, sum: Self::F) -> Self::F {
        if !BF16 {
            return emulated_dot_bf16(self, weights, inputs, sum);
        }
        // SAFETY: `self` proves the instruction set; all bits are values of both types.
        unsafe {
            // All of these types are 512 bits without a meaning of their own.
            let weights = transmute::<[u32; LANES], __m512bh>(*weights);
            let inputs = transmute::<__m512i, __m512bh>(_mm512_set1_epi32(inputs as i32));
            _mm512_dpbf16_ps(sum, weights, inputs)
        }
    }

    #[inline(always)]
    fn bf16_pairs(self, first: Self::F, second: Self::F) -> Self::F {
        // SAFETY: `self` proves the instruction set; all bits are values of both types.
        unsafe {
            if BF16 {
                // 512 bits without a meaning of their own, as above.
                return transmute::<__m512bh, __m512>(_mm512_cvtne2ps_pbh(second, first));
            }
            let first = _mm512_castsi256_si512(rounded_bf16(first));
            _mm512_castsi512_ps(_mm512_inserti64x4::<1>(first, rounded_bf16(second)))
        }
    }

    #[inline(always)]
    fn bf16(self, bits: &[u16; LANES]) -> Self::F {
        // SAFETY: `self` proves the instruction set; all bits are values of both types.
        unsafe {
            let wide = _mm512_cvtepu16_epi32(transmute::<[u16; LANES], __m256i>(*bits));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
        }
    }

    #[inline(always)]
    fn i8(self, values: &[i8; LANES]) -> Self::F {
        // SAFETY: `self` proves the instruction set; all bits are values of both types.
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(transmute::<[i8; LANES], __m128i>(*values))) }
    }

    #[inline(always)]
    fn f16(self, bits: &[u16; LANES]) -> Self::F {
        // SAFETY: `self` proves the instruction set; all bits are values of both types.
        unsafe { _mm512_cvtph_ps(transmute::<[u16; LANES], __m256i>(*bits)) }
    }

    #[inline(always)]
    fn u8(self, values: &[u8; LANES]) -> Self::F {
        // SAFETY: `self` proves the instruction set; all bits are values of both types.
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(transmute::<[u8; LANES], __m128i>(*values))) }
    }

    #[inline(always)]
    fn bits(self, words: &[u32; LANES], shift: u32, mask: u32) -> Self::I {
        // SAFETY: `self` proves the instruction set; all bits are values of both types.
        unsafe {
            let words = transmute::<[u32; LANES], __m512i>(*words);
            let shifted = _mm512_srlv_epi32(words, _mm512_set1_epi32(shift.cast_signed()));
            _mm512_and_si512(shifted, _mm512_set1_epi32(mask.cast_signed()))
        }
    }

    #[inline(always)]
    fn masked(self, words: Self::I, mask: u32) -> Self::I {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm512_and_si512(words, _mm512_set1_epi32(mask.cast_signed())) }
    }

    #[inline(always)]
    fn shifted_left<const BITS: u32>(self, words: Self::I) -> Self::I {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm512_sllv_epi32(words, _mm512_set1_epi32(BITS.cast_signed())) }
    }

    #[inline(always)]
    fn as_floats(self, words: Self::I) -> Self::F {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm512_castsi512_ps(words) }
    }

    #[inline(always)]
    fn join<const BITS: u32>(self, low: Self::I, high: Self::I) -> Self::I {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm512_or_si512(low, _mm512_sllv_epi32(high, _mm512_set1_epi32(BITS.cast_signed()))) }
    }

    #[inline(always)]
    fn look_up_f32(self, table: &[f32; LANES], places: Self::I) -> Self::F {
        // SAFETY: `self` proves the instruction set; all bits are values of both types.
        unsafe { _mm512_permutexvar_ps(places, transmute::<[f32; LANES], __m512>(*table)) }
    }

    #[inline(always)]
    fn swap<const DISTANCE: usize>(self, value: Self::F) -> Self::F {
        // SAFETY: `self` proves the instruction set.
        unsafe {
            match DISTANCE {
                8 => _mm512_shuffle_f32x4::<0b01_00_11_10>(value, value),
                4 => _mm512_shuffle_f32x4::<0b10_11_00_01>(value, value),
                2 => _mm512_permute_ps::<0b01_00_11_10>(value),
                _ => _mm512_permute_ps::<0b10_11_00_01>(value),
            }
        }
    }

    #[inline(always)]
    fn exchange<const DISTANCE: usize>(self, a: Self::F, b: Self::F) -> (Self::F, Self::F) {
        // SAFETY: `self` proves the instruction set.
        unsafe {
            match DISTANCE {
                8 => (
                    _mm512_mask_shuffle_f32x4::<0b01_00_11_10>(a, 0xff00, b, b),
                    _mm512_mask_shuffle_f32x4::<0b01_00_11_10>(b, 0x00ff, a, a),
                ),
                4 => (
                    _mm512_mask_shuffle_f32x4::<0b10_11_00_01>(a, 0xf0f0, b, b),
                    _mm512_mask_shuffle_f32x4::<0b10_11_00_01>(b, 0x0f0f, a, a),
                ),
                2 => (
                    _mm512_mask_permute_ps::<0b01_00_11_10>(a, 0xcccc, b),
                    _mm512_mask_permute_ps::<0b01_00_11_10>(b, 0x3333, a),
                ),
                _ => (
                    _mm512_mask_permute_ps::<0b10_11_00_01>(a, 0xaaaa, b),
                    _mm512_mask_permute_ps::<0b10_11_00_01>(b, 0x5555, a),
                ),
            }
        }
    }

    #[inline(always)]
    fn splat_i32(self, value: i32) -> Self::I {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm512_set1_epi32(value) }
    }

    #[inline(always)]
    fn to_f32(self, value: Self::I) -> Self::F {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm512_cvtepi32_ps(value) }
    }

    #[inline(always)]
    fn nearest_i8(self, value: Self::F) -> [i8; LANES] {
        // SAFETY: `self` proves the instruction set; all bits are values of both types.
        unsafe { transmute::<__m128i, [i8; LANES]>(_mm512_cvtepi32_epi8(_mm512_cvtps_epi32(value))) }
    }

    #[inline(always)]
    fn load_bytes(self, source: &[u8; 4 * LANES]) -> Self::B {
        // SAFETY: `self` proves the instruction set; all bits are values of both types.
        unsafe { transmute::<[u8; 4 * LANES], __m512i>(*source) }
    }

    #[inline(always)]
    fn store_bytes(self, bytes: Self::B, target: &mut [u8; 4 * LANES]) {
        // SAFETY: `self` proves the instruction set; all bits are values of both types.
        *target = unsafe { transmute::<__m512i, [u8; 4 * LANES]>(bytes) };
    }

    #[inline(always)]
    fn as_bytes(self, words: Self::I) -> Self::B {
        words
    }

    #[inline(always)]
    fn at_least_one(self, bytes: Self::B) -> Self::B {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm512_max_epu8(bytes, _mm512_set1_epi8(1)) }
    }

    #[inline(always)]
    fn reached(self, bytes: Self::B, least: &[u8; 15]) -> Self::B {
        // SAFETY: `self` proves the instruction set.
        unsafe {
            let mut count = _mm512_setzero_si512();
            for &least in least {
                let reached = _mm512_cmpge_epu8_mask(bytes, _mm512_set1_epi8(least.cast_signed()));
                count = _mm512_mask_add_epi8(count, reached, count, _mm512_set1_epi8(1));
            }
            count
        }
    }

    #[inline(always)]
    fn low_nibbles(self, bytes: Self::B) -> Self::B {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm512_and_si512(bytes, _mm512_set1_epi8(15)) }
    }

    #[inline(always)]
    fn high_nibbles(self, bytes: Self::B) -> Self::B {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm512_and_si512(_mm512_srli_epi16::<4>(bytes), _mm512_set1_epi8(15)) }
    }

    #[inline(always)]
    fn look_up(self, table: &[u8; 16], places: Self::B) -> Self::B {
        // SAFETY: `self` proves the instruction set; all bits are values of both types.
        unsafe {
            let table = _mm512_broadcast_i32x4(transmute::<[u8; 16], __m128i>(*table));
            _mm512_shuffle_epi8(table, places)
        }
    }

    #[inline(always)]
    fn flip_signs(self, bytes: Self::B) -> Self::B {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm512_xor_si512(bytes, _mm512_set1_epi8(-128)) }
    }

    #[inline(always)]
    fn dot_i8(self, weights: Self::B, inputs: u32, sum: Self::I) -> Self::I {
        // SAFETY: `self` proves the instruction set.
        unsafe {
            let inputs = _mm512_set1_epi32(inputs.cast_signed());
            if VNNI {
                return _mm512_dpbusd_epi32(sum, weights, inputs);
            }
            // Even and odd bytes as 16-bit numbers, whose products and sums of two fit 32 bits.
            let even = _mm512_and_si512(weights, _mm512_set1_epi16(255));
            let even_inputs = _mm512_srai_epi16::<8>(_mm512_slli_epi16::<8>(inputs));
            let odd = _mm512_madd_epi16(_mm512_srli_epi16::<8>(weights), _mm512_srai_epi16::<8>(inputs));
            _mm512_add_epi32(sum, _mm512_add_epi32(_mm512_madd_epi16(even, even_inputs), odd))
        }
    }

    #[inline(always)]
    fn dot_u7(self, weights: Self::B, inputs: u32, sum: Self::I) -> Self::I {
        // SAFETY: `self` proves the instruction set.
        unsafe {
            let inputs = _mm512_set1_epi32(inputs.cast_signed());
            if VNNI {
                return _mm512_dpbusd_epi32(sum, weights, inputs);
            }
            // Two products are at most 2 * 127 * 127, which 16 bits hold.
            let pairs = _mm512_maddubs_epi16(weights, inputs);
            _mm512_add_epi32(sum, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)))
        }
    }

    const HAS_SHORT_SUMS: bool = !VNNI;

    #[inline(always)]
    fn dot_short(self, weights: Self::B, inputs: u32, short: Self::I) -> Self::I {
        if VNNI {
            return self.dot_u7(weights, inputs, short);
        }
        // SAFETY: `self` proves the instruction set.
        unsafe {
            let inputs = _mm512_set1_epi32(inputs.cast_signed());
            _mm512_add_epi16(short, _mm512_maddubs_epi16(weights, inputs))
        }
    }

    #[inline(always)]
    fn add_short(self, short: Self::I, sum: Self::I) -> Self::I {
        // SAFETY: `self` proves the instruction set.
        unsafe {
            let sums = if VNNI { short } else { _mm512_madd_epi16(short, _mm512_set1_epi16(1)) };
            _mm512_add_epi32(sum, sums)
        }
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

/// The nearest `bf16`, ties to even.
///
/// # Safety
/// The machine has AVX-512 F.
#[inline(always)]
unsafe fn rounded_bf16(value: __m512) -> __m256i {
    // SAFETY: the caller's duty.
    unsafe {
        let bits = _mm512_castps_si512(value);
        let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
        let nearest = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
        let quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x0040_0000));
        let is_nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(value, value);
        _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(_mm512_mask_blend_epi32(is_nan, nearest, quiet)))
    }
}
