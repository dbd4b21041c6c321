//! Blocks: consecutive weights of a row as small integers with shared scales, as GGUF files and others store
//! them.
//!
//! A type of blocks is a file here and a line in `block_types!`. It says how its bytes give codes and scales;
//! `codes` and `scales` have the layouts that the types share, and `panels` multiplies with them without ever
//! making a matrix of floats. Every weight is exact: the number that the reference's formula gives, which
//! rounds once at most.

#![allow(non_camel_case_types, reason = "the names of GGML")]

mod affine;
mod bitsandbytes;
mod codes;
mod decoded;
mod e4m3;
mod indexed;
mod integers;
mod iq4_nl;
mod iq4_xs;
mod mxfp4;
mod panels;
mod q2_k;
mod q3_k;
mod q4_0;
mod q4_1;
mod q4_k;
mod q5_0;
mod q5_1;
mod q5_k;
mod q6_k;
mod q8_0;
mod scales;
mod zero_point;

pub use e4m3::e4m3;
pub use indexed::IndexedType;
pub use scales::e8m0;

use codes::Codes;
use scales::Scales;

use crate::simd::Simd;

use crate::matmul::{F32Panels, IntegerProducts};
use crate::quant::WeightFormat;

/// The most weights of a block.
const MOST_ELEMENTS: usize = 256;
/// Scales below this give weights that are finite, whatever the codes: no number of a code is larger than 448.
const SMALL_SCALE: f32 = 1e30;

/// A type of blocks.
pub(crate) trait Block: Send + Sync + 'static {
    /// The weights of a block.
    const ELEMENTS: usize;
    /// Its bytes.
    const BYTES: usize;
    /// The weights that share a scale.
    const GROUP: usize;
    /// The numbers that codes stand for, where they are not the numbers themselves.
    const TABLE: Option<[f32; 16]> = None;

    /// How panels hold the codes.
    type Codes: Codes;
    /// How panels hold the scales.
    type Scales: Scales;

    /// The code of each weight.
    fn codes(block: &[u8], codes: &mut [u8]);

    /// The scales of the block.
    fn scales(block: &[u8]) -> <Self::Scales as Scales>::OfBlock;

    /// The number that a code stands for.
    fn number(code: u8) -> f32 {
        match Self::TABLE {
            Some(table) => table[usize::from(code) % table.len()],
            None => f32::from(code),
        }
    }

    /// The numbers of a weight of 16 outputs.
    #[inline(always)]
    fn numbers<S: Simd>(codes: &Self::Codes, s: S, half: usize, i: usize) -> S::F {
        let code = codes.vector(s, half, i);
        match Self::TABLE {
            Some(table) => s.look_up_f32(&table, code),
            None => s.to_f32(code),
        }
    }

    /// Whether the weights of all blocks are finite.
    fn all_finite(blocks: &[u8]) -> bool {
        let mut weights = [0.0; MOST_ELEMENTS];
        let weights = &mut weights[..Self::ELEMENTS];
        blocks.chunks_exact(Self::BYTES).all(|block| {
            let scales = Self::scales(block);
            let is_small =
                |group| Self::Scales::of_group(&scales, group).iter().all(|scale| scale.abs() < SMALL_SCALE);
            (0..Self::ELEMENTS / Self::GROUP).all(is_small) || {
                Self::dequantize(block, weights);
                weights.iter().all(|weight| weight.is_finite())
            }
        })
    }

    /// The weights of a block, as the reference defines them.
    fn dequantize(block: &[u8], out: &mut [f32]) {
        let mut codes = [0; MOST_ELEMENTS];
        Self::codes(block, &mut codes[..Self::ELEMENTS]);
        let scales = Self::scales(block);
        let groups = out.chunks_exact_mut(Self::GROUP).zip(codes.chunks_exact(Self::GROUP));
        for (group, (out, codes)) in groups.enumerate() {
            let of_group = Self::Scales::of_group(&scales, group);
            for (out, &code) in out.iter_mut().zip(codes) {
                *out = Self::Scales::scaled(Self::number(code), of_group);
            }
        }
    }
}

