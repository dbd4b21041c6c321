//! `IQ4_XS`: 256 weights, 4 bits each that stand for unevenly spaced numbers, in groups of 32 with a signed
//! scale of 6 bits.

use super::codes::Plane;
use super::iq4_nl::NUMBERS;
use super::scales::{Scales, Signed};
use super::{Block, half_at, split_nibbles};

pub(super) struct IQ4_XS;

impl Block for IQ4_XS {
    const ELEMENTS: usize = 256;
    const BYTES: usize = 136;
    const GROUP: usize = 32;
    const TABLE: Option<[f32; 16]> = Some(NUMBERS);
    type Codes = Plane<4, 32>;
    type Scales = Signed<8, 0>;

    fn codes(block: &[u8], codes: &mut [u8]) {
        for (bytes, codes) in block[8..].chunks_exact(16).zip(codes.chunks_exact_mut(32)) {
            split_nibbles(bytes, codes);
        }
    }

    fn scales(block: &[u8]) -> <Self::Scales as Scales>::OfBlock {
        let high = u16::from_le_bytes([block[2], block[3]]);
        let integers = std::array::from_fn(|group| {
            let low = block[4 + group / 2] >> (4 * (group % 2)) & 15;
            (low | ((high >> (2 * group) & 3) as u8) << 4).cast_signed() - 32
        });
        (half_at(block, 0), integers)
    }
}
