//! Blocks: consecutive weights of a row as small integers with shared scales, as GGUF files and others store
//! them.
//!
//! A type of blocks is a file here and a line in `block_types!`. It says how its bytes give codes and scales;
//! `codes` and `scales` have the layouts that the types share, and `panels` multiplies with them without ever
//! making a matrix of floats. Every weight is exact: the number that the reference's formula gives, which
//! rounds once at most.

#![allow(non_camel_case_types, reason = "the names of GGML")]

mod codes;
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

use codes::Codes;
use scales::Scales;

use crate::quant::WeightFormat;

/// The most weights of a block.
const MOST_ELEMENTS: usize = 256;

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

    /// The weights of a block, as the reference defines them.
    fn dequantize(block: &[u8], out: &mut [f32]) {
        let mut codes = [0; MOST_ELEMENTS];
        Self::codes(block, &mut codes[..Self::ELEMENTS]);
        let scales = Self::scales(block);
        for (i, (out, &code)) in out.iter_mut().zip(&codes[..Self::ELEMENTS]).enumerate() {
            *out = Self::Scales::weight(&scales, i / Self::GROUP, Self::number(code));
        }
    }
}

macro_rules! block_types {
    ($($name:ident $label:literal $gguf:literal $file:ident)*) => {
        /// The type of the blocks that a tensor is stored in, by the names of GGML.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum BlockType {
            $(#[doc = concat!("`", $label, "`")] $name,)*
        }

        impl BlockType {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The name that GGML uses.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $label,)* }
            }

            /// The type that GGUF files give this number.
            pub fn from_gguf(id: u32) -> Option<Self> {
                match id {
                    $($gguf => Some(Self::$name),)*
                    _ => None,
                }
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

            /// The format of panels that keep the blocks' bits.
            pub(crate) fn format(self) -> &'static dyn WeightFormat {
                match self { $(Self::$name => const { &panels::BlockFormat::<$file::$name>::new(Self::$name) },)* }
            }
        }
    };
}

block_types! {
    Q4_0 "Q4_0" 2 q4_0
    Q4_1 "Q4_1" 3 q4_1
    Q5_0 "Q5_0" 6 q5_0
    Q5_1 "Q5_1" 7 q5_1
    Q8_0 "Q8_0" 8 q8_0
    Q2_K "Q2_K" 10 q2_k
    Q3_K "Q3_K" 11 q3_k
    Q4_K "Q4_K" 12 q4_k
    Q5_K "Q5_K" 13 q5_k
    Q6_K "Q6_K" 14 q6_k
    IQ4_NL "IQ4_NL" 20 iq4_nl
    IQ4_XS "IQ4_XS" 23 iq4_xs
    MXFP4 "MXFP4" 39 mxfp4
}

/// The codes of 32 weights whose byte `i` holds weight `i` in its low half and weight `i + 16` in the other.
fn split_nibbles(bytes: &[u8], codes: &mut [u8]) {
    let (low, high) = codes.split_at_mut(16);
    for ((&byte, low), high) in bytes.iter().zip(low).zip(high) {
        (*low, *high) = (byte & 15, byte >> 4);
    }
}

/// The `f16` at a place of a block.
fn half_at(block: &[u8], at: usize) -> half::f16 {
    half::f16::from_le_bytes([block[at], block[at + 1]])
}

#[cfg(test)]
mod tests;
