//! `Q4_1`: 32 weights, `d`, `m`, 4 bits each.

use half::f16;

use super::codes::Plane;
use super::scales::WithMinimum;
use super::{Block, half_at, split_nibbles};

pub(super) struct Q4_1;

impl Block for Q4_1 {
    const ELEMENTS: usize = 32;
    const BYTES: usize = 20;
    const GROUP: usize = 32;
    type Codes = Plane<4, 4>;
    type Scales = WithMinimum;

    fn codes(block: &[u8], codes: &mut [u8]) {
        split_nibbles(&block[4..], codes);
    }

    fn scales(block: &[u8]) -> [f16; 2] {
        [half_at(block, 0), half_at(block, 2)]
    }
}
