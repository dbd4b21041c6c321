//! The vectors that all operations are written in: 16 lanes of `f32`, whatever the hardware's register width.
//!
//! A value of a type that implements [`Simd`] proves that its instruction set is present: there is no other way to
//! obtain one than through [`super::Isa`]. Every operation here is defined to the last bit, `max` and `min` for NaN
//! included, so the same generic code gives the same result on each implementation.

/// The number of `f32` lanes of a vector.
pub(crate) const LANES: usize = 16;

/// Sixteen `f32` lanes and what can be done with them.
///
/// Public in name only, so that public traits can speak of it: outside of the kernels there is no way to name it.
pub trait Simd: Copy + Send + Sync + 'static {
    /// Sixteen lanes of `f32`.
    type F: Copy;

    /// The rows of a matrix-multiplication tile that is one panel (32 outputs) wide: as many as the registers hold.
    const WIDE_TILE_ROWS: usize;
    /// The rows of a tile that is half a panel (16 outputs) wide. 0 where the wide tile is always better.
    const HALF_TILE_ROWS: usize;
    /// The query heads that attention takes through a block of keys together: 1, 2, 4 or 8.
    const HEAD_TILE: usize;

    /// All lanes set to `value`.
    fn splat(self, value: f32) -> Self::F;
    /// Reads 16 consecutive values.
    fn load(self, source: &[f32; LANES]) -> Self::F;
    /// Writes 16 consecutive values.
    fn store(self, value: Self::F, target: &mut [f32; LANES]);
    /// `a + b`.
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a - b`.
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a * b`.
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a / b`, correctly rounded.
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c` with a single rounding.
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `if a > b { a } else { b }`: where either is NaN, `b`.
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    /// `if a < b { a } else { b }`: where either is NaN, `b`.
    fn min(self, a: Self::F, b: Self::F) -> Self::F;
    /// `2^n` in each lane, where the lane holds `n + 1.5 * 2^23` for an integer `n` from -127 to 127; -127 gives 0.
    fn exp2_biased(self, shifted: Self::F) -> Self::F;
    /// Widens the low halves of 16 words that hold two `bf16` each.
    fn bf16_low(self, pairs: &[u32; LANES]) -> Self::F;
    /// Widens the high halves of 16 words that hold two `bf16` each.
    fn bf16_high(self, pairs: &[u32; LANES]) -> Self::F;
    /// Widens 16 `bf16` values.
    fn bf16(self, bits: &[u16; LANES]) -> Self::F;
    /// Widens 16 `f16` values.
    fn f16(self, bits: &[u16; LANES]) -> Self::F;
    /// Asks for the cache line `bytes` after `near`. A hint: any distance is allowed.
    fn prefetch<T>(self, near: &T, bytes: usize);
}

/// An operation that runs on any instruction set. Implementations mark `eval` as `#[inline(always)]`, or the vector
/// instructions inside would become function calls.
pub(crate) trait SimdOp {
    /// What the operation returns.
    type Output;
    /// Runs it with the given instruction set.
    fn eval<S: Simd>(self, simd: S) -> Self::Output;
}
