//! `Q2_K`: 256 weights, 2 bits each, in groups of 16 with a scale and a minimum of 4 bits.

use super::codes::Plane;
use super::scales::{Scales, TwoSmallLevels};
use super::{Block, half_at};

pub(super) struct Q2_K;

impl Block for Q2_K {
    const ELEMENTS: usize = 256;
    const BYTES: usize = 84;
    const GROUP: usize = 16;
    type Codes = Plane<2, 16>;
    type Scales = TwoSmallLevels<16>;

    fn codes(block: &[u8], codes: &mut [u8]) {
        two_bits(&block[16..80], codes);
    }

    fn scales(block: &[u8]) -> <Self::Scales as Scales>::OfBlock {
        let mut integers = [0; 16];
        integers.copy_from_slice(&block[..16]);
        ([half_at(block, 80), half_at(block, 82)], integers)
    }
}

/// The codes of 256 weights of 2 bits: those of each half follow each other by 32 weights.
pub(super) fn two_bits(bytes: &[u8], codes: &mut [u8]) {
    for (bytes, codes) in bytes.chunks_exact(32).zip(codes.chunks_exact_mut(128)) {
        for (k, codes) in codes.chunks_exact_mut(32).enumerate() {
            for (code, &byte) in codes.iter_mut().zip(bytes) {
                *code = byte >> (2 * k) & 3;
            }
        }
    }
}
