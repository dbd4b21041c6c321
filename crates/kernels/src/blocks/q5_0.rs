//! `Q5_0`: 32 weights, `d`, 5 bits each with half of them negative; the highest bits come first.

use half::f16;

use super::codes::{Joined, Plane};
use super::scales::One;
use super::{Block, half_at, split_nibbles};

pub(super) struct Q5_0;

impl Block for Q5_0 {
    const ELEMENTS: usize = 32;
    const BYTES: usize = 22;
    const GROUP: usize = 32;
    type Codes = Joined<4, Plane<4, 4>, Plane<1, 1>>;
    type Scales = One<16>;

    fn codes(block: &[u8], codes: &mut [u8]) {
        five_bits(&block[2..], codes);
    }

    fn scales(block: &[u8]) -> f16 {
        half_at(block, 0)
    }
}

/// The codes of 32 weights: a bit each, and then four.
pub(super) fn five_bits(bytes: &[u8], codes: &mut [u8]) {
    let (high, low) = bytes.split_at(4);
    split_nibbles(low, codes);
    for (i, code) in codes.iter_mut().enumerate() {
        *code |= (high[i / 8] >> (i % 8) & 1) << 4;
    }
}
