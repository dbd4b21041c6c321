//! AVX-512: a vector is one register. With and without the instructions for `bf16`.

#[allow(clippy::wildcard_imports, reason = "the intrinsics carry their prefix")]
use std::arch::x86_64::*;

use crate::kernels::simd::{LANES, Simd, SimdOp, emulated_dot_bf16};

/// Proof that AVX-512 F, BW, DQ and VL are present, and those for `bf16` if `BF16`: [`Avx512::new`] is the only
/// constructor.
#[derive(Clone, Copy)]
pub(crate) struct Avx512<const BF16: bool>(());

impl Avx512<false> {
    /// The token, if the machine has the instructions.
    pub(crate) fn new() -> Option<Self> {
        (is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl"))
        .then_some(Self(()))
    }

    /// Runs an operation inside a function that is compiled for these instructions.
    pub(crate) fn run<O: SimdOp>(self, operation: O) -> O::Output {
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,avx2")]
        fn inner<O: SimdOp>(token: Avx512<false>, operation: O) -> O::Output {
            operation.eval(token)
        }
        // SAFETY: the token proves that the features are present (every machine with AVX-512 F has FMA and AVX2).
        unsafe { inner(self, operation) }
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
    pub(crate) fn run<O: SimdOp>(self, operation: O) -> O::Output {
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma,avx2")]
        fn inner<O: SimdOp>(token: Avx512<true>, operation: O) -> O::Output {
            operation.eval(token)
        }
        // SAFETY: the token proves that the features are present (every machine with AVX-512 F has FMA and AVX2).
        unsafe { inner(self, operation) }
    }
}

// SAFETY of every block below: the token proves AVX-512 F, BW, DQ and VL, and BF16 where it is asked for; pointers come from references to arrays of
// the right size, and the loads and stores are the unaligned ones.
#[expect(clippy::undocumented_unsafe_blocks, reason = "one reason holds for all: see the comment above")]
impl<const BF16: bool> Simd for Avx512<BF16> {
    type F = __m512;

    // 24 accumulators, 2 vectors of weights and 1 broadcast of 32 registers.
    const WIDE_TILE_ROWS: usize = 12;
    const HALF_TILE_ROWS: usize = 0;
    const QUERY_TILE: usize = 12;

    #[inline(always)]
    fn splat(self, value: f32) -> Self::F {
        unsafe { _mm512_set1_ps(value) }
    }

    #[inline(always)]
    fn load(self, source: &[f32; LANES]) -> Self::F {
        unsafe { _mm512_loadu_ps(source.as_ptr()) }
    }

    #[inline(always)]
    fn store(self, value: Self::F, target: &mut [f32; LANES]) {
        unsafe { _mm512_storeu_ps(target.as_mut_ptr(), value) }
    }

    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        unsafe { _mm512_add_ps(a, b) }
    }

    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        unsafe { _mm512_sub_ps(a, b) }
    }

    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        unsafe { _mm512_div_ps(a, b) }
    }

    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        unsafe { _mm512_max_ps(a, b) }
    }

    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        unsafe { _mm512_min_ps(a, b) }
    }

    #[inline(always)]
    fn exp2_biased(self, shifted: Self::F) -> Self::F {
        unsafe {
            let exponent = _mm512_slli_epi32::<23>(_mm512_castps_si512(shifted));
            _mm512_castsi512_ps(_mm512_add_epi32(exponent, _mm512_set1_epi32(127 << 23)))
        }
    }

    #[inline(always)]
    fn bf16_low(self, pairs: &[u32; LANES]) -> Self::F {
        unsafe { _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_loadu_si512(pairs.as_ptr().cast()))) }
    }

    #[inline(always)]
    fn bf16_high(self, pairs: &[u32; LANES]) -> Self::F {
        unsafe {
            let high = _mm512_set1_epi32(0xffff_0000_u32 as i32);
            _mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(pairs.as_ptr().cast()), high))
        }
    }

    #[inline(always)]
    fn dot_bf16(self, weights: &[u32; LANES], inputs: u32, sum: Self::F) -> Self::F {
        if !BF16 {
            return emulated_dot_bf16(self, weights, inputs, sum);
        }
        unsafe {
            let weights = _mm512_loadu_si512(weights.as_ptr().cast());
            let inputs = _mm512_set1_epi32(inputs as i32);
            // Both types are 512 bits without a meaning of their own.
            _mm512_dpbf16_ps(
                sum,
                std::mem::transmute::<__m512i, __m512bh>(weights),
                std::mem::transmute::<__m512i, __m512bh>(inputs),
            )
        }
    }

    #[inline(always)]
    fn bf16_pairs(self, first: Self::F, second: Self::F) -> Self::F {
        unsafe {
            if BF16 {
                // 512 bits without a meaning of their own, as above.
                return std::mem::transmute::<__m512bh, __m512>(_mm512_cvtne2ps_pbh(second, first));
            }
            let first = _mm512_castsi256_si512(rounded_bf16(first));
            _mm512_castsi512_ps(_mm512_inserti64x4::<1>(first, rounded_bf16(second)))
        }
    }

    #[inline(always)]
    fn bf16(self, bits: &[u16; LANES]) -> Self::F {
        unsafe {
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(bits.as_ptr().cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
        }
    }

    #[inline(always)]
    fn i8(self, values: &[i8; LANES]) -> Self::F {
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(values.as_ptr().cast()))) }
    }

    #[inline(always)]
    fn f16(self, bits: &[u16; LANES]) -> Self::F {
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(bits.as_ptr().cast())) }
    }

    #[inline(always)]
    fn swap<const DISTANCE: usize>(self, value: Self::F) -> Self::F {
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
    fn prefetch<T>(self, near: &T, bytes: usize) {
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(near).cast::<i8>().wrapping_add(bytes)) }
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
