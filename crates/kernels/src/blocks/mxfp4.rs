//! `MXFP4`: 32 weights of 4 bits, each a floating-point number with two bits of exponent, and a power of two.

use super::codes::Plane;
use super::scales::Exponent;
use super::{Block, split_nibbles};

pub(super) struct MXFP4;

impl Block for MXFP4 {
    const ELEMENTS: usize = 32;
    const BYTES: usize = 17;
    const GROUP: usize = 32;
    const TABLE: Option<[f32; 16]> =
        Some([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0]);
    type Codes = Plane<4, 4>;
    type Scales = Exponent;

    fn codes(block: &[u8], codes: &mut [u8]) {
        split_nibbles(&block[1..], codes);
    }

    fn scales(block: &[u8]) -> u8 {
        block[0]
    }
}