macro_rules! block_types {
    ($($name:ident $label:literal $gguf:expr, $file:ident $products:ident)*) => {
        /// The type of the blocks that a tensor is stored in: by the names of GGML, or by bits and groups.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum BlockType {
            $(#[doc = concat!("`", $label, "`")] $name,)*
        }

        impl BlockType {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The name that reports use: that of GGML, if there is one.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $label,)* }
            }

            /// The type that GGUF files give this number.
            pub fn from_gguf(id: u32) -> Option<Self> {
                Self::ALL.iter().copied().find(|kind| kind.gguf() == Some(id))
            }

            /// Whether it is one of GGML's.
            pub const fn is_of_ggml(self) -> bool {
                self.gguf().is_some()
            }

            /// The number that GGUF files give the type, if they have it.
            const fn gguf(self) -> Option<u32> {
                match self { $(Self::$name => $gguf,)* }
            }

            /// The weights of a block.
            pub const fn elements(self) -> usize {
                match self { $(Self::$name => $file::$name::ELEMENTS,)* }
            }

            /// The bytes of a block.
            pub const fn bytes(self) -> usize {
                match self { $(Self::$name => $file::$name::BYTES,)* }
            }

            /// Writes the weights of whole blocks to `out`, `[blocks * elements]`. Scales that are not finite
            /// give weights that are not.
            ///
            /// # Panics
            /// When `out` has no room for them.
            pub fn dequantize(self, blocks: &[u8], out: &mut [f32]) {
                let dequantize = match self { $(Self::$name => $file::$name::dequantize,)* };
                let blocks = blocks.chunks_exact(self.bytes());
                assert_eq!(blocks.len() * self.elements(), out.len(), "room for each weight");
                for (block, out) in blocks.zip(out.chunks_exact_mut(self.elements())) {
                    dequantize(block, out);
                }
            }

            /// Whether the weights of all blocks are finite.
            pub fn all_finite(self, blocks: &[u8]) -> bool {
                match self { $(Self::$name => $file::$name::all_finite(blocks),)* }
            }

            /// The format of panels that keep the blocks' bits and round activations to 8 bits, if codes are integers.
            pub(crate) fn integer_format(self) -> Option<&'static dyn WeightFormat> {
                match self { $(Self::$name => integers::$products!($file::$name, Self::$name),)* }
            }

            /// The format of panels that keep the blocks' bits, and compute in `float32`.
            pub(crate) fn format(self) -> &'static dyn WeightFormat {
                match self { $(Self::$name => const { &panels::BlockFormat::<$file::$name, F32Panels>::new(Self::$name) },)* }
            }
        }
    };
}

block_types! {
    Q4_0 "Q4_0" Some(2), q4_0 small
    Q4_1 "Q4_1" Some(3), q4_1 small
    Q5_0 "Q5_0" Some(6), q5_0 middle
    Q5_1 "Q5_1" Some(7), q5_1 middle
    Q8_0 "Q8_0" Some(8), q8_0 wide
    Q2_K "Q2_K" Some(10), q2_k pairs
    Q3_K "Q3_K" Some(11), q3_k pairs
    Q4_K "Q4_K" Some(12), q4_k small
    Q5_K "Q5_K" Some(13), q5_k middle
    Q6_K "Q6_K" Some(14), q6_k pairs
    IQ4_NL "IQ4_NL" Some(20), iq4_nl none
    IQ4_XS "IQ4_XS" Some(23), iq4_xs none
    MXFP4 "MXFP4" Some(39), mxfp4 none
    U2G32 "int2 in groups of 32" None, zero_point small
    U2G64 "int2 in groups of 64" None, zero_point small
    U2G128 "int2 in groups of 128" None, zero_point small
    U3G32 "int3 in groups of 32" None, zero_point small
    U3G64 "int3 in groups of 64" None, zero_point small
    U3G128 "int3 in groups of 128" None, zero_point small
    U4G32 "int4 in groups of 32" None, zero_point small
    U4G64 "int4 in groups of 64" None, zero_point small
    U4G128 "int4 in groups of 128" None, zero_point small
    U8G32 "int8 in groups of 32" None, zero_point wide
    U8G64 "int8 in groups of 64" None, zero_point wide
    U8G128 "int8 in groups of 128" None, zero_point wide
    Affine2G32 "affine int2 in groups of 32" None, affine small
    Affine2G64 "affine int2 in groups of 64" None, affine small
    Affine3G32 "affine int3 in groups of 32" None, affine small
    Affine3G64 "affine int3 in groups of 64" None, affine small
    Affine4G32 "affine int4 in groups of 32" None, affine small
    Affine4G64 "affine int4 in groups of 64" None, affine small
    Affine4G128 "affine int4 in groups of 128" None, affine small
    Affine5G32 "affine int5 in groups of 32" None, affine middle
    Affine5G64 "affine int5 in groups of 64" None, affine middle
    Affine6G32 "affine int6 in groups of 32" None, affine middle
    Affine6G64 "affine int6 in groups of 64" None, affine middle
    Affine8G32 "affine int8 in groups of 32" None, affine wide
    Affine8G64 "affine int8 in groups of 64" None, affine wide
    Affine8G128 "affine int8 in groups of 128" None, affine wide
    NF4 "NF4" None, bitsandbytes none
    FP4 "FP4" None, bitsandbytes none
    Int8 "LLM.int8" None, bitsandbytes wide
    E4M3G32 "float8 (E4M3) in groups of 32" None, e4m3 none
    E4M3G128 "float8 (E4M3) in groups of 128" None, e4m3 none
}

/// The codes of 32 weights whose byte `i` holds weight `i` in its low half and weight `i + 16` in the other.
fn split_nibbles(bytes: &[u8], codes: &mut [u8]) {
    let (low, high) = codes.split_at_mut(16);
    for ((&byte, low), high) in bytes.iter().zip(low).zip(high) {
        (*low, *high) = (byte & 15, byte >> 4);
    }
}

/// The `float32` at a place of a block.
fn float_at(block: &[u8], at: usize) -> f32 {
    f32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
}

/// The `f16` at a place of a block.
fn half_at(block: &[u8], at: usize) -> half::f16 {
    half::f16::from_le_bytes([block[at], block[at + 1]])
}

#[cfg(test)]
mod tests;
