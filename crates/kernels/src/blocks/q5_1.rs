//! `Q5_1`: 32 weights, `d`, `m`, 5 bits each; the highest bits come first.

use half::f16;

use super::codes::{Joined, Plane};
use super::q5_0::five_bits;
use super::scales::WithMinimum;
use super::{Block, half_at};

pub(super) struct Q5_1;

impl Block for Q5_1 {
    const ELEMENTS: usize = 32;
    const BYTES: usize = 24;
    const GROUP: usize = 32;
    type Codes = Joined<4, Plane<4, 4>, Plane<1, 1>>;
    type Scales = WithMinimum;

    fn codes(block: &[u8], codes: &mut [u8]) {
        five_bits(&block[4..], codes);
    }

    fn scales(block: &[u8]) -> [f16; 2] {
        [half_at(block, 0), half_at(block, 2)]
    }
}
