//! A matrix that is stored in several tensors, as rows of blocks.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use safetensors::tensor::Dtype;

use super::super::safetensors::TensorView;
use super::super::shards::Weights;
use super::super::store::Store;
use rsgen_core::error::{Error, Result};
use rsgen_core::escape;
use rsgen_core::sync::Mutex;
use rsgen_kernels::tensor::{DType, Encoding, ReadBytes, StoredBytes};

/// Writes the bytes of a row: `row(parts, index, out)`, where `parts` are the bytes of the tensors in the order in
/// which they were taken.
type RowOf = dyn Fn(&[Vec<u8>], usize, &mut [u8]) + Send + Sync;

/// A matrix, or a stack of them, that is stored in several tensors.
pub(super) struct QuantizedTensor {
    parts: Vec<(Arc<Store>, String)>,
    /// Of stacks, the place of the matrix and how many there are.
    place: (usize, usize),
    encoding: Encoding,
    shape: Vec<usize>,
    row: Box<RowOf>,
    /// The bytes of the parts, from the first row that is read to the last one.
    loaded: Mutex<Option<Arc<Vec<Vec<u8>>>>>,
    delivered: AtomicUsize,
}

impl QuantizedTensor {
    /// The matrix of these parts, whose rows `row` writes in that encoding.
    ///
    /// # Errors
    /// `Load` when its rows are no whole blocks.
    pub(super) fn new(
        parts: Parts<'_>,
        encoding: Encoding,
        shape: &[usize],
        row: impl Fn(&[Vec<u8>], usize, &mut [u8]) + Send + Sync + 'static,
    ) -> Result<Self> {
        let columns = shape.last().copied().unwrap_or(0);
        if !columns.is_multiple_of(encoding.elements()) || shape.contains(&0) {
            return Err(Error::load(format!(
                "its rows of {columns} weights must be whole groups of {}; the file is damaged, download it again",
                encoding.elements()
            )));
        }
        Ok(Self {
            parts: parts.taken,
            place: parts.place,
            encoding,
            shape: shape.to_vec(),
            row: Box::new(row),
            loaded: Mutex::default(),
            delivered: AtomicUsize::new(0),
        })
    }

    /// The names of the tensors that it is made of.
    pub(super) fn parts(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().map(|(_, name)| &**name)
    }

    pub(super) fn num_elements(&self) -> u64 {
        self.shape.iter().product::<usize>() as u64
    }

    /// It, by the name in the model.
    pub(super) fn view<'a>(&'a self, name: &'a str) -> TensorView<'a> {
        let bytes = StoredBytes::Reader { reader: self, start: 0, len: self.num_bytes() };
        // Writers have linear layers only: a `Conv1D` is stored as one.
        TensorView { name, encoding: self.encoding, shape: &self.shape, is_transposed: true, bytes }
    }

    fn row_bytes(&self) -> usize {
        let columns = self.shape.last().copied().unwrap_or(0);
        columns / self.encoding.elements() * self.encoding.unit_bytes()
    }

    /// The type that it is stored in: what its integers are called, or those of weights that are kept in
    /// `float32`.
    pub(super) fn stored_as(&self) -> String {
        let first = self.parts.first().and_then(|(store, name)| store.stored(name));
        match first {
            Some((dtype, ..)) if !self.is_packed() => format!("{dtype}, kept as {}", self.encoding),
            _ => self.encoding.name().to_owned(),
        }
    }

    /// Whether its weights keep the bits of the file.
    pub(super) fn is_packed(&self) -> bool {
        !matches!(self.encoding, Encoding::Plain(_))
    }

    /// The numbers and the bytes of its parts.
    pub(super) fn stored(&self) -> (usize, usize) {
        let parts = self.parts.iter().filter_map(|(store, name)| store.stored(name));
        parts.fold((0, 0), |(numbers, bytes), (_, shape, stored)| {
            let count = self.place.1;
            (numbers + shape.iter().product::<usize>() / count, bytes + stored.len() / count)
        })
    }

