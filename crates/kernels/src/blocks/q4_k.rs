//! `Q4_K`: 256 weights, 4 bits each, in groups of 32 with a scale and a minimum of 6 bits.

use super::codes::Plane;
use super::scales::{Scales, TwoLevels};
use super::{Block, half_at};

pub(super) struct Q4_K;

impl Block for Q4_K {
    const ELEMENTS: usize = 256;
    const BYTES: usize = 144;
    const GROUP: usize = 32;
    type Codes = Plane<4, 32>;
    type Scales = TwoLevels<8>;

    fn codes(block: &[u8], codes: &mut [u8]) {
        nibbles_of_groups(&block[16..], codes);
    }

    fn scales(block: &[u8]) -> <Self::Scales as Scales>::OfBlock {
        six_bits(block)
    }
}

/// The codes of pairs of groups of 32: the first one has the low halves of 32 bytes.
pub(super) fn nibbles_of_groups(bytes: &[u8], codes: &mut [u8]) {
    for (bytes, codes) in bytes.chunks_exact(32).zip(codes.chunks_exact_mut(64)) {
        let (low, high) = codes.split_at_mut(32);
        for ((&byte, low), high) in bytes.iter().zip(low).zip(high) {
            (*low, *high) = (byte & 15, byte >> 4);
        }
    }
}

/// Two numbers, and then eight scales and minima of 6 bits in 12 bytes.
pub(super) fn six_bits(block: &[u8]) -> <TwoLevels<8> as Scales>::OfBlock {
    let packed = &block[4..16];
    let integers = std::array::from_fn(|group| {
        if group < 4 {
            [packed[group] & 63, packed[group + 4] & 63]
        } else {
            [
                packed[group + 4] & 15 | packed[group - 4] >> 6 << 4,
                packed[group + 4] >> 4 | packed[group] >> 6 << 4,
            ]
        }
    });
    ([half_at(block, 0), half_at(block, 2)], integers)
}
