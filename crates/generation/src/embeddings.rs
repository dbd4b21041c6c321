//! Embeddings in place of the tokens of a prompt: transformers' `inputs_embeds`.
//!
//! Their memory is shared: a prompt, its rows and the sequences that keep them for a recomputation have the
//! same one.

use std::ops::Deref;
use std::sync::Arc;

use rsgen_core::{Error, Result, memory};

/// The embeddings of a prompt, `[len, hidden_size]`: at least one, all finite.
#[derive(Clone)]
pub struct Embeddings {
    values: Arc<Vec<f32>>,
    hidden_size: usize,
}

impl Embeddings {
    /// Embeddings of `hidden_size` numbers each, one after the other.
    ///
    /// # Errors
    /// When there is none, the last one is incomplete, or a number is NaN or infinity.
    pub fn new(values: Vec<f32>, hidden_size: usize) -> Result<Self> {
        if hidden_size == 0 || values.is_empty() {
            return Err(Error::input(
                "must hold at least one embedding of at least one number, but is empty",
            )
            .about("inputs_embeds"));
        }
        if !values.len().is_multiple_of(hidden_size) {
            return Err(Error::input(format!(
                "must hold whole embeddings of {hidden_size} numbers each, but has {} numbers",
                values.len()
            ))
            .about("inputs_embeds"));
        }
        if let Some(at) = values.iter().position(|value| !value.is_finite()) {
            return Err(Error::input(format!(
                "must be finite in float32, but number {} of the embedding at position {} is {}",
                at % hidden_size,
                at / hidden_size,
                values[at]
            ))
            .about("inputs_embeds"));
        }
        Ok(Self { values: Arc::new(values), hidden_size })
    }

    /// The number of embeddings.
    #[expect(clippy::len_without_is_empty, reason = "there is at least one")]
    pub fn len(&self) -> usize {
        self.values.len() / self.hidden_size
    }

    /// The numbers of an embedding.
    pub fn hidden_size(&self) -> usize {
        self.hidden_size
    }

    /// The embedding at a position.
    ///
    /// # Panics
    /// When there is none.
    pub fn row(&self, position: usize) -> EmbeddingRow {
        assert!(position < self.len(), "there is an embedding at position {position}");
        EmbeddingRow { embeddings: self.clone(), position }
    }

    /// Those whose entry of `mask` is true.
    ///
    /// # Errors
    /// `Capacity` when there is no memory for them.
    pub(super) fn unmasked(&self, mask: &[bool]) -> Result<Self> {
        if !mask.contains(&false) {
            return Ok(self.clone());
        }
        let (real, mut values) = (mask.iter().filter(|&&real| real).count(), Vec::new());
        memory::reserve(&mut values, real * self.hidden_size, "numbers of embeddings")?;
        let rows = self.values.chunks_exact(self.hidden_size).zip(mask);
        rows.filter(|(_, real)| **real).for_each(|(row, _)| values.extend_from_slice(row));
        Ok(Self { values: Arc::new(values), hidden_size: self.hidden_size })
    }
}

/// Equal bit for bit.
impl PartialEq for Embeddings {
    fn eq(&self, other: &Self) -> bool {
        let bits =
            |embeddings: &Self| embeddings.values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        self.hidden_size == other.hidden_size
            && (Arc::ptr_eq(&self.values, &other.values) || bits(self) == bits(other))
    }
}

impl Eq for Embeddings {}

impl std::fmt::Debug for Embeddings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Embeddings([{}, {}])", self.len(), self.hidden_size)
    }
}

/// An embedding of a prompt: derefs to its numbers, `[hidden_size]`.
#[derive(Clone, PartialEq, Eq)]
pub struct EmbeddingRow {
    embeddings: Embeddings,
    position: usize,
}

impl Deref for EmbeddingRow {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        let Embeddings { values, hidden_size } = &self.embeddings;
        &values[self.position * hidden_size..][..*hidden_size]
    }
}

impl std::fmt::Debug for EmbeddingRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EmbeddingRow({} of {:?})", self.position, self.embeddings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_share_the_memory_of_their_prompt() {
        let embeddings = Embeddings::new(vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 2).unwrap();
        assert_eq!(embeddings.len(), 3);
        assert_eq!(&*embeddings.row(1), [3.0, 4.0]);
        let some = embeddings.unmasked(&[false, true, true]).unwrap();
        assert_eq!((&*some.row(0), some.len()), (&[3.0, 4.0][..], 2));
        let all = embeddings.unmasked(&[true; 3]).unwrap();
        assert!(Arc::ptr_eq(&all.values, &embeddings.values));
        assert_ne!(some, embeddings);
    }

    #[test]
    fn numbers_that_no_model_can_take_are_named_with_their_place() {
        let message = |values: &[f32], size| Embeddings::new(values.to_vec(), size).unwrap_err().to_string();
        assert!(message(&[], 2).contains("at least one embedding"));
        assert!(message(&[1.0], 0).contains("at least one number"));
        assert!(message(&[1.0, 2.0, 3.0], 2).contains("has 3 numbers"));
        assert!(
            message(&[1.0, 2.0, 3.0, f32::NAN], 2).contains("number 1 of the embedding at position 1 is NaN")
        );
        assert!(message(&[f32::INFINITY], 1).contains("is inf"));
    }
}
