//! `IQ4_NL`: 32 weights, `d`, 4 bits each that stand for unevenly spaced numbers.

use half::f16;

use super::codes::Plane;
use super::scales::One;
use super::{Block, half_at, split_nibbles};

pub(super) struct IQ4_NL;

/// What the codes of `IQ4_NL` and `IQ4_XS` stand for.
pub(super) const NUMBERS: [f32; 16] = [
    -127.0, -104.0, -83.0, -65.0, -49.0, -35.0, -22.0, -10.0, 1.0, 13.0, 25.0, 38.0, 53.0, 69.0, 89.0, 113.0,
];

impl Block for IQ4_NL {
    const ELEMENTS: usize = 32;
    const BYTES: usize = 18;
    const GROUP: usize = 32;
    const TABLE: Option<[f32; 16]> = Some(NUMBERS);
    type Codes = Plane<4, 4>;
    type Scales = One<0>;

    fn codes(block: &[u8], codes: &mut [u8]) {
        split_nibbles(&block[2..], codes);
    }

    fn scales(block: &[u8]) -> f16 {
        half_at(block, 0)
    }
}
