//! Loads the tensors of layers: a scope of the checkpoint, and how its tensors are packed.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::weights::WeightScope;
use std::ops::Range;

use rsgen_core::error::{Error, Result, ResultExt};
use rsgen_core::escape;
use rsgen_core::sync::Mutex;
use rsgen_kernels::quant::{PackedMatrix, RowOrder};
use rsgen_kernels::tensor::{
    ComputeDtype, DType, Encoding, StoredBytes, StoredMatrix, WeightType, not_finite,
};
use rsgen_kernels::{Pages, Workers};

/// Bytes that a thread reads at a time, in the type that weights are kept in.
const CHUNK_BYTES: usize = 1 << 18;

/// Called with the bytes of the checkpoint that have been packed.
pub type LoadProgress<'a> = dyn Fn(u64) + 'a;

/// A matrix of the checkpoint, or one of a stack of them, and its biases.
#[derive(Clone)]
pub(super) struct Part {
    /// The name of its tensor, below the loader's scope.
    pub(super) weight: String,
    /// The name of its biases.
    pub(super) bias: String,
    pub(super) num_outputs: usize,
    /// Whether it is stored `[num_inputs, num_outputs]`.
    pub(super) is_transposed: bool,
    /// Its place in a stack, and the height of that.
    pub(super) place: Option<(usize, usize)>,
}

impl Part {
    /// `NAME.weight` and `NAME.bias`.
    pub(super) fn new(name: &str, num_outputs: usize) -> Self {
        Self {
            weight: format!("{name}.weight"),
            bias: format!("{name}.bias"),
            num_outputs,
            is_transposed: false,
            place: None,
        }
    }
}

/// A matrix as it is read: a transposed one is a copy.
struct Read<'a> {
    encoding: Encoding,
    num_rows: usize,
    num_columns: usize,
    bytes: ReadBytes<'a>,
}

enum ReadBytes<'a> {
    Stored(StoredBytes<'a>),
    Copied(Pages<u8>),
}

