//! Instructions that the compiler has no stable intrinsics for, in assembly.
//!
//! `BFMLALT` and `BFMLALB` widen the odd and the even `bf16` of a register, and multiply and add them in
//! `float32` with a single rounding, as `FMLA` does: one after the other they are [`Simd::dot_bf16`]. They
//! follow the control register FPCR, which Rust leaves at its default: to the nearest, ties to even, and
//! what is below 2^-126 is kept. `BFDOT` and `BFMMLA` are not here: they round to odd, take what is below
//! 2^-126 for 0, and add products to each other before the sum, which gives other bits.
//!
//! [`Simd::dot_bf16`]: crate::simd::Simd::dot_bf16

#[allow(clippy::wildcard_imports, reason = "the intrinsics carry their prefix")]
use std::arch::aarch64::*;
use std::arch::asm;

/// Products of four signed bytes in each lane.
#[inline]
#[target_feature(enable = "dotprod")]
pub(super) fn sdot(sum: int32x4_t, weights: uint8x16_t, inputs: f32) -> int32x4_t {
    let mut sum = sum;
    // SAFETY: the instruction only writes the register of the result.
    unsafe {
        asm!(
            "sdot {sum:v}.4s, {weights:v}.16b, {inputs:v}.4b[0]",
            sum = inout(vreg) sum, weights = in(vreg) weights, inputs = in(vreg) inputs,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sum
}

/// [`sdot`] for unsigned weights.
#[inline]
#[target_feature(enable = "i8mm")]
pub(super) fn usdot(sum: int32x4_t, weights: uint8x16_t, inputs: f32) -> int32x4_t {
    let mut sum = sum;
    // SAFETY: the instruction only writes the register of the result.
    unsafe {
        asm!(
            "usdot {sum:v}.4s, {weights:v}.16b, {inputs:v}.4b[0]",
            sum = inout(vreg) sum, weights = in(vreg) weights, inputs = in(vreg) inputs,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sum
}

/// [`sdot`] of every 64-bit ARM. The weights are from -127 to 127: two products fit 16 bits.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn sdot_in_steps(sum: int32x4_t, weights: uint8x16_t, inputs: f32) -> int32x4_t {
    let weights = vreinterpretq_s8_u8(weights);
    let inputs = vreinterpretq_s8_f32(vdupq_n_f32(inputs));
    let low = vmull_s8(vget_low_s8(weights), vget_low_s8(inputs));
    vpadalq_s16(sum, vpaddq_s16(low, vmull_high_s8(weights, inputs)))
}

/// Products of two `bf16` in each lane, the odd ones first.
#[inline]
#[target_feature(enable = "bf16")]
pub(super) fn bfmlal(sum: float32x4_t, weights: uint32x4_t, inputs: f32) -> float32x4_t {
    let mut sum = sum;
    // SAFETY: the instructions write the register of the result, and flags that nothing reads.
    unsafe {
        asm!(
            "bfmlalt {sum:v}.4s, {weights:v}.8h, {inputs:v}.h[1]",
            "bfmlalb {sum:v}.4s, {weights:v}.8h, {inputs:v}.h[0]",
            sum = inout(vreg) sum, weights = in(vreg) weights, inputs = in(vreg_low16) inputs,
            options(pure, nomem, nostack),
        );
    }
    sum
}

/// Eight values rounded to `bf16`.
#[inline]
#[target_feature(enable = "bf16")]
pub(super) fn bfcvtn(first: float32x4_t, second: float32x4_t) -> float32x4_t {
    let mut rounded = first;
    // SAFETY: the instructions write the register of the result, and flags that nothing reads.
    unsafe {
        asm!(
            "bfcvtn {rounded:v}.4h, {rounded:v}.4s",
            "bfcvtn2 {rounded:v}.8h, {second:v}.4s",
            rounded = inout(vreg) rounded, second = in(vreg) second,
            options(pure, nomem, nostack),
        );
    }
    rounded
}

/// [`bfcvtn`] of every 64-bit ARM.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn rounded_bf16(first: float32x4_t, second: float32x4_t) -> float32x4_t {
    let (first, second) = (bf16_above(first), bf16_above(second));
    vreinterpretq_f32_u16(vuzp2q_u16(vreinterpretq_u16_u32(first), vreinterpretq_u16_u32(second)))
}

/// Values whose high halves are rounded, as [`crate::simd::round_bf16`] does.
#[inline]
#[target_feature(enable = "neon")]
fn bf16_above(value: float32x4_t) -> uint32x4_t {
    let bits = vreinterpretq_u32_f32(value);
    let odd = vandq_u32(vshrq_n_u32::<16>(bits), vdupq_n_u32(1));
    let nearest = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
    vbslq_u32(vceqq_f32(value, value), nearest, vorrq_u32(bits, vdupq_n_u32(0x0040_0000)))
}

/// Widens the low and the high four `f16` of a register.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn fcvtl(halves: uint16x8_t) -> (float32x4_t, float32x4_t) {
    let (low, high): (float32x4_t, float32x4_t);
    // SAFETY: the instructions write the registers of the results, and flags that nothing reads.
    unsafe {
        asm!(
            "fcvtl {low:v}.4s, {halves:v}.4h",
            "fcvtl2 {high:v}.4s, {halves:v}.8h",
            low = out(vreg) low, high = lateout(vreg) high, halves = in(vreg) halves,
            options(pure, nomem, nostack),
        );
    }
    (low, high)
}

/// Fetches the cache line of an address into the first cache. Any address is allowed.
#[inline(always)]
pub(super) fn prfm_first(address: *const u8) {
    // SAFETY: a prefetch reads nothing, and does not fault.
    unsafe {
        asm!("prfm pldl1keep, [{}]", in(reg) address.addr(), options(nomem, nostack, preserves_flags));
    }
}

/// The same, into the second cache.
#[inline(always)]
pub(super) fn prfm_second(address: *const u8) {
    // SAFETY: a prefetch reads nothing, and does not fault.
    unsafe {
        asm!("prfm pldl2keep, [{}]", in(reg) address.addr(), options(nomem, nostack, preserves_flags));
    }
}
