//! The embedding matrix.

use super::linear::Linear;
use crate::loader::Loader;
use rsgen_core::error::Result;
use rsgen_core::types::TokenId;
use rsgen_kernels::Pages;
use rsgen_kernels::tensor::{DType, Encoding};

/// The rows of the embedding matrix.
#[derive(Debug)]
pub(crate) enum Embedding {
    /// The rows of the language-model head, which is tied to the embedding.
    Tied,
    /// A copy of the stored matrix, `[vocab_size, hidden_size]`.
    Table { encoding: Encoding, bytes: Pages<u8> },
}

impl Embedding {
    /// Copies the matrix `weight` of this scope.
    pub(crate) fn load(loader: &Loader<'_>, vocab_size: usize, hidden_size: usize) -> Result<Self> {
        let (encoding, bytes) = loader.copy("weight", vocab_size, hidden_size)?;
        Ok(Self::Table { encoding, bytes })
    }

    /// A table of numbers.
    pub(crate) fn of(values: &[f32]) -> Self {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Self::Table { encoding: DType::F32.into(), bytes: bytes.into() }
    }

    /// Writes the embedding of a token to `out`, `[hidden_size]`.
    pub(crate) fn embed(&self, token: TokenId, head: &Linear, out: &mut [f32]) {
        match self {
            Self::Tied => head.row(token.index(), out),
            Self::Table { encoding, bytes } => {
                let width = out.len() / encoding.elements() * encoding.unit_bytes();
                encoding.decode(&bytes[token.index() * width..][..width], out);
            }
        }
    }

    /// Adds a row to `out`, `[hidden_size]`.
    pub(crate) fn add(&self, row: usize, out: &mut [f32]) {
        let Self::Table { encoding, bytes } = self else { return };
        let width = out.len() / encoding.elements() * encoding.unit_bytes();
        let bytes = &bytes[row * width..][..width];
        match encoding {
            Encoding::Plain(dtype) => {
                out.iter_mut().zip(dtype.to_f32(bytes)).for_each(|(out, value)| *out += value);
            }
            Encoding::Blocks(_) | Encoding::Indexed(_) => {
                let mut values = vec![0.0; out.len()];
                encoding.decode(bytes, &mut values);
                out.iter_mut().zip(values).for_each(|(out, value)| *out += value);
            }
        }
    }

    /// The memory it takes beyond the head's, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Tied => 0,
            Self::Table { bytes, .. } => bytes.len(),
        }
    }
}
