//! `Q3_K`: 256 weights, 3 bits each with half of them negative, in groups of 16 with a signed scale of 6 bits.

use super::codes::{Joined, Plane};
use super::q2_k::two_bits;
use super::scales::{Scales, Signed};
use super::{Block, half_at};

pub(super) struct Q3_K;

impl Block for Q3_K {
    const ELEMENTS: usize = 256;
    const BYTES: usize = 110;
    const GROUP: usize = 16;
    type Codes = Joined<2, Plane<2, 16>, Plane<1, 8>>;
    type Scales = Signed<16, 4>;

    fn codes(block: &[u8], codes: &mut [u8]) {
        let (high, low) = block[..96].split_at(32);
        two_bits(low, codes);
        for (k, codes) in codes.chunks_exact_mut(32).enumerate() {
            for (code, &byte) in codes.iter_mut().zip(high) {
                *code |= (byte >> k & 1) << 2;
            }
        }
    }

    fn scales(block: &[u8]) -> <Self::Scales as Scales>::OfBlock {
        let packed = &block[96..108];
        let integers = std::array::from_fn(|group| {
            let low = packed[group % 8] >> (4 * (group / 8)) & 15;
            let high = packed[8 + group % 4] >> (2 * (group / 4)) & 3;
            (low | high << 4).cast_signed() - 32
        });
        (half_at(block, 108), integers)
    }
}