    /// The bytes that reading it delivers.
    pub(super) fn num_bytes(&self) -> usize {
        self.shape[..self.shape.len() - 1].iter().product::<usize>() * self.row_bytes()
    }

    fn load(&self) -> Result<Arc<Vec<Vec<u8>>>> {
        let mut loaded = self.loaded.lock();
        if let Some(parts) = &*loaded {
            return Ok(Arc::clone(parts));
        }
        let gone = || Error::internal("a part of a quantized matrix is stored");
        let read = |(store, name): &(Arc<Store>, String)| {
            let (bytes, (place, count)) = (store.stored(name).ok_or_else(gone)?.2, self.place);
            let len = bytes.len() / count;
            bytes.part(place * len..(place + 1) * len).to_vec()
        };
        let parts = Arc::new(self.parts.iter().map(read).collect::<Result<Vec<_>>>()?);
        *loaded = Some(Arc::clone(&parts));
        Ok(parts)
    }
}

impl ReadBytes for QuantizedTensor {
    fn read(&self, start: usize, out: &mut [u8]) -> Result<()> {
        let (parts, row_bytes) = (self.load()?, self.row_bytes());
        let (mut row, mut skipped, mut written) = (start / row_bytes, start % row_bytes, 0);
        let mut buffer = Vec::new();
        while written < out.len() {
            let left = &mut out[written..];
            let len = left.len().min(row_bytes - skipped);
            if len == row_bytes {
                (self.row)(&parts, row, &mut left[..len]);
            } else {
                buffer.resize(row_bytes, 0);
                (self.row)(&parts, row, &mut buffer);
                left[..len].copy_from_slice(&buffer[skipped..skipped + len]);
            }
            (row, skipped, written) = (row + 1, 0, written + len);
        }
        // Whoever reads a matrix reads all of it once; then the parts are of no use.
        let delivered = self.delivered.fetch_add(out.len(), Ordering::Relaxed) + out.len();
        if delivered.is_multiple_of(self.num_bytes()) {
            *self.loaded.lock() = None;
        }
        Ok(())
    }
}

impl fmt::Debug for QuantizedTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QuantizedTensor({}, {:?})", self.encoding, self.shape)
    }
}

/// The tensors of a module, which are taken one after the other.
pub(super) struct Parts<'a> {
    weights: &'a Weights,
    prefix: String,
    taken: Vec<(Arc<Store>, String)>,
    place: (usize, usize),
}

impl<'a> Parts<'a> {
    /// Those whose names begin with this.
    pub(super) fn new(weights: &'a Weights, prefix: String) -> Self {
        Self { weights, prefix, taken: Vec::new(), place: (0, 1) }
    }

    /// Those of one matrix where each tensor is a stack of `count`: shapes are without the first size.
    ///
    /// # Panics
    /// When `count` is 0.
    pub(super) fn of_stack(weights: &'a Weights, prefix: String, place: usize, count: usize) -> Self {
        assert!(place < count, "a place in the stack");
        Self { place: (place, count), ..Self::new(weights, prefix) }
    }

    /// The shape of a tensor, if the module has it.
    pub(super) fn shape(&self, name: &str) -> Option<Vec<usize>> {
        let (store, own) = self.weights.place(&format!("{}{name}", self.prefix))?;
        store.stored(&own).map(|(_, shape, _)| shape.to_vec())
    }

