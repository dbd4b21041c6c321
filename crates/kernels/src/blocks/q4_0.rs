//! `Q4_0`: 32 weights, `d`, 4 bits each with half of them negative.

use half::f16;

use super::codes::Plane;
use super::scales::One;
use super::{Block, half_at, split_nibbles};

pub(super) struct Q4_0;

impl Block for Q4_0 {
    const ELEMENTS: usize = 32;
    const BYTES: usize = 18;
    const GROUP: usize = 32;
    type Codes = Plane<4, 4>;
    type Scales = One<8>;

    fn codes(block: &[u8], codes: &mut [u8]) {
        split_nibbles(&block[2..], codes);
    }

    fn scales(block: &[u8]) -> f16 {
        half_at(block, 0)
    }
}
