//! `Q5_K`: as `Q4_K`, with a fifth bit for each weight.

use super::Block;
use super::codes::{Joined, Plane};
use super::q4_k::{nibbles_of_groups, six_bits};
use super::scales::{Scales, TwoLevels};

pub(super) struct Q5_K;

impl Block for Q5_K {
    const ELEMENTS: usize = 256;
    const BYTES: usize = 176;
    const GROUP: usize = 32;
    type Codes = Joined<4, Plane<4, 32>, Plane<1, 8>>;
    type Scales = TwoLevels<8>;

    fn codes(block: &[u8], codes: &mut [u8]) {
        let (high, low) = block[16..].split_at(32);
        nibbles_of_groups(low, codes);
        for (group, codes) in codes.chunks_exact_mut(32).enumerate() {
            for (code, &byte) in codes.iter_mut().zip(high) {
                *code |= (byte >> group & 1) << 4;
            }
        }
    }

    fn scales(block: &[u8]) -> <Self::Scales as Scales>::OfBlock {
        six_bits(block)
    }
}
