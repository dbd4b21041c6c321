//! Integers of 2, 3, 4 or 8 bits with a scale and the integer of zero, as GPTQ, AWQ and compressed-tensors have
//! them: `(code - zero) * scale`. A block is a `float32`, the zero, and a byte for each code.

use std::marker::PhantomData;

use super::codes::{Codes, Joined, Plane};
use super::{Block, float_at, scales};

/// Blocks of `GROUP` weights, packed as `C`.
pub(super) struct ZeroPoint<C, const GROUP: usize>(PhantomData<C>);

pub(super) type U2G32 = ZeroPoint<Plane<2, 2>, 32>;
pub(super) type U2G64 = ZeroPoint<Plane<2, 4>, 64>;
pub(super) type U2G128 = ZeroPoint<Plane<2, 8>, 128>;
pub(super) type U3G32 = ZeroPoint<Joined<2, Plane<2, 2>, Plane<1, 1>>, 32>;
pub(super) type U3G64 = ZeroPoint<Joined<2, Plane<2, 4>, Plane<1, 2>>, 64>;
pub(super) type U3G128 = ZeroPoint<Joined<2, Plane<2, 8>, Plane<1, 4>>, 128>;
pub(super) type U4G32 = ZeroPoint<Plane<4, 4>, 32>;
pub(super) type U4G64 = ZeroPoint<Plane<4, 8>, 64>;
pub(super) type U4G128 = ZeroPoint<Plane<4, 16>, 128>;
pub(super) type U8G32 = ZeroPoint<Plane<8, 8>, 32>;
pub(super) type U8G64 = ZeroPoint<Plane<8, 16>, 64>;
pub(super) type U8G128 = ZeroPoint<Plane<8, 32>, 128>;

impl<C: Codes, const GROUP: usize> Block for ZeroPoint<C, GROUP> {
    const ELEMENTS: usize = GROUP;
    const BYTES: usize = 5 + GROUP;
    const GROUP: usize = GROUP;
    type Codes = C;
    type Scales = scales::ZeroPoint;

    fn codes(block: &[u8], codes: &mut [u8]) {
        codes.copy_from_slice(&block[5..]);
    }

    fn scales(block: &[u8]) -> (f32, u8) {
        (float_at(block, 0), block[4])
    }
}