impl Read<'_> {
    fn matrix<'b>(&'b self, cancelled: &'b AtomicBool) -> StoredMatrix<'b> {
        let Self { encoding, num_rows, num_columns, ref bytes } = *self;
        let bytes = match bytes {
            ReadBytes::Stored(bytes) => *bytes,
            ReadBytes::Copied(bytes) => (&bytes[..]).into(),
        };
        StoredMatrix { encoding, num_rows, num_columns, bytes, cancelled: Some(cancelled) }
    }
}

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
    pub tensors: BTreeSet<String>,
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

    /// Whether any tensor's name begins with this, or a part of a packed matrix.
    pub(super) fn has_any(&self, prefix: &str) -> bool {
        self.scope.has_any(prefix)
    }

    /// The numbers of a tensor: a norm's weights or a projection's biases.
    pub(super) fn floats(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
        let tensor = self.scope.tensor(name, shape)?;
        self.read_floats(tensor.name, tensor.row(), 0..shape.iter().product())
    }

    /// The biases of a part.
    pub(super) fn bias(&self, part: &Part) -> Result<Vec<f32>> {
        let Some((place, count)) = part.place else { return self.floats(&part.bias, &[part.num_outputs]) };
        let tensor = self.scope.tensor(&part.bias, &[count, part.num_outputs])?;
        let elements = place * part.num_outputs..(place + 1) * part.num_outputs;
        self.read_floats(tensor.name, tensor.row(), elements)
    }

    fn read_floats(&self, name: &str, stored: StoredMatrix<'_>, elements: Range<usize>) -> Result<Vec<f32>> {
        let mut values = vec![0.0; elements.len()];
        stored.read_f32(elements, &mut values).context(|| name.to_owned())?;
        if values.iter().any(|value| !value.is_finite()) {
            return Err(not_finite().context(name));
        }
        self.note_tensor(name);
        self.count_bytes(stored.bytes.len() * values.len() / stored.len().max(1))?;
        Ok(values.into_iter().map(|value| self.round(value)).collect())
    }

    /// A small matrix, in float32 whatever the others are.
    pub(super) fn pack_float(&self, name: &str, num_rows: usize, num_columns: usize) -> Result<PackedMatrix> {
        let values = self.floats(name, &[num_rows, num_columns])?;
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let bytes = (&bytes[..]).into();
        let encoding = DType::F32.into();
        let stored = StoredMatrix { encoding, num_rows, num_columns, bytes, cancelled: None };
        PackedMatrix::pack(self.shared.workers, &[stored], RowOrder::Stacked, None, ComputeDtype::F32)
    }

    /// Matrices with the same inputs, packed as one.
    pub(super) fn pack(&self, parts: &[Part], order: RowOrder, num_columns: usize) -> Result<PackedMatrix> {
        let name = |part: &Part| {
            let name = self.scope.full_name(&part.weight);
            part.place.map_or_else(|| name.clone(), |(place, _)| format!("{name}.{place}"))
        };
        let names: Vec<_> = parts.iter().map(name).collect();
        if self.shared.is_packed {
            let num_rows = parts.iter().map(|part| part.num_outputs).sum();
            return self.read_packed(&names, order.num_outputs(num_rows), num_columns);
        }
        let LoaderOptions { workers, compute, cancelled, .. } = *self.shared;
        let read = parts.iter().map(|part| self.stored(part, num_columns)).collect::<Result<Vec<_>>>()?;
        let stored: Vec<_> = read.iter().map(|read| read.matrix(cancelled)).collect();
        // The parts were packed as one matrix; find the damaged one for the error.
        let damaged_part = || {
            let damaged = stored.iter().position(|part| self.read(part).is_err()).unwrap_or(0);
            names[damaged].clone()
        };
        let packed =
            PackedMatrix::pack(workers, &stored, order, self.weights, compute).context(damaged_part)?;
        stored.iter().try_for_each(|part| self.count_bytes(part.bytes.len()))?;
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
        self.shared.loaded.borrow_mut().tensors.insert(name.to_owned());
    }

    /// A copy of the matrix of this name, in the type that weights are kept in.
    pub(super) fn copy(
        &self,
        name: &str,
        num_rows: usize,
        num_columns: usize,
    ) -> Result<(Encoding, Pages<u8>)> {
        let part = Part { weight: name.to_owned(), ..Part::new("", num_rows) };
        let stored = self.stored(&part, num_columns)?;
        let stored = stored.matrix(self.shared.cancelled);
        let read = self.read(&stored).context(|| self.scope.full_name(name))?;
        self.note_tensor(&self.scope.full_name(name));
        self.count_bytes(stored.bytes.len())?;
        Ok(read)
    }

    /// The full name of a tensor here.
    pub(super) fn full_name(&self, name: &str) -> String {
        self.scope.full_name(name)
    }

    /// Whether two matrices `NAME.weight` are equal in the type that weights are kept in.
    pub(super) fn equal(matrices: [(&Self, &str); 2], num_rows: usize, num_columns: usize) -> Result<bool> {
        let this = matrices[0].0;
        if this.shared.is_packed {
            return Ok(false);
        }
        let [one, other] =
            matrices.map(|(scope, name)| scope.stored(&Part::new(name, num_rows), num_columns));
        let (one, other) = (one?, other?);
        let (one, other) = (one.matrix(this.shared.cancelled), other.matrix(this.shared.cancelled));
        let stored = if one.encoding == other.encoding { one.encoding } else { DType::F32.into() };
        if one.encoding == other.encoding && one.bytes.is_same(&other.bytes) {
            return Ok(true);
        }
        let encoding = this.float().map_or(stored, Encoding::Plain);
        let chunk_len = chunk_elements(encoding);
        let equal = Mutex::new(Ok(true));
        this.shared.workers.run(one.len().div_ceil(chunk_len), &|chunk| {
            if !matches!(*equal.lock(), Ok(true)) {
                return;
            }
            let elements = chunk * chunk_len..one.len().min((chunk + 1) * chunk_len);
            let read = |matrix: &StoredMatrix<'_>| {
                let mut bytes = vec![0; elements.len() / encoding.elements() * encoding.unit_bytes()];
                matrix.read(elements.clone(), encoding, &mut bytes).map(|()| bytes)
            };
            let same = read(&one).and_then(|bytes| Ok(bytes == read(&other)?));
            if !matches!(same, Ok(true)) {
                *equal.lock() = same;
            }
        });
        let mut equal = equal.lock();
        std::mem::replace(&mut *equal, Ok(false))
    }

    fn stored(&self, part: &Part, num_columns: usize) -> Result<Read<'a>> {
        let num_rows = part.num_outputs;
        let is_transposed = part.is_transposed && !self.scope.is_transposed(&part.weight)?;
        let [first, second] = if is_transposed { [num_columns, num_rows] } else { [num_rows, num_columns] };
        let shape: Vec<_> = part.place.iter().map(|&(_, count)| count).chain([first, second]).collect();
        let tensor = self.scope.tensor(&part.weight, &shape)?;
        let encoding = tensor.encoding;
        if !second.is_multiple_of(encoding.elements()) {
            return Err(Error::load(format!(
                "{}: rows of {second} numbers are no whole blocks of {}, as {encoding} has them; the file is damaged, \
                 download it again",
                escape::name(tensor.name),
                encoding.elements()
            )));
        }
        let len = num_rows * num_columns / encoding.elements() * encoding.unit_bytes();
        let bytes =
            part.place.map_or(tensor.bytes, |(place, _)| tensor.bytes.part(place * len..(place + 1) * len));
        let (encoding, bytes) = match encoding {
            Encoding::Plain(dtype) if is_transposed => {
                (encoding, ReadBytes::Copied(self.transposed(&bytes.to_vec()?, num_rows, dtype)?))
            }
            // The columns of blocks are no blocks.
            Encoding::Blocks(_) | Encoding::Indexed(_) if is_transposed => {
                let cancelled = Some(self.shared.cancelled);
                let matrix =
                    StoredMatrix { encoding, num_rows: first, num_columns: second, bytes, cancelled };
                let floats: Vec<u8> = matrix.to_f32()?.into_iter().flat_map(f32::to_le_bytes).collect();
                (DType::F32.into(), ReadBytes::Copied(self.transposed(&floats, num_rows, DType::F32)?))
            }
            _ => (encoding, ReadBytes::Stored(bytes)),
        };
        Ok(Read { encoding, num_rows, num_columns, bytes })
    }

    /// Reads a matrix in the type that weights are kept in, on all threads.
    fn read(&self, matrix: &StoredMatrix<'_>) -> Result<(Encoding, Pages<u8>)> {
        let encoding = self.float().map_or(matrix.encoding, Encoding::Plain);
        let (unit, size, chunk_len) = (encoding.elements(), encoding.unit_bytes(), chunk_elements(encoding));
        let num_bytes = matrix.len() / unit * size;
        let bytes = self.shared.workers.filled(num_bytes, chunk_len / unit * size, |chunk, out| {
            let first = chunk * chunk_len;
            matrix.read(first..first + out.len() / size * unit, encoding, out)?;
            if encoding.all_finite(out) { Ok(()) } else { Err(not_finite()) }
        })?;
        Ok((encoding, bytes))
    }

    /// A matrix whose rows become columns: numbers of type `dtype`, `num_columns` to a row.
    fn transposed(&self, matrix: &[u8], num_columns: usize, dtype: DType) -> Result<Pages<u8>> {
        let workers = self.shared.workers;
        match dtype {
            DType::F32 => transposed(workers, matrix.as_chunks::<4>().0, num_columns),
            DType::Bf16 | DType::F16 => transposed(workers, matrix.as_chunks::<2>().0, num_columns),
        }
    }

    fn round(&self, value: f32) -> f32 {
        self.float().map_or(value, |dtype| dtype.round(value))
    }

    /// The type that vectors and embeddings are rounded to; `None` keeps them as they are stored.
    fn float(&self) -> Option<DType> {
        self.weights.and_then(WeightType::float)
    }

    fn count_bytes(&self, bytes: usize) -> Result<()> {
        let shared = self.shared;
        shared.done.set(shared.done.get() + bytes as u64);
        (shared.progress)(shared.done.get());
        if shared.cancelled.load(Ordering::Relaxed) { Err(Error::cancelled()) } else { Ok(()) }
    }
}

