//! How the numbers of a stored tensor are encoded.

use std::fmt;

use super::DType;
pub use crate::blocks::{BlockType, IndexedType, e4m3, e8m0};

/// How the numbers of a stored tensor are encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// Numbers of one type, one after the other.
    Plain(DType),
    /// Blocks, whose weights have scales in common. Each row is made of whole ones.
    Blocks(BlockType),
    /// Integers with scales that an index finds. A unit is a row.
    Indexed(IndexedType),
}

impl Encoding {
    /// The numbers that are stored together, 1 if each is by itself.
    pub const fn elements(self) -> usize {
        match self {
            Self::Plain(_) => 1,
            Self::Blocks(kind) => kind.elements(),
            Self::Indexed(kind) => kind.elements(),
        }
    }

    /// The bytes of those.
    pub const fn unit_bytes(self) -> usize {
        match self {
            Self::Plain(dtype) => dtype.bytes(),
            Self::Blocks(kind) => kind.bytes(),
            Self::Indexed(kind) => kind.bytes(),
        }
    }

    /// The bytes of so many numbers, in whole blocks; `None` if there are too many to count.
    pub const fn bytes_of(self, elements: usize) -> Option<usize> {
        elements.div_ceil(self.elements()).checked_mul(self.unit_bytes())
    }

    /// The type of the numbers, unless they are in blocks.
    pub const fn dtype(self) -> Option<DType> {
        match self {
            Self::Plain(dtype) => Some(dtype),
            Self::Blocks(_) | Self::Indexed(_) => None,
        }
    }

    /// Writes the numbers to `out`, widened, as the reference defines them.
    ///
    /// # Panics
    /// When `out` has another length than there are numbers.
    pub fn decode(self, bytes: &[u8], out: &mut [f32]) {
        match self {
            Self::Plain(dtype) => dtype.widen(bytes, out),
            Self::Blocks(kind) => kind.dequantize(bytes, out),
            Self::Indexed(kind) => kind.dequantize(bytes, out),
        }
    }

    /// Whether no number is NaN or infinite.
    pub fn all_finite(self, bytes: &[u8]) -> bool {
        match self {
            Self::Plain(dtype) => dtype.all_finite(bytes),
            Self::Blocks(kind) => kind.all_finite(bytes),
            Self::Indexed(_) => {
                let mut numbers = vec![0.0; self.elements()];
                bytes.chunks_exact(self.unit_bytes()).all(|unit| {
                    self.decode(unit, &mut numbers);
                    numbers.iter().all(|number| number.is_finite())
                })
            }
        }
    }

    /// The name: `float32`, `bfloat16`, `float16`, or that of the blocks.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain(dtype) => dtype.name(),
            Self::Blocks(kind) => kind.name(),
            Self::Indexed(kind) => kind.name(),
        }
    }
}

impl From<DType> for Encoding {
    fn from(dtype: DType) -> Self {
        Self::Plain(dtype)
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
