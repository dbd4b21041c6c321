//! Loads the tensors of layers: a scope of the checkpoint, and how its tensors are packed.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::weights::WeightScope;
use rsgen_core::error::{Error, Result, ResultExt};
use rsgen_core::sync::Mutex;
use rsgen_kernels::Workers;
use rsgen_kernels::quant::{PackedMatrix, RowOrder};
use rsgen_kernels::tensor::{ComputeDtype, DType, StoredMatrix, WeightType, not_finite};

/// Bytes that a thread reads at a time, in the type that weights are kept in.
const CHUNK_BYTES: usize = 1 << 18;

/// Called with the bytes of the checkpoint that have been packed.
pub type LoadProgress<'a> = dyn Fn(u64) + 'a;

/// A scope of the checkpoint, such as `model.layers.3.self_attn`.
#[derive(Clone)]
pub struct Loader<'a> {
    scope: WeightScope<'a>,
    shared: &'a LoaderOptions<'a>,
    /// The type of matrices in memory; `None` keeps the stored type.
    weights: Option<WeightType>,
}

/// The options that all scopes share.
pub struct LoaderOptions<'a> {
    /// The threads that pack.
    pub workers: &'a Workers,
    /// The type of matrices in memory; `None` keeps the stored type.
    pub weights: Option<WeightType>,
    /// The arithmetic that the matrices are packed for.
    pub compute: ComputeDtype,
    /// Called after each tensor.
    pub progress: &'a LoadProgress<'a>,
    /// Set to end loading, in the middle of a matrix as well.
    pub cancelled: &'a AtomicBool,
    /// Whether the checkpoint holds packed matrices, of type `weights`.
    pub is_packed: bool,
    /// The matrices, tensor names and warnings of the load.
    pub loaded: RefCell<Loaded>,
    /// The bytes that have been packed.
    pub done: Cell<u64>,
}

/// The matrices, tensor names and warnings of the load.
#[derive(Default)]
pub struct Loaded {
    /// Packed matrices and the names of their parts.
    pub matrices: Vec<(Vec<String>, PackedMatrix)>,
    /// The names of all other tensors.
    pub tensors: Vec<String>,
    /// Warnings about the checkpoint.
    pub warnings: Vec<String>,
}

impl<'a> Loader<'a> {
    /// The root of the tensors.
    pub fn new(scope: WeightScope<'a>, shared: &'a LoaderOptions<'a>) -> Self {
        Self { scope, shared, weights: shared.weights }
    }

    /// The scope `name` below this one.
    #[must_use]
    pub(super) fn child(&self, name: &str) -> Self {
        Self { scope: self.scope.child(name), ..self.clone() }
    }

    /// The scope of an element of a list, such as a layer.
    #[must_use]
    pub(super) fn index(&self, index: usize) -> Self {
        Self { scope: self.scope.index(index), ..self.clone() }
    }

    /// The same scope for the language-model head.
    #[must_use]
    pub(super) fn for_head(&self) -> Self {
        Self { weights: self.weights.map(WeightType::of_head), ..self.clone() }
    }

    /// Keeps a warning for the caller.
    pub(super) fn warn(&self, warning: String) {
        self.shared.loaded.borrow_mut().warnings.push(warning);
    }

