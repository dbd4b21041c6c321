//! Floating-point numbers of a byte, with 4 bits of exponent and 3 more, and a scale: a `float32`, and a byte for
//! each number. There are no infinities; numbers with all bits set but the sign are none.

use super::codes::{Codes as _, Plane};
use super::scales::Float;
use super::{Block, float_at};
use crate::simd::Simd;

/// Blocks of `GROUP` numbers in `WORDS` words.
pub(super) struct E4M3<const GROUP: usize, const WORDS: usize>;

pub(super) type E4M3G32 = E4M3<32, 8>;
pub(super) type E4M3G128 = E4M3<128, 32>;

/// 2^120, which the exponents of `float32` differ by: with it, small numbers come out right as well.
const REBASED: f32 = f32::from_bits((120 + 127) << 23);

/// What no number has, but for its sign.
const ALL_SET: u8 = 0x7f;

/// The number of a byte in E4M3: 4 bits of exponent and 3 more. NaN where there is none.
pub fn e4m3(code: u8) -> f32 {
    if code & ALL_SET == ALL_SET {
        return f32::NAN;
    }
    f32::from_bits(u32::from(code & 0x7f) << 20 | u32::from(code & 0x80) << 24) * REBASED
}

impl<const GROUP: usize, const WORDS: usize> Block for E4M3<GROUP, WORDS> {
    const ELEMENTS: usize = GROUP;
    const BYTES: usize = 4 + GROUP;
    const GROUP: usize = GROUP;
    type Codes = Plane<8, WORDS>;
    type Scales = Float<false>;

    fn codes(block: &[u8], codes: &mut [u8]) {
        codes.copy_from_slice(&block[4..]);
    }

    /// No number where a code is none, so that the block is refused.
    fn scales(block: &[u8]) -> f32 {
        if block[4..].iter().any(|code| code & ALL_SET == ALL_SET) { f32::NAN } else { float_at(block, 0) }
    }

    fn number(code: u8) -> f32 {
        e4m3(code)
    }

    #[inline(always)]
    fn numbers<S: Simd>(codes: &Self::Codes, s: S, half: usize, i: usize) -> S::F {
        let code = codes.vector(s, half, i);
        let sign = s.masked(code, 0x80);
        let number = s.shifted_left::<20>(s.masked(code, 0x7f));
        s.mul(s.as_floats(s.join::<24>(number, sign)), s.splat(REBASED))
    }
}
