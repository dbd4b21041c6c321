//! The vectors that all operations are written in: 16 lanes of `f32`, whatever the hardware's register width.
//!
//! A value of a type that implements [`Simd`] proves that its instruction set is present: there is no other
//! way to obtain one than through [`super::Isa`]. Every operation here is defined to the last bit, `max` and
//! `min` for NaN included, so the same generic code gives the same result on each implementation.

/// The number of `f32` lanes of a vector.
pub(crate) const LANES: usize = 16;

/// Sixteen `f32` lanes and what can be done with them.
///
/// Public only because public traits mention it; it cannot be named outside of the kernels.
pub trait Simd: Copy + Send + Sync + 'static {
    /// Sixteen lanes of `f32`.
    type F: Copy;
    /// Sixteen lanes of `i32`.
    type I: Copy;
    /// Sixteen groups of four bytes.
    type B: Copy;

    /// The rows of a matrix-multiplication tile that is one panel (32 outputs) wide: as many as the registers
    /// hold.
    const WIDE_TILE_ROWS: usize;
    /// The rows of a tile that is half a panel (16 outputs) wide. 0 where the wide tile is always better.
    const HALF_TILE_ROWS: usize;
    /// [`Simd::WIDE_TILE_ROWS`] for 8-bit integer products, which have integer sums beside float sums.
    const WIDE_INTEGER_ROWS: usize;
    /// [`Simd::HALF_TILE_ROWS`] for 8-bit integer products.
    const HALF_INTEGER_ROWS: usize;
    /// What [`Simd::dot_i8`] leaves on each weight: 128 where the instruction takes unsigned weights, else 0.
    const I8_EXCESS: i32;
    /// The most queries that attention takes through a block of keys together.
    const QUERY_TILE: usize;

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
    /// `2^n` in each lane, where the lane holds `n + 1.5 * 2^23` for an integer `n` from -127 to 127; -127
    /// gives 0.
    fn exp2_biased(self, shifted: Self::F) -> Self::F;
    /// Widens the low halves of 16 words that hold two `bf16` each.
    fn bf16_low(self, pairs: &[u32; LANES]) -> Self::F;
    /// Widens the high halves of 16 words that hold two `bf16` each.
    fn bf16_high(self, pairs: &[u32; LANES]) -> Self::F;
    /// Adds products of two `bf16` pairs to each lane: first `weights * inputs` of the high halves, then of
    /// the low halves, each with a single rounding.
    ///
    /// Instructions for it take what is below 2^-126 for 0, in the operands and in the results; this one need
    /// not.
    #[inline(always)]
    fn dot_bf16(self, weights: &[u32; LANES], inputs: u32, sum: Self::F) -> Self::F {
        emulated_dot_bf16(self, weights, inputs, sum)
    }
    /// Rounds 32 values to `bf16`: each of the 16 words of the result holds two neighbours, the first one in
    /// its low half.
    ///
    /// Instructions for it take what is below 2^-126 for 0, as those for products do; this one need not.
    #[inline(always)]
    fn bf16_pairs(self, first: Self::F, second: Self::F) -> Self::F {
        let mut values = [[0.0; LANES]; 2];
        self.store(first, &mut values[0]);
        self.store(second, &mut values[1]);
        let mut words = [0.0; LANES];
        for (word, &[low, high]) in words.iter_mut().zip(values.as_flattened().as_chunks().0) {
            *word = f32::from_bits(round_bf16(low) >> 16 | round_bf16(high));
        }
        self.load(&words)
    }
    /// Widens 16 `bf16` values.
    fn bf16(self, bits: &[u16; LANES]) -> Self::F;
    /// Converts 16 integers.
    fn i8(self, values: &[i8; LANES]) -> Self::F;
    /// Converts 16 integers.
    fn u8(self, values: &[u8; LANES]) -> Self::F;
    /// The bits of 16 words from `shift` on, as many as `mask` has.
    fn bits(self, words: &[u32; LANES], shift: u32, mask: u32) -> Self::I;
    /// The bits of each word that `mask` has.
    fn masked(self, words: Self::I, mask: u32) -> Self::I;
    /// `words << BITS`
    fn shifted_left<const BITS: u32>(self, words: Self::I) -> Self::I;
    /// The numbers of these bits.
    fn as_floats(self, words: Self::I) -> Self::F;
    /// `low | high << BITS`
    fn join<const BITS: u32>(self, low: Self::I, high: Self::I) -> Self::I;
    /// The numbers of a table at these places, from 0 to 15.
    fn look_up_f32(self, table: &[f32; LANES], places: Self::I) -> Self::F;
    /// Widens 16 `f16` values.
    fn f16(self, bits: &[u16; LANES]) -> Self::F;
    /// Lane `i` of the result is lane `i ^ DISTANCE`, for a distance of 8, 4, 2 or 1.
    fn swap<const DISTANCE: usize>(self, value: Self::F) -> Self::F;
    /// The off-diagonal halves of two vectors change places: lane `i` of the first result is that of `a`, or
    /// lane `i - DISTANCE` of `b` where `i & DISTANCE` is not 0; lane `i` of the second is that of `b`, or
    /// lane `i + DISTANCE` of `a` where it is 0. For a distance of 8, 4, 2 or 1.
    fn exchange<const DISTANCE: usize>(self, a: Self::F, b: Self::F) -> (Self::F, Self::F);
    /// All lanes set to `value`.
    fn splat_i32(self, value: i32) -> Self::I;
    /// Converts 16 integers; exact below 2^24.
    fn to_f32(self, value: Self::I) -> Self::F;
    /// The nearest integers, ties to even, of values from -127.5 to 127.5. Any integers for others.
    fn nearest_i8(self, value: Self::F) -> [i8; LANES];
    /// Reads 64 bytes.
    fn load_bytes(self, source: &[u8; 4 * LANES]) -> Self::B;
    /// Writes 64 bytes.
    fn store_bytes(self, bytes: Self::B, target: &mut [u8; 4 * LANES]);
    /// The bytes of 16 words.
    fn as_bytes(self, words: Self::I) -> Self::B;
    /// Each byte, or 1 where it is 0.
    fn at_least_one(self, bytes: Self::B) -> Self::B;
    /// The low four bits of each byte.
    fn low_nibbles(self, bytes: Self::B) -> Self::B;
    /// The high four bits of each byte.
    fn high_nibbles(self, bytes: Self::B) -> Self::B;
    /// The bytes of a table at these places, from 0 to 15.
    fn look_up(self, table: &[u8; 16], places: Self::B) -> Self::B;
    /// Adds four integer products to each lane. A byte `b` of `weights` stands for `b - 128 + I8_EXCESS` and
    /// is not 0; `inputs` are four integers from -127 to 127, the same for all lanes.
    fn dot_i8(self, weights: Self::B, inputs: u32, sum: Self::I) -> Self::I;
    /// Adds four integer products to each lane. The bytes of `weights` are at most 127; `inputs` are four integers from
    /// -127 to 127, the same for all lanes.
    fn dot_u7(self, weights: Self::B, inputs: u32, sum: Self::I) -> Self::I;
    /// Prefetches the cache line `bytes` after `near`. A hint: any distance is allowed.
    fn prefetch<T>(self, near: &T, bytes: usize);
    /// The same, into the second cache: for what is needed later.
    fn prefetch_far<T>(self, near: &T, bytes: usize);
}

/// [`Simd::dot_bf16`] without an instruction for it: products of two `bf16` are exact in `f32`, so the chain
/// is the same.
#[inline(always)]
pub(crate) fn emulated_dot_bf16<S: Simd>(s: S, weights: &[u32; LANES], inputs: u32, sum: S::F) -> S::F {
    let high = s.splat(f32::from_bits(inputs & 0xffff_0000));
    let low = s.splat(f32::from_bits(inputs << 16));
    let sum = s.fma(s.bf16_high(weights), high, sum);
    s.fma(s.bf16_low(weights), low, sum)
}

/// The nearest `bf16`, ties to even, in the high half of a word. Without a branch, so that it vectorizes.
#[inline(always)]
pub(crate) fn round_bf16(value: f32) -> u32 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
    let quiet = bits | 0x0040_0000;
    (if value.is_nan() { quiet } else { rounded }) & 0xffff_0000
}

/// An operation that runs on any instruction set. Implementations mark `eval` as `#[inline(always)]`, or the
/// vector instructions inside would become function calls. Public in name only, as [`Simd`] is.
pub trait SimdOp {
    /// What the operation returns.
    type Output;
    /// Runs it with the given instruction set.
    fn eval<S: Simd>(self, simd: S) -> Self::Output;
}