/// The elements that a thread reads at a time: whole blocks.
fn chunk_elements(encoding: Encoding) -> usize {
    (CHUNK_BYTES / encoding.unit_bytes()).max(1) * encoding.elements()
}

/// A matrix whose rows become columns, `num_columns` to a row, on all threads.
fn transposed<const SIZE: usize>(
    workers: &Workers,
    matrix: &[[u8; SIZE]],
    num_columns: usize,
) -> Result<Pages<u8>> {
    // A block of so many rows and columns stays in the cache while it is turned.
    const BLOCK: usize = 32;
    let num_rows = matrix.len() / num_columns;
    workers.filled(matrix.len() * SIZE, BLOCK * num_rows * SIZE, |chunk, out| {
        let (out, _) = out.as_chunks_mut::<SIZE>();
        for first_row in (0..num_rows).step_by(BLOCK) {
            let rows = first_row..num_rows.min(first_row + BLOCK);
            for (column, out) in out.chunks_exact_mut(num_rows).enumerate() {
                let column = chunk * BLOCK + column;
                for row in rows.clone() {
                    out[row] = matrix[row * num_columns + column];
                }
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rsgen_kernels::Isa;

    #[test]
    fn rows_become_columns_also_where_blocks_end_within_the_matrix() {
        for num_threads in [1, 3] {
            let workers = Workers::new(num_threads, Isa::select().unwrap()).unwrap();
            for (num_rows, num_columns) in [(1, 1), (1, 70), (70, 1), (32, 64), (33, 65), (100, 31)] {
                let matrix: Vec<[u8; 2]> =
                    (0..num_rows * num_columns).map(|i| (i as u16).to_le_bytes()).collect();
                let turned = transposed(&workers, &matrix, num_columns).unwrap();
                let turned = turned.as_chunks::<2>().0;
                assert_eq!(turned.len(), matrix.len());
                for row in 0..num_rows {
                    for column in 0..num_columns {
                        assert_eq!(turned[column * num_rows + row], matrix[row * num_columns + column]);
                    }
                }
            }
        }
    }
}
