//! The element types of stored weights, and matrices in them as bytes.

use std::fmt;
use std::ops::Range;

use half::{bf16, f16};

/// An element type of stored weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DType {
    /// IEEE 754 single precision.
    F32,
    /// The upper half of a single-precision number.
    Bf16,
    /// IEEE 754 half precision.
    F16,
}

impl DType {
    /// The bytes of one element.
    pub const fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 | Self::F16 => 2,
        }
    }

    /// The nearest number of this type.
    pub fn round(self, value: f32) -> f32 {
        match self {
            Self::F32 => value,
            Self::Bf16 => bf16::from_f32(value).to_f32(),
            Self::F16 => f16::from_f32(value).to_f32(),
        }
    }

    /// The bytes of a number, rounded to this type.
    pub fn to_le_bytes(self, value: f32) -> impl Iterator<Item = u8> {
        let bytes = match self {
            Self::F32 => value.to_le_bytes(),
            Self::Bf16 => (u32::from(bf16::from_f32(value).to_bits())).to_le_bytes(),
            Self::F16 => (u32::from(f16::from_f32(value).to_bits())).to_le_bytes(),
        };
        bytes.into_iter().take(self.bytes())
    }

    /// The name that transformers uses: `float32`, `bfloat16` or `float16`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "float32",
            Self::Bf16 => "bfloat16",
            Self::F16 => "float16",
        }
    }
}

/// The arithmetic that rows are multiplied with matrices in. Sums are taken in `float32` always.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ComputeDtype {
    /// Activations as they are, weights of any type widened.
    #[default]
    F32,
    /// Activations and weights rounded to `bfloat16`; their products are exact.
    Bf16,
}

impl ComputeDtype {
    /// The name that transformers uses: `float32` or `bfloat16`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => DType::F32.name(),
            Self::Bf16 => DType::Bf16.name(),
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A matrix (or, with one row, a vector) as a file holds it: row-major, little-endian, at any alignment.
#[derive(Clone, Copy)]
pub struct StoredMatrix<'a> {
    /// The element type.
    pub dtype: DType,
    /// The number of rows.
    pub num_rows: usize,
    /// The number of columns.
    pub num_columns: usize,
    /// `num_rows * num_columns * dtype.bytes()` bytes.
    pub bytes: &'a [u8],
}

impl<'a> StoredMatrix<'a> {
    /// The bytes of one row.
    #[inline]
    pub fn row_bytes(&self, row: usize) -> &'a [u8] {
        let len = self.num_columns * self.dtype.bytes();
        &self.bytes[row * len..][..len]
    }

    /// Some of the rows; those beyond the last one are not there.
    #[must_use]
    pub fn rows(&self, rows: Range<usize>) -> Self {
        let rows = rows.start.min(self.num_rows)..rows.end.min(self.num_rows);
        let len = self.num_columns * self.dtype.bytes();
        Self { num_rows: rows.len(), bytes: &self.bytes[rows.start * len..rows.end * len], ..*self }
    }

    /// One element, widened.
    ///
    /// # Panics
    /// When it lies outside of the matrix.
    #[inline]
    pub fn get(&self, row: usize, column: usize) -> f32 {
        let index = row * self.num_columns + column;
        match self.dtype {
            DType::F32 => {
                let b = &self.bytes[4 * index..4 * index + 4];
                f32::from_le_bytes([b[0], b[1], b[2], b[3]])
            }
            DType::Bf16 => bf16::from_bits(self.half_word(index)).to_f32(),
            DType::F16 => f16::from_bits(self.half_word(index)).to_f32(),
        }
    }

    /// Whether no element is NaN or infinite.
    pub fn is_finite(&self) -> bool {
        // The exponent of one that is not has all bits set.
        let all_halves = |exponent: u16| {
            let (words, _) = self.bytes.as_chunks::<2>();
            words.iter().fold(true, |all, &word| all & (u16::from_le_bytes(word) & exponent != exponent))
        };
        match self.dtype {
            DType::F32 => {
                let (words, _) = self.bytes.as_chunks::<4>();
                words.iter().fold(true, |all, &word| all & f32::from_le_bytes(word).is_finite())
            }
            DType::Bf16 => all_halves(0x7f80),
            DType::F16 => all_halves(0x7c00),
        }
    }

    /// All elements, widened, row by row.
    pub fn to_f32(&self) -> Vec<f32> {
        (0..self.num_rows)
            .flat_map(|row| (0..self.num_columns).map(move |column| self.get(row, column)))
            .collect()
    }

    #[inline]
    fn half_word(&self, index: usize) -> u16 {
        let b = &self.bytes[2 * index..2 * index + 2];
        u16::from_le_bytes([b[0], b[1]])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_finite_is_found_in_any_type() {
        for dtype in [DType::F32, DType::Bf16, DType::F16] {
            for (value, is_finite) in [
                (1e-30, true),
                (-60000.0, true),
                (f32::NAN, false),
                (f32::INFINITY, false),
                (f32::NEG_INFINITY, false),
            ] {
                let bytes: Vec<u8> =
                    [1.0, value, 2.0].into_iter().flat_map(|x| dtype.to_le_bytes(x)).collect();
                let matrix = StoredMatrix { dtype, num_rows: 1, num_columns: 3, bytes: &bytes };
                assert_eq!(matrix.is_finite(), is_finite, "{dtype} {value}");
            }
        }
    }

    #[test]
    fn elements_are_read_at_any_alignment_and_widened_exactly() {
        let mut bytes = vec![0xffu8];
        for value in [1.5f32, -2.25] {
            bytes.extend(bf16::from_f32(value).to_bits().to_le_bytes());
        }
        let matrix = StoredMatrix { dtype: DType::Bf16, num_rows: 2, num_columns: 1, bytes: &bytes[1..] };
        assert_eq!(matrix.to_f32(), [1.5, -2.25]);
        let bytes: Vec<u8> = [0.1f32, 7.0].iter().flat_map(|value| value.to_le_bytes()).collect();
        let matrix = StoredMatrix { dtype: DType::F32, num_rows: 1, num_columns: 2, bytes: &bytes };
        assert_eq!((matrix.get(0, 0), matrix.get(0, 1)), (0.1, 7.0));
        let bytes = f16::from_f32(0.333).to_bits().to_le_bytes();
        let matrix = StoredMatrix { dtype: DType::F16, num_rows: 1, num_columns: 1, bytes: &bytes };
        assert_eq!(matrix.get(0, 0), f16::from_f32(0.333).to_f32());
    }
}
