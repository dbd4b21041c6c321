//! `Q6_K`: 256 weights, 6 bits each with half of them negative, in groups of 16 with a signed scale of 8 bits.

use super::codes::{Joined, Plane};
use super::scales::{Scales, Signed};
use super::{Block, half_at};

pub(super) struct Q6_K;

impl Block for Q6_K {
    const ELEMENTS: usize = 256;
    const BYTES: usize = 210;
    const GROUP: usize = 16;
    type Codes = Joined<4, Plane<4, 32>, Plane<2, 16>>;
    type Scales = Signed<16, 32>;

    fn codes(block: &[u8], codes: &mut [u8]) {
        let (low, rest) = block.split_at(128);
        let halves = low.chunks_exact(64).zip(rest[..64].chunks_exact(32));
        for ((low, high), codes) in halves.zip(codes.chunks_exact_mut(128)) {
            for (quarter, codes) in codes.chunks_exact_mut(32).enumerate() {
                let low = &low[32 * (quarter % 2)..];
                for ((code, &low), &high) in codes.iter_mut().zip(low).zip(high) {
                    *code = low >> (4 * (quarter / 2)) & 15 | (high >> (2 * quarter) & 3) << 4;
                }
            }
        }
    }

    fn scales(block: &[u8]) -> <Self::Scales as Scales>::OfBlock {
        (half_at(block, 208), std::array::from_fn(|group| block[192 + group].cast_signed()))
    }
}
