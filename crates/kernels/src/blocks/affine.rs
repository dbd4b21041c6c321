//! Integers of 2 to 8 bits with a scale and a minimum, as MLX has them: `code * scale + minimum`. A block is two
//! `float32`, and a byte for each code.

use std::marker::PhantomData;

use super::codes::{Codes, Joined, Plane};
use super::scales::FloatMinimum;
use super::{Block, float_at};

/// Blocks of `GROUP` weights, packed as `C`.
pub(super) struct Affine<C, const GROUP: usize>(PhantomData<C>);

pub(super) type Affine2G32 = Affine<Plane<2, 2>, 32>;
pub(super) type Affine2G64 = Affine<Plane<2, 4>, 64>;
pub(super) type Affine3G32 = Affine<Joined<2, Plane<2, 2>, Plane<1, 1>>, 32>;
pub(super) type Affine3G64 = Affine<Joined<2, Plane<2, 4>, Plane<1, 2>>, 64>;
pub(super) type Affine4G32 = Affine<Plane<4, 4>, 32>;
pub(super) type Affine4G64 = Affine<Plane<4, 8>, 64>;
pub(super) type Affine4G128 = Affine<Plane<4, 16>, 128>;
pub(super) type Affine5G32 = Affine<Joined<4, Plane<4, 4>, Plane<1, 1>>, 32>;
pub(super) type Affine5G64 = Affine<Joined<4, Plane<4, 8>, Plane<1, 2>>, 64>;
pub(super) type Affine6G32 = Affine<Joined<4, Plane<4, 4>, Plane<2, 2>>, 32>;
pub(super) type Affine6G64 = Affine<Joined<4, Plane<4, 8>, Plane<2, 4>>, 64>;
pub(super) type Affine8G32 = Affine<Plane<8, 8>, 32>;
pub(super) type Affine8G64 = Affine<Plane<8, 16>, 64>;
pub(super) type Affine8G128 = Affine<Plane<8, 32>, 128>;

impl<C: Codes, const GROUP: usize> Block for Affine<C, GROUP> {
    const ELEMENTS: usize = GROUP;
    const BYTES: usize = 8 + GROUP;
    const GROUP: usize = GROUP;
    type Codes = C;
    type Scales = FloatMinimum;

    fn codes(block: &[u8], codes: &mut [u8]) {
        codes.copy_from_slice(&block[8..]);
    }

    fn scales(block: &[u8]) -> [f32; 2] {
        [float_at(block, 0), float_at(block, 4)]
    }
}
