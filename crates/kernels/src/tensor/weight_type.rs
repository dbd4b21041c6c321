//! The type of a model's matrices in memory.

use std::fmt;
use std::str::FromStr;

use super::DType;
use rsgen_core::{Error, Result};

/// The type of a model's matrices in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WeightType {
    /// Floating-point numbers of that type; vectors and embeddings are rounded to it as well.
    Float(DType),
    /// 8-bit integers in groups of 64 with a scale each: 8.25 bits a weight. Activations are rounded to 8
    /// bits.
    Int8,
    /// 4-bit integers in groups of 32 with a scale each: 4.5 bits a weight. Activations are rounded to 8
    /// bits. The head, and with it an embedding that is tied to it, is as with [`WeightType::Int8`].
    Int4,
}

impl WeightType {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Float(DType::F32), Self::Float(DType::Bf16), Self::Float(DType::F16), Self::Int8, Self::Int4];

    /// The type that vectors and embeddings are rounded to; `None` keeps them as they are stored.
    pub const fn float(self) -> Option<DType> {
        match self {
            Self::Float(dtype) => Some(dtype),
            Self::Int8 | Self::Int4 => None,
        }
    }

    /// The type of the language-model head: the part of a model that suffers most from few bits.
    #[must_use]
    pub const fn of_head(self) -> Self {
        match self {
            Self::Int4 => Self::Int8,
            other => other,
        }
    }

    /// The memory that this many weights take, in bytes, padding aside.
    pub const fn bytes_of(self, weights: u64) -> u64 {
        match self {
            Self::Float(dtype) => weights.saturating_mul(dtype.bytes() as u64),
            Self::Int8 => weights.saturating_add(weights / 32),
            Self::Int4 => (weights / 2).saturating_add(weights / 16),
        }
    }

    /// The name: that of transformers for a floating-point type, or `int8` or `int4`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Float(dtype) => dtype.name(),
            Self::Int8 => "int8",
            Self::Int4 => "int4",
        }
    }
}

impl From<DType> for WeightType {
    fn from(dtype: DType) -> Self {
        Self::Float(dtype)
    }
}

impl FromStr for WeightType {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(|dtype| format!("\"{dtype}\"")).join(", ");
            Error::config(format!("must be one of {names}, got {name:?}")).about("dtype")
        })
    }
}

impl fmt::Display for WeightType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stands_for_its_type() {
        for dtype in WeightType::ALL {
            assert_eq!(dtype.name().parse::<WeightType>().unwrap(), dtype);
        }
        let error = "int3".parse::<WeightType>().unwrap_err().to_string();
        assert!(error.contains("\"int4\"") && error.contains("got \"int3\""), "{error}");
    }

    #[test]
    fn memory_is_counted_in_bits() {
        let bits = |dtype: WeightType| dtype.bytes_of(1 << 20) as f64 * 8.0 / f64::from(1 << 20);
        assert_eq!(WeightType::ALL.map(bits), [32.0, 16.0, 16.0, 8.25, 4.5]);
    }
}
