//! `Q8_0`: 32 weights, `d`, a signed byte each.

use half::f16;

use super::codes::Plane;
use super::scales::One;
use super::{Block, half_at};

pub(super) struct Q8_0;

impl Block for Q8_0 {
    const ELEMENTS: usize = 32;
    const BYTES: usize = 34;
    const GROUP: usize = 32;
    type Codes = Plane<8, 8>;
    type Scales = One<128>;

    fn codes(block: &[u8], codes: &mut [u8]) {
        for (code, &byte) in codes.iter_mut().zip(&block[2..]) {
            *code = byte ^ 0x80;
        }
    }

    fn scales(block: &[u8]) -> f16 {
        half_at(block, 0)
    }
}
