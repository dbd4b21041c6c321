//! The element types of stored weights, and the conversion of their bytes.

use std::fmt;

use half::slice::HalfFloatSliceExt as _;
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

/// The half-precision numbers that are converted at a time.
const CHUNK: usize = 256;

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

    /// Rounds each value to the nearest number of this type.
    pub fn round_all(self, values: &mut [f32]) {
        if self != Self::F32 {
            for value in values.iter_mut() {
                *value = self.round(*value);
            }
        }
    }

    /// Element `index` of little-endian bytes, at any alignment, widened.
    #[inline]
    fn get(self, bytes: &[u8], index: usize) -> f32 {
        let half_word = |bytes: &[u8]| u16::from_le_bytes([bytes[2 * index], bytes[2 * index + 1]]);
        match self {
            Self::F32 => {
                let b = &bytes[4 * index..4 * index + 4];
                f32::from_le_bytes([b[0], b[1], b[2], b[3]])
            }
            Self::Bf16 => bf16::from_bits(half_word(bytes)).to_f32(),
            Self::F16 => f16::from_bits(half_word(bytes)).to_f32(),
        }
    }

    /// All elements, widened.
    pub fn to_f32(self, bytes: &[u8]) -> impl Iterator<Item = f32> {
        (0..bytes.len() / self.bytes()).map(move |index| self.get(bytes, index))
    }

    /// Widens all elements into `out`, which has room for as many.
    ///
    /// # Panics
    /// When `out` has another length.
    pub fn widen(self, bytes: &[u8], out: &mut [f32]) {
        assert_eq!(bytes.len(), out.len() * self.bytes(), "room for each number");
        match self {
            Self::F32 => {
                for (out, &word) in out.iter_mut().zip(bytes.as_chunks().0) {
                    *out = f32::from_le_bytes(word);
                }
            }
            Self::Bf16 => {
                for (out, &word) in out.iter_mut().zip(bytes.as_chunks().0) {
                    *out = f32::from_bits(u32::from(u16::from_le_bytes(word)) << 16);
                }
            }
            Self::F16 => {
                let mut halves = [f16::ZERO; CHUNK];
                for (bytes, out) in bytes.chunks(2 * CHUNK).zip(out.chunks_mut(CHUNK)) {
                    let halves = &mut halves[..out.len()];
                    for (half, &word) in halves.iter_mut().zip(bytes.as_chunks().0) {
                        *half = f16::from_le_bytes(word);
                    }
                    halves.convert_to_f32_slice(out);
                }
            }
        }
    }

    /// Writes all values to `out`, rounded to this type.
    ///
    /// # Panics
    /// When `out` has another length than they take.
    pub fn narrow(self, values: &[f32], out: &mut [u8]) {
        assert_eq!(out.len(), values.len() * self.bytes(), "room for each number");
        match self {
            Self::F32 => {
                for (out, value) in out.as_chunks_mut().0.iter_mut().zip(values) {
                    *out = value.to_le_bytes();
                }
            }
            Self::Bf16 => {
                for (out, &value) in out.as_chunks_mut().0.iter_mut().zip(values) {
                    *out = bf16::from_f32(value).to_le_bytes();
                }
            }
            Self::F16 => {
                let mut halves = [f16::ZERO; CHUNK];
                for (values, out) in values.chunks(CHUNK).zip(out.chunks_mut(2 * CHUNK)) {
                    let halves = &mut halves[..values.len()];
                    halves.convert_from_f32_slice(values);
                    for (out, half) in out.as_chunks_mut().0.iter_mut().zip(halves) {
                        *out = half.to_le_bytes();
                    }
                }
            }
        }
    }

    /// Whether no element is NaN or infinite.
    pub fn all_finite(self, bytes: &[u8]) -> bool {
        // NaN and infinities have all bits of the exponent set.
        let all_halves = |exponent: u16| {
            let (words, _) = bytes.as_chunks::<2>();
            words.iter().fold(true, |all, &word| all & (u16::from_le_bytes(word) & exponent != exponent))
        };
        match self {
            Self::F32 => {
                let (words, _) = bytes.as_chunks::<4>();
                words.iter().fold(true, |all, &word| all & f32::from_le_bytes(word).is_finite())
            }
            Self::Bf16 => all_halves(0x7f80),
            Self::F16 => all_halves(0x7c00),
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

/// The arithmetic of matrix products. Sums are always in `float32`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ComputeDtype {
    /// Activations as they are, weights of any type widened.
    #[default]
    F32,
    /// Activations and weights rounded to `bfloat16`; their products are exact.
    Bf16,
    /// With quantized weights of a checkpoint, activations rounded to 8 bits in groups of 32; their products are exact.
    /// With other weights as [`ComputeDtype::F32`].
    Int8,
}

impl ComputeDtype {
    /// Its name: `float32`, `bfloat16` or `int8`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => DType::F32.name(),
            Self::Bf16 => DType::Bf16.name(),
            Self::Int8 => "int8",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_elements_are_converted_as_each_is() {
        let mut values: Vec<f32> =
            (0..600).map(|i| (i as f32 * 0.37).sin() * 2f32.powi(i % 60 - 30)).collect();
        values.extend([0.0, -0.0, f32::MAX, f32::INFINITY, 65_519.0, 65_520.0, 3.0e-8, 1.0e-40]);
        for dtype in [DType::F32, DType::Bf16, DType::F16] {
            for len in [0, 1, CHUNK, values.len()] {
                let values = &values[..len];
                let expected: Vec<u8> = values.iter().flat_map(|&value| dtype.to_le_bytes(value)).collect();
                let mut bytes = vec![0; expected.len()];
                dtype.narrow(values, &mut bytes);
                assert_eq!(bytes, expected, "{dtype}");
                let mut widened = vec![0.0; len];
                dtype.widen(&bytes, &mut widened);
                let expected = dtype.to_f32(&bytes).map(f32::to_bits);
                assert!(widened.into_iter().map(f32::to_bits).eq(expected), "{dtype}");
            }
        }
    }

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
                assert_eq!(dtype.all_finite(&bytes), is_finite, "{dtype} {value}");
            }
        }
    }

    #[test]
    fn elements_are_read_at_any_alignment_and_widened_exactly() {
        let mut bytes = vec![0xffu8];
        for value in [1.5f32, -2.25] {
            bytes.extend(bf16::from_f32(value).to_bits().to_le_bytes());
        }
        assert_eq!(DType::Bf16.to_f32(&bytes[1..]).collect::<Vec<_>>(), [1.5, -2.25]);
        let bytes: Vec<u8> = [0.1f32, 7.0].iter().flat_map(|value| value.to_le_bytes()).collect();
        assert_eq!((DType::F32.get(&bytes, 0), DType::F32.get(&bytes, 1)), (0.1, 7.0));
        let bytes = f16::from_f32(0.333).to_bits().to_le_bytes();
        assert_eq!(DType::F16.get(&bytes, 0), f16::from_f32(0.333).to_f32());
    }
}
