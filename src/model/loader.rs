//! What the layers of a model load themselves from: a place in the checkpoint, and the way to pack what is there.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result, ResultExt};
use crate::kernels::Workers;
use crate::quant::{PackedMatrix, RowOrder};
use crate::tensor::{ComputeDtype, DType, StoredMatrix};
use crate::weights::WeightScope;

/// What one thread copies or looks through in one go.
const CHUNK_BYTES: usize = 1 << 18;

/// Told how many bytes of the checkpoint have been packed.
pub type LoadProgress<'a> = dyn Fn(u64) + 'a;

/// A place in the checkpoint.
#[derive(Clone)]
pub struct Loader<'a> {
    scope: WeightScope<'a>,
    shared: &'a LoaderOptions<'a>,
}

/// What holds for every place.
pub struct LoaderOptions<'a> {
    /// The threads that pack.
    pub workers: &'a Workers,
    /// The type that weights are rounded to; `None` keeps them as they are stored.
    pub dtype: Option<DType>,
    /// The arithmetic that the matrices are packed for.
    pub compute: ComputeDtype,
    /// Told after each tensor.
    pub progress: &'a LoadProgress<'a>,
    /// Ends the loading after the tensor at hand.
    pub given_up: &'a AtomicBool,
    /// The bytes that have been packed.
    pub done: Cell<u64>,
}

impl<'a> Loader<'a> {
    /// The root of the tensors.
    pub fn new(scope: WeightScope<'a>, shared: &'a LoaderOptions<'a>) -> Self {
        Self { scope, shared }
    }

    /// The place below this one.
    #[must_use]
    pub(super) fn child(&self, name: &str) -> Self {
        Self { scope: self.scope.child(name), ..*self }
    }

    /// The place of an element of a list, such as a layer.
    #[must_use]
    pub(super) fn index(&self, index: usize) -> Self {
        Self { scope: self.scope.index(index), ..*self }
    }

    /// The arithmetic that the matrices are packed for.
    pub(super) fn compute(&self) -> ComputeDtype {
        self.shared.compute
    }

    /// A vector of `len` elements: a norm's weights or a projection's biases.
    pub(super) fn vector(&self, name: &str, len: usize) -> Result<Vec<f32>> {
        let tensor = self.scope.tensor(name, &[len])?;
        let stored = StoredMatrix { dtype: tensor.dtype, num_rows: 1, num_columns: len, bytes: tensor.bytes };
        let values = stored.to_f32();
        if values.iter().any(|value| !value.is_finite()) {
            return Err(not_finite().context(tensor.name));
        }
        self.count(tensor.bytes)?;
        Ok(values.into_iter().map(|value| self.round(value)).collect())
    }

    /// The matrix `weight` of each of `parts` (a name and a number of rows), packed as one.
    pub(super) fn pack(
        &self,
        parts: &[(&str, usize)],
        order: RowOrder,
        num_columns: usize,
    ) -> Result<PackedMatrix> {
        let mut stored = Vec::with_capacity(parts.len());
        for &(name, num_rows) in parts {
            stored.push(self.child(name).stored("weight", num_rows, num_columns)?);
        }
        // The matrix was packed as one; the damaged part is looked for only when there is one.
        let place = || {
            let damaged = stored.iter().position(|part| !self.is_finite(part)).unwrap_or(0);
            self.child(parts[damaged].0).scope.full_name("weight")
        };
        let packed = {
            let LoaderOptions { workers, dtype, compute, .. } = *self.shared;
            PackedMatrix::pack(workers, &stored, order, dtype, compute).context(place)?
        };
        for part in &stored {
            self.scope.release(part.bytes);
            self.count(part.bytes)?;
        }
        Ok(packed)
    }

    /// A copy of the matrix of this name, in the type that weights are kept in.
    pub(super) fn copy(&self, name: &str, num_rows: usize, num_columns: usize) -> Result<(DType, Vec<u8>)> {
        let stored = self.stored(name, num_rows, num_columns)?;
        if !self.is_finite(&stored) {
            return Err(not_finite().context(self.scope.full_name(name)));
        }
        let (dtype, bytes) = match self.shared.dtype.filter(|&dtype| dtype != stored.dtype) {
            None => (stored.dtype, self.shared.workers.copied(stored.bytes, CHUNK_BYTES)),
            Some(dtype) => {
                (dtype, stored.to_f32().into_iter().flat_map(|value| dtype.to_le_bytes(value)).collect())
            }
        };
        self.scope.release(stored.bytes);
        self.count(stored.bytes)?;
        Ok((dtype, bytes))
    }

    fn stored(&self, name: &str, num_rows: usize, num_columns: usize) -> Result<StoredMatrix<'a>> {
        let tensor = self.scope.tensor(name, &[num_rows, num_columns])?;
        Ok(StoredMatrix { dtype: tensor.dtype, num_rows, num_columns, bytes: tensor.bytes })
    }

    /// Whether every weight is a number in the type that weights are kept in.
    fn is_finite(&self, matrix: &StoredMatrix<'_>) -> bool {
        let all_finite = AtomicBool::new(true);
        let rows = (CHUNK_BYTES / (matrix.num_columns * matrix.dtype.bytes()).max(1)).max(1);
        let LoaderOptions { workers, dtype, .. } = *self.shared;
        let rounded = dtype.filter(|&dtype| dtype != matrix.dtype);
        workers.run(matrix.num_rows.div_ceil(rows), &|chunk| {
            let part = matrix.rows(chunk * rows..(chunk + 1) * rows);
            let finite = match rounded {
                None => part.is_finite(),
                Some(dtype) => part.to_f32().iter().all(|&value| dtype.round(value).is_finite()),
            };
            if !finite {
                all_finite.store(false, Ordering::Relaxed);
            }
        });
        all_finite.into_inner()
    }

    fn round(&self, value: f32) -> f32 {
        self.shared.dtype.map_or(value, |dtype| dtype.round(value))
    }

    /// Counts a tensor that is ready.
    fn count(&self, bytes: &[u8]) -> Result<()> {
        let shared = self.shared;
        shared.done.set(shared.done.get() + bytes.len() as u64);
        (shared.progress)(shared.done.get());
        if shared.given_up.load(Ordering::Relaxed) { Err(Error::cancelled()) } else { Ok(()) }
    }
}

#[cold]
fn not_finite() -> Error {
    Error::load(
        "the weights must be finite, but there is a NaN or an infinity; the file is damaged, download it again",
    )
}