    /// Whether the module has a tensor of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.weights.contains(&format!("{}{name}", self.prefix))
    }

    /// Whether the module has a tensor of this name and type.
    pub(super) fn is_stored_as(&self, name: &str, dtype: Dtype) -> bool {
        let found = self.weights.place(&format!("{}{name}", self.prefix));
        found.is_some_and(|(store, own)| store.stored(&own).is_some_and(|(stored, ..)| stored == dtype))
    }

    /// Takes a tensor of one of these types. Returns its type and shape.
    ///
    /// # Errors
    /// `Load` when it is missing or of another type.
    pub(super) fn take(&mut self, name: &str, types: &[Dtype]) -> Result<(Dtype, Vec<usize>)> {
        let full = format!("{}{name}", self.prefix);
        let found = self.weights.place(&full);
        let found = found.and_then(|(store, own)| {
            let (dtype, shape) = store.stored(&own).map(|(dtype, shape, _)| (dtype, shape.to_vec()))?;
            Some((store, own, dtype, shape))
        });
        let Some((store, own, dtype, shape)) = found else {
            return Err(Error::load(format!("{} is missing; download the model again", escape::name(&full))));
        };
        if !types.contains(&dtype) {
            let types: Vec<_> = types.iter().map(ToString::to_string).collect();
            return Err(Error::load(format!(
                "{} must be stored as {}, found {dtype}; the file is of another format than its configuration says",
                escape::name(&full),
                types.join(" or ")
            )));
        }
        self.taken.push((store, own));
        match (self.place.1, shape.split_first()) {
            (1, _) => Ok((dtype, shape)),
            (count, Some((&first, rest))) if first == count => Ok((dtype, rest.to_vec())),
            (count, _) => Err(Error::load(format!(
                "{} must be a stack of {count}, found the shape {shape:?}; the file is damaged, download it again",
                escape::name(&full)
            ))),
        }
    }

    /// Takes a tensor of this type and shape.
    ///
    /// # Errors
    /// `Load` when it is missing, or of another type or shape.
    pub(super) fn take_shaped(&mut self, name: &str, types: &[Dtype], shape: &[usize]) -> Result<Dtype> {
        let (dtype, found) = self.take(name, types)?;
        if found != shape {
            return Err(Error::load(format!(
                "{} must have the shape {shape:?}, found {found:?}; the file is of another format than its configuration says",
                escape::name(&format!("{}{name}", self.prefix))
            )));
        }
        Ok(dtype)
    }

    /// The bytes of a tensor that says how others are read, at most `most` of them; it is taken.
    ///
    /// # Errors
    /// `Load` when it is missing, of another type, too large, or cannot be read.
    pub(super) fn bytes(&mut self, name: &str, types: &[Dtype], most: usize) -> Result<Vec<u8>> {
        self.take(name, types)?;
        let (store, own) = self.taken.last().ok_or_else(|| Error::internal("a part was taken"))?;
        let (_, _, bytes) = store.stored(own).ok_or_else(|| Error::internal("a part is stored"))?;
        if bytes.len() > most {
            return Err(Error::load(format!(
                "{} may have at most {most} bytes, found {}; the file is damaged, download it again",
                escape::name(&format!("{}{name}", self.prefix)),
                bytes.len()
            )));
        }
        bytes.to_vec()
    }
}

/// The types of scales.
pub(super) const FLOATS: &[Dtype] = &[Dtype::F16, Dtype::BF16, Dtype::F32];

/// The number at a place of a tensor of one of [`FLOATS`], widened.
pub(super) fn float(dtype: Dtype, bytes: &[u8], at: usize) -> f32 {
    let dtype = match dtype {
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::Bf16,
        _ => DType::F32,
    };
    let size = dtype.bytes();
    let mut value = [0.0];
    Encoding::Plain(dtype).decode(&bytes[at * size..][..size], &mut value);
    value[0]
}

/// The 32-bit word at a place of a tensor.
pub(super) fn word(bytes: &[u8], at: usize) -> u32 {
    bytes[4 * at..].first_chunk().map_or(0, |word| u32::from_le_bytes(*word))
}

/// The `bits` bits from `first` on of words that `word` gives by their index.
pub(super) fn bits(word: impl Fn(usize) -> u32, first: usize, bits: usize) -> u8 {
    let (at, shift) = (first / 32, first % 32);
    let mut value = u64::from(word(at)) >> shift;
    if shift + bits > 32 {
        value |= u64::from(word(at + 1)) << (32 - shift);
    }
    (value & ((1 << bits) - 1)) as u8
}
