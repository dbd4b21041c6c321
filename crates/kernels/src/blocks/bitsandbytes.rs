//! The types of bitsandbytes: 64 weights of 4 bits that stand for unevenly spaced numbers, or 32 signed bytes.
//! A block is the largest weight as a `float32`, and a byte for each code.

use super::codes::Plane;
use super::scales::Float;
use super::{Block, float_at};

pub(super) struct NF4;

pub(super) struct FP4;

pub(super) struct Int8;

/// The quantiles of a normal distribution, as bitsandbytes rounds them.
pub(super) const NF4_NUMBERS: [f32; 16] = [
    -1.0,
    -0.696_192_8,
    -0.525_073_05,
    -0.394_917_5,
    -0.284_441_38,
    -0.184_773_43,
    -0.091_050_036,
    0.0,
    0.079_580_3,
    0.160_930_2,
    0.246_112_3,
    0.337_915_24,
    0.440_709_83,
    0.562_617,
    0.722_956_84,
    1.0,
];

/// Numbers with a sign, two bits of exponent and one more, in units of the largest one.
pub(super) const FP4_NUMBERS: [f32; 16] = [
    0.0,
    0.005_208_333_3,
    0.666_666_7,
    1.0,
    0.333_333_34,
    0.5,
    0.166_666_67,
    0.25,
    0.0,
    -0.005_208_333_3,
    -0.666_666_7,
    -1.0,
    -0.333_333_34,
    -0.5,
    -0.166_666_67,
    -0.25,
];

macro_rules! four_bits {
    ($name:ident, $numbers:ident) => {
        impl Block for $name {
            const ELEMENTS: usize = 64;
            const BYTES: usize = 68;
            const GROUP: usize = 64;
            const TABLE: Option<[f32; 16]> = Some($numbers);
            type Codes = Plane<4, 8>;
            type Scales = Float<false>;

            fn codes(block: &[u8], codes: &mut [u8]) {
                codes.copy_from_slice(&block[4..]);
            }

            fn scales(block: &[u8]) -> f32 {
                float_at(block, 0)
            }
        }
    };
}

four_bits!(NF4, NF4_NUMBERS);
four_bits!(FP4, FP4_NUMBERS);

impl Block for Int8 {
    const ELEMENTS: usize = 32;
    const BYTES: usize = 36;
    const GROUP: usize = 32;
    type Codes = Plane<8, 8>;
    type Scales = Float<true>;

    fn codes(block: &[u8], codes: &mut [u8]) {
        for (code, &byte) in codes.iter_mut().zip(&block[4..]) {
            *code = byte ^ 0x80;
        }
    }

    fn scales(block: &[u8]) -> f32 {
        float_at(block, 0)
    }
}