    /// Whether there is a tensor of this name.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.scope.contains(name)
    }

    /// The arithmetic that the matrices are packed for.
    pub(super) fn compute(&self) -> ComputeDtype {
        self.shared.compute
    }

    /// A vector of `len` elements: a norm's weights or a projection's biases.
    pub(super) fn vector(&self, name: &str, len: usize) -> Result<Vec<f32>> {
        let tensor = self.scope.tensor(name, &[len])?;
        let stored = StoredMatrix {
            dtype: tensor.dtype,
            num_rows: 1,
            num_columns: len,
            bytes: tensor.bytes,
            cancelled: None,
        };
        let values = stored.to_f32().context(|| tensor.name.to_owned())?;
        if values.iter().any(|value| !value.is_finite()) {
            return Err(not_finite().context(tensor.name));
        }
        self.note_tensor(tensor.name);
        self.count(stored)?;
        Ok(values.into_iter().map(|value| self.round(value)).collect())
    }

    /// The matrix `weight` of each of `parts` (a name and a number of rows), packed as one.
    pub(super) fn pack(
        &self,
        parts: &[(&str, usize)],
        order: RowOrder,
        num_columns: usize,
    ) -> Result<PackedMatrix> {
        let full_name = |&(name, _): &(&str, usize)| self.child(name).scope.full_name("weight");
        if self.shared.is_packed {
            let names: Vec<_> = parts.iter().map(full_name).collect();
            let num_rows = parts.iter().map(|&(_, num_rows)| num_rows).sum();
            return self.read_packed(&names, order.num_outputs(num_rows), num_columns);
        }
        let mut stored = Vec::with_capacity(parts.len());
        for &(name, num_rows) in parts {
            stored.push(self.child(name).stored("weight", num_rows, num_columns)?);
        }
        // The parts were packed as one matrix; find the damaged one for the error.
        let damaged_part = || {
            let damaged = stored.iter().position(|part| self.read(part).is_err()).unwrap_or(0);
            self.child(parts[damaged].0).scope.full_name("weight")
        };
        let packed = {
            let LoaderOptions { workers, compute, .. } = *self.shared;
            PackedMatrix::pack(workers, &stored, order, self.weights, compute).context(damaged_part)?
        };
        stored.into_iter().try_for_each(|part| self.count(part))?;
        let names = parts.iter().map(full_name).collect();
        self.shared.loaded.borrow_mut().matrices.push((names, packed.clone()));
        Ok(packed)
    }

    /// The packed matrix of these tensors.
    fn read_packed(&self, names: &[String], num_outputs: usize, num_inputs: usize) -> Result<PackedMatrix> {
        let LoaderOptions { workers, cancelled, .. } = *self.shared;
        let kind = self.weights.ok_or_else(|| Error::internal("a packed model has a type"))?;
        let shape = PackedMatrix::file_shape(kind, num_outputs, num_inputs)
            .ok_or_else(|| Error::internal(format!("no packed file holds {kind}")))?;
        let bytes = self.scope.packed_matrix(names, shape)?;
        let matrix = PackedMatrix::read(workers, kind, num_outputs, num_inputs, bytes, cancelled)
            .context(|| names.join("+"))?;
        self.count_bytes(bytes.len())?;
        Ok(matrix)
    }

    fn note_tensor(&self, name: &str) {
        self.shared.loaded.borrow_mut().tensors.push(name.to_owned());
    }

    /// A copy of the matrix of this name, in the type that weights are kept in.
    pub(super) fn copy(&self, name: &str, num_rows: usize, num_columns: usize) -> Result<(DType, Vec<u8>)> {
        let stored = self.stored(name, num_rows, num_columns)?;
        let read = self.read(&stored).context(|| self.scope.full_name(name))?;
        self.note_tensor(&self.scope.full_name(name));
        self.count(stored)?;
        Ok(read)
    }

    /// Whether the matrices `weight` of two scopes are equal in the type that weights are kept in.
    pub(super) fn equal(&self, scopes: [&str; 2], num_rows: usize, num_columns: usize) -> Result<bool> {
        if self.shared.is_packed {
            return Ok(false);
        }
        let [one, other] = scopes.map(|scope| self.child(scope).stored("weight", num_rows, num_columns));
        let (one, other) = (one?, other?);
        if one.dtype == other.dtype && one.bytes.is_same(&other.bytes) {
            return Ok(true);
        }
        let stored = if one.dtype == other.dtype { one.dtype } else { DType::F32 };
        let dtype = self.float().unwrap_or(stored);
        let chunk_len = CHUNK_BYTES / dtype.bytes();
        let equal = Mutex::new(Ok(true));
        self.shared.workers.run(one.len().div_ceil(chunk_len), &|chunk| {
            if !matches!(*equal.lock(), Ok(true)) {
                return;
            }
            let elements = chunk * chunk_len..one.len().min((chunk + 1) * chunk_len);
            let read = |matrix: &StoredMatrix<'_>| {
                let mut bytes = vec![0; elements.len() * dtype.bytes()];
                matrix.read(elements.clone(), dtype, &mut bytes).map(|()| bytes)
            };
            let same = read(&one).and_then(|bytes| Ok(bytes == read(&other)?));
            if !matches!(same, Ok(true)) {
                *equal.lock() = same;
            }
        });
        let mut equal = equal.lock();
        std::mem::replace(&mut *equal, Ok(false))
    }

    fn stored(&self, name: &str, num_rows: usize, num_columns: usize) -> Result<StoredMatrix<'a>> {
        let tensor = self.scope.tensor(name, &[num_rows, num_columns])?;
        let cancelled = Some(self.shared.cancelled);
        Ok(StoredMatrix { dtype: tensor.dtype, num_rows, num_columns, bytes: tensor.bytes, cancelled })
    }

    /// Reads a matrix in the type that weights are kept in, on all threads.
    fn read(&self, matrix: &StoredMatrix<'_>) -> Result<(DType, Vec<u8>)> {
        let dtype = self.float().unwrap_or(matrix.dtype);
        let size = dtype.bytes();
        let bytes = self.shared.workers.filled(matrix.len() * size, CHUNK_BYTES, |chunk, out| {
            let first = chunk * CHUNK_BYTES / size;
            matrix.read(first..first + out.len() / size, dtype, out)?;
            if dtype.all_finite(out) { Ok(()) } else { Err(not_finite()) }
        })?;
        Ok((dtype, bytes))
    }

    fn round(&self, value: f32) -> f32 {
        self.float().map_or(value, |dtype| dtype.round(value))
    }

    /// The type that vectors and embeddings are rounded to; `None` keeps them as they are stored.
    fn float(&self) -> Option<DType> {
        self.weights.and_then(WeightType::float)
    }

    /// Counts a tensor as loaded.
    fn count(&self, tensor: StoredMatrix<'_>) -> Result<()> {
        self.count_bytes(tensor.bytes.len())
    }

    fn count_bytes(&self, bytes: usize) -> Result<()> {
        let shared = self.shared;
        shared.done.set(shared.done.get() + bytes as u64);
        (shared.progress)(shared.done.get());
        if shared.cancelled.load(Ordering::Relaxed) { Err(Error::cancelled()) } else { Ok(()) }
    }
}
