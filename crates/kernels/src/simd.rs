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
    /// The same through half a block, for more queries than those. 0 where a whole block is always better.
    const HALF_QUERY_TILE: usize = 0;

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
    /// How many of `least` each byte reaches.
    fn reached(self, bytes: Self::B, least: &[u8; 15]) -> Self::B;
    /// The low four bits of each byte.
    fn low_nibbles(self, bytes: Self::B) -> Self::B;
    /// The high four bits of each byte.
    fn high_nibbles(self, bytes: Self::B) -> Self::B;
    /// The bytes of a table at these places, from 0 to 15.
    fn look_up(self, table: &[u8; 16], places: Self::B) -> Self::B;
    /// What [`Simd::dot_i8`] takes for weights that are stored as bytes `b`, of which each is for `b - 128`.
    #[inline(always)]
    fn operands(self, stored: Self::B) -> Self::B {
        if Self::I8_EXCESS == 0 { self.flip_signs(stored) } else { stored }
    }
    /// Each byte with its highest bit flipped.
    fn flip_signs(self, bytes: Self::B) -> Self::B;
    /// Adds four integer products to each lane: bytes from [`Simd::operands`], none of which was 0, and `inputs`, four
    /// integers from -127 to 127, the same for all lanes. [`Simd::I8_EXCESS`] is left on each weight.
    fn dot_i8(self, weights: Self::B, inputs: u32, sum: Self::I) -> Self::I;
    /// Adds four integer products to each lane. The bytes of `weights` are at most 127; `inputs` are four integers from
    /// -127 to 127, the same for all lanes.
    fn dot_u7(self, weights: Self::B, inputs: u32, sum: Self::I) -> Self::I;
    /// Whether [`Simd::dot_short`] takes fewer operations than [`Simd::dot_u7`].
    const HAS_SHORT_SUMS: bool = false;
    /// The products of [`Simd::dot_u7`], added to sums of 16 bits: of inputs 0 and 1, and of 2 and 3 of each lane.
    #[inline(always)]
    fn dot_short(self, weights: Self::B, inputs: u32, short: Self::I) -> Self::I {
        self.dot_u7(weights, inputs, short)
    }
    /// Adds the sums of [`Simd::dot_short`] to each lane.
    fn add_short(self, short: Self::I, sum: Self::I) -> Self::I;
    /// Prefetches the cache line `bytes` after `near`. A hint: any distance is allowed.
    fn prefetch<T>(self, near: *const T, bytes: usize);
    /// The same, into the second cache: for what is needed later.
    fn prefetch_far<T>(self, near: *const T, bytes: usize);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;
    use crate::portable::Portable;

    /// Every operation on some words.
    #[derive(Clone, Copy)]
    struct Everything {
        words: [[u32; LANES]; 3],
        pair: u32,
    }

    impl SimdOp for Everything {
        type Output = Vec<(&'static str, Vec<u32>)>;

        #[inline(always)]
        fn eval<S: Simd>(self, s: S) -> Self::Output {
            let Self { words, pair } = self;
            let [a, b, c] = words.map(|words| s.load(&words.map(f32::from_bits)));
            let floats = |value| {
                let mut lanes = [0.0; LANES];
                s.store(value, &mut lanes);
                // Instruction sets agree on what is NaN, not on its bits.
                lanes.map(|lane| if lane.is_nan() { f32::NAN.to_bits() } else { lane.to_bits() }).to_vec()
            };
            let bytes = |value| {
                let mut bytes = [0; 4 * LANES];
                s.store_bytes(value, &mut bytes);
                bytes.as_chunks().0.iter().map(|&bytes| u32::from_le_bytes(bytes)).collect::<Vec<_>>()
            };
            let integers = |value| bytes(s.as_bytes(value));
            let halves = words[0].map(|word| word as u16);
            let places = s.bits(&words[0], 9, 15);
            let table = words[1].map(f32::from_bits);
            // From -127 to 127, as inputs are; and as `n + 1.5 * 2^23`.
            let small = words[0].map(|word| (word % 509) as f32 / 2.0 - 127.0);
            let shifted = words[0].map(|word| (word % 255) as f32 - 127.0 + 12_582_912.0);
            let all = words[0].map(u32::to_le_bytes);
            let quarters = all.map(|bytes| bytes[0]);
            let loaded = s.load_bytes(all.as_flattened().first_chunk().unwrap());
            let weights = s.at_least_one(loaded);
            let inputs = pair.to_le_bytes().map(|byte| byte.cast_signed().max(-127));
            let excess = S::I8_EXCESS * inputs.iter().map(|&input| i32::from(input)).sum::<i32>();
            let inputs = u32::from_le_bytes(inputs.map(i8::cast_unsigned));
            let reached =
                s.reached(loaded, &[0, 1, 2, 9, 60, 61, 100, 127, 128, 129, 140, 200, 253, 254, 255]);
            let nibbles = s.low_nibbles(loaded);
            let (eight, four, two, one) =
                (s.exchange::<8>(a, b), s.exchange::<4>(a, b), s.exchange::<2>(a, b), s.exchange::<1>(a, b));
            vec![
                ("add", floats(s.add(a, b))),
                ("sub", floats(s.sub(a, b))),
                ("mul", floats(s.mul(a, b))),
                ("div", floats(s.div(a, b))),
                ("fma", floats(s.fma(a, b, c))),
                ("max", floats(s.max(a, b))),
                ("min", floats(s.min(a, b))),
                ("exp2_biased", floats(s.exp2_biased(s.load(&shifted)))),
                ("bf16_low", floats(s.bf16_low(&words[0]))),
                ("bf16_high", floats(s.bf16_high(&words[0]))),
                ("dot_bf16", floats(s.dot_bf16(&words[0], pair, c))),
                ("bf16_pairs", floats(s.bf16_pairs(a, b))),
                ("bf16", floats(s.bf16(&halves))),
                ("f16", floats(s.f16(&halves))),
                ("i8", floats(s.i8(&quarters.map(u8::cast_signed)))),
                ("u8", floats(s.u8(&quarters))),
                ("bits", integers(places)),
                ("masked", integers(s.masked(places, 6))),
                ("shifted_left", integers(s.shifted_left::<19>(places))),
                ("as_floats", floats(s.as_floats(places))),
                ("join", integers(s.join::<4>(places, s.bits(&words[1], 3, 7)))),
                ("look_up_f32", floats(s.look_up_f32(&table, places))),
                (
                    "swap",
                    [s.swap::<8>(a), s.swap::<4>(a), s.swap::<2>(a), s.swap::<1>(a)].map(floats).concat(),
                ),
                ("exchange", [eight.0, eight.1, four.0, four.1].map(floats).concat()),
                ("exchange", [two.0, two.1, one.0, one.1].map(floats).concat()),
                ("to_f32", floats(s.to_f32(s.splat_i32((pair >> 8).cast_signed())))),
                ("nearest_i8", s.nearest_i8(s.load(&small)).map(|value| i32::from(value) as u32).to_vec()),
                ("at_least_one", bytes(weights)),
                ("reached", bytes(reached)),
                ("low_nibbles", bytes(nibbles)),
                ("high_nibbles", bytes(s.high_nibbles(loaded))),
                ("look_up", bytes(s.look_up(all.as_flattened().first_chunk().unwrap(), nibbles))),
                ("flip_signs", bytes(s.flip_signs(loaded))),
                ("dot_i8", integers(s.dot_i8(s.operands(weights), inputs, s.splat_i32(7 - excess)))),
                ("dot_u7", integers(s.dot_u7(nibbles, inputs, s.splat_i32(7)))),
                ("dot_short", {
                    let (mut short, high) = (s.splat_i32(0), s.high_nibbles(loaded));
                    for _ in 0..4 {
                        short = s.dot_short(high, inputs, s.dot_short(nibbles, inputs, short));
                    }
                    integers(s.add_short(short, s.splat_i32(7)))
                }),
            ]
        }
    }

    #[test]
    fn every_operation_has_the_same_bits_on_every_instruction_set() {
        let mut state = 1u32;
        let mut random = |is_ordinary| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            // Two `bf16` far from 0 and from infinity.
            if is_ordinary { state & 0x9fff_9fff | 0x2000_2000 } else { state }
        };
        for round in 0..2000 {
            let is_ordinary = round % 2 == 0;
            let words = [0; 3].map(|_| [0; LANES].map(|_| random(is_ordinary)));
            let everything = Everything { words, pair: random(is_ordinary) };
            let expected = everything.eval(Portable);
            for isa in Isa::available() {
                assert_eq!(isa.run(everything), expected, "{isa:?}");
                assert_eq!(isa.run_integers(everything), expected, "{isa:?}");
                // The instructions of AVX-512 for `bf16` take what is below 2^-126 for 0.
                if is_ordinary || isa.name() != "avx512_bf16" {
                    assert_eq!(isa.run_bf16(everything), expected, "{isa:?}");
                }
            }
        }
    }
}
