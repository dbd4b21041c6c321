//! The embedding matrix.

use super::linear::Linear;
use crate::loader::Loader;
use rsgen_core::error::Result;
use rsgen_core::types::TokenId;
use rsgen_kernels::tensor::DType;

/// The rows of the embedding matrix.
#[derive(Debug)]
pub(crate) enum Embedding {
    /// The rows of the language-model head, which is tied to the embedding.
    Tied,
    /// A copy of the stored matrix, `[vocab_size, hidden_size]`.
    Table { dtype: DType, bytes: Vec<u8> },
}

impl Embedding {
    /// Copies the matrix `weight` of this scope.
    pub(crate) fn load(loader: &Loader<'_>, vocab_size: usize, hidden_size: usize) -> Result<Self> {
        let (dtype, bytes) = loader.copy("weight", vocab_size, hidden_size)?;
        Ok(Self::Table { dtype, bytes })
    }

    /// Writes the embedding of a token to `out`, `[hidden_size]`.
    pub(crate) fn embed(&self, token: TokenId, head: &Linear, out: &mut [f32]) {
        match self {
            Self::Tied => head.row(token.index(), out),
            Self::Table { dtype, bytes } => {
                let width = out.len() * dtype.bytes();
                let bytes = &bytes[token.index() * width..][..width];
                for (out, value) in out.iter_mut().zip(dtype.to_f32(bytes)) {
                    *out = value;
                }
            }
        }
    }

    /// Adds a row to `out`, `[hidden_size]`.
    pub(crate) fn add(&self, row: usize, out: &mut [f32]) {
        if let Self::Table { dtype, bytes } = self {
            let width = out.len() * dtype.bytes();
            for (out, value) in out.iter_mut().zip(dtype.to_f32(&bytes[row * width..][..width])) {
                *out += value;
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
