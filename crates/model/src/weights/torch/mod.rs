//! One `pytorch_model.bin`: a state dict of `torch.save`, as a zip archive or in the older form without one.
//!
//! Its pickle is read and never run (docs/decisions/0013). Tensors stay in the file until they are read, and
//! tensors that share a storage share its bytes.

mod dtypes;
mod pickle;
mod zip;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use safetensors::tensor::Dtype;

use self::pickle::{SAVE_AGAIN, StorageId, Tensor, Unpickler, Value};
use self::zip::Archive;
use super::foreign::gguf;
use super::safetensors::{HeaderLimits, TensorView, float};
use super::source::FileBytes;
use rsgen_core::error::{Error, Result, ResultExt as _};
use rsgen_core::escape;
use rsgen_core::memory;
use rsgen_core::sync::Mutex;
use rsgen_kernels::tensor::{ReadBytes, StoredBytes};

/// The first bytes of a file without a zip: a pickle of the number 0x1950a86a20f9469cfc6c.
const LEGACY: &[u8] = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
/// The version of that form.
const LEGACY_VERSION: i64 = 1001;
/// The offset of what tells a tar archive, the form before 2017.
const TAR: (usize, &[u8]) = (257, b"ustar");

/// A file of `torch.save` whose tensors have been checked against its length.
pub struct TorchFile {
    name: String,
    bytes: Arc<FileBytes>,
    tensors: Vec<TorchTensor>,
    by_name: HashMap<String, usize>,
    data_len: usize,
}

/// A tensor and where it is.
struct TorchTensor {
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    /// The bytes of the file from its first element to its last one.
    place: Range<usize>,
    /// Its elements in order, where they are not so in the file.
    strided: Option<Box<Strided>>,
}

/// A tensor whose elements are not in row-major order in the file, such as a transposed one. They are copied
/// when one is read.
struct Strided {
    bytes: Arc<FileBytes>,
    place: Range<usize>,
    element_bytes: usize,
    shape: Vec<usize>,
    strides: Vec<usize>,
    /// Empty until then.
    ordered: Mutex<Vec<u8>>,
}

impl TorchFile {
    /// Reads what a file holds, and takes it from `limits`; `name` is the file's name in errors.
    ///
    /// # Errors
    /// `Load` when the file is damaged, holds anything but a state dict or has a name twice, or when a tensor
    /// is not within it.
    pub fn new(name: impl Into<String>, bytes: FileBytes, limits: &mut HeaderLimits) -> Result<Self> {
        let name = name.into();
        let bytes = Arc::new(bytes);
        let tensors = read(&bytes, limits).context(|| name.clone())?;
        let mut by_name = HashMap::with_capacity(tensors.len());
        for (at, tensor) in tensors.iter().enumerate() {
            if by_name.insert(tensor.name.clone(), at).is_some() {
                let twice = format!("the tensor \"{}\" comes twice", escape::name(&tensor.name));
                return Err(Error::load(format!("{name}: {twice}; {SAVE_AGAIN}")));
            }
        }
        let places: HashSet<_> = tensors.iter().map(|tensor| &tensor.place).collect();
        let data_len = places.into_iter().fold(0, |sum: usize, place| sum.saturating_add(place.len()));
        let data_len = data_len.min(bytes.stored().len());
        Ok(Self { name, bytes, tensors, by_name, data_len })
    }

    /// The names of all tensors, in the order of the file.
    pub fn tensor_names(&self) -> Vec<String> {
        self.tensors.iter().map(|tensor| tensor.name.clone()).collect()
    }

    /// Whether the file has a tensor of this name.
    pub fn contains(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// The bytes that all tensors take in the file; those that several share count once.
    pub fn data_len(&self) -> usize {
        self.data_len
    }

    /// The numbers that all tensors hold; those that several share count once.
    pub fn num_elements(&self) -> u64 {
        let mut seen = HashSet::new();
        let own = self.tensors.iter().filter(|tensor| seen.insert(&tensor.place));
        own.map(|tensor| (tensor.place.len() / bytes_of(tensor.dtype)) as u64).sum()
    }

    /// The tensor of this name, if the file has it.
    ///
    /// # Errors
    /// `Load` when it is stored in another type than float32, bfloat16 or float16.
    pub fn tensor<'a>(&'a self, name: &'a str) -> Result<Option<TensorView<'a>>> {
        let Some((dtype, shape, bytes)) = self.stored(name) else { return Ok(None) };
        let dtype = float(dtype, &self.name, name)?;
        Ok(Some(TensorView { name, encoding: dtype.into(), shape, is_transposed: false, bytes }))
    }

    /// The type, the shape and the bytes of a tensor of any type.
    pub(super) fn stored(&self, name: &str) -> Option<(Dtype, &[usize], StoredBytes<'_>)> {
        let TorchTensor { dtype, shape, place, strided, .. } = &self.tensors[*self.by_name.get(name)?];
        let bytes = match strided {
            Some(strided) => StoredBytes::Reader { reader: &**strided, start: 0, len: strided.len() },
            None => self.bytes.stored().part(place.clone()),
        };
        Some((*dtype, shape, bytes))
    }
}

impl TorchFile {
    /// What tells a tensor from another: where it is, its type, its shape, and its order.
    pub(super) fn place(&self, name: &str) -> Option<String> {
        let TorchTensor { dtype, shape, place, strided, .. } = &self.tensors[*self.by_name.get(name)?];
        let strides = strided.as_ref().map(|strided| &strided.strides);
        Some(format!("{place:?} {dtype} {shape:?} {strides:?}"))
    }
}

impl fmt::Debug for TorchFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TorchFile").field("name", &self.name).finish_non_exhaustive()
    }
}

fn bytes_of(dtype: Dtype) -> usize {
    dtype.bitsize() / 8
}

fn read(bytes: &Arc<FileBytes>, limits: &mut HeaderLimits) -> Result<Vec<TorchTensor>> {
    let stored = bytes.stored();
    let first = stored.part(0..stored.len().min(TAR.0 + TAR.1.len())).to_vec()?;
    if Archive::is_one(&first) {
        return read_zip(bytes, limits);
    }
    if first.starts_with(LEGACY) {
        return read_legacy(bytes, limits);
    }
    Err(Error::load(match gguf(&first) {
        Some(gguf) => gguf.to_owned(),
        None if first.get(TAR.0..) == Some(TAR.1) => {
            format!("it is a tar archive, the form of torch.save before 2017; {SAVE_AGAIN}")
        }
        None => "it is no file of torch.save; download it again".to_owned(),
    }))
}

/// A zip archive: `data.pkl`, and a file `data/KEY` for each storage.
fn read_zip(bytes: &Arc<FileBytes>, limits: &mut HeaderLimits) -> Result<Vec<TorchTensor>> {
    let archive = Archive::read(bytes.stored(), limits)?;
    if archive.data("constants.pkl", limits)?.is_some() {
        return Err(Error::load(format!("it is a program of TorchScript, not a state dict; {SAVE_AGAIN}")));
    }
    if archive.data("byteorder", limits)?.is_some_and(|order| order != b"little") {
        return Err(Error::load(format!("its numbers are not little-endian; {SAVE_AGAIN}")));
    }
    archive.entry("data.pkl")?;
    let pickled = archive.data("data.pkl", limits)?.unwrap_or_default();
    let mut unpickler = Unpickler::new(&pickled);
    let root = unpickler.load()?;
    let mut places = HashMap::new();
    tensors(bytes, &unpickler, root, limits, |storage| {
        if let Some(&place) = places.get(&storage.key) {
            return Ok(place);
        }
        let place = archive.entry(&format!("data/{}", storage.key))?;
        places.insert(storage.key.clone(), place);
        Ok(place)
    })
}

/// Pickles of a version, of the machine, of the state dict and of the storages' keys; then each storage.
fn read_legacy(bytes: &Arc<FileBytes>, limits: &mut HeaderLimits) -> Result<Vec<TorchTensor>> {
    let stored = bytes.stored();
    let header =
        stored.part(LEGACY.len()..stored.len().min(LEGACY.len().saturating_add(limits.bytes()))).to_vec()?;
    let mut unpickler = Unpickler::new(&header);
    if unpickler.load()? != Value::Int(LEGACY_VERSION) {
        return Err(Error::load(format!("it is of an unknown version of torch.save; {SAVE_AGAIN}")));
    }
    let machine = unpickler.load()?;
    let little = |entry: &&(Value, Value)| unpickler.str(entry.0) == Some("little_endian");
    let order = unpickler.dict(machine).and_then(|machine| machine.iter().find(little));
    if order.is_some_and(|order| order.1 != Value::Bool(true)) {
        return Err(Error::load(format!("its numbers are not little-endian; {SAVE_AGAIN}")));
    }
    let root = unpickler.load()?;
    let keys = unpickler.load()?;
    limits.take(unpickler.at)?;
    let cut_off = || Error::load("it ends in the middle of its tensors; download the file again");
    let mut types = HashMap::new();
    for storage in unpickler.storages() {
        types.entry(&*storage.key).or_insert(storage.dtype.unwrap_or(Dtype::U8));
    }
    let (mut places, mut at) = (HashMap::new(), LEGACY.len() + unpickler.at);
    for &key in unpickler.items(keys).ok_or_else(cut_off)? {
        let key = unpickler.str(key).ok_or_else(cut_off)?;
        let mut count = [0; 8];
        let data = at.checked_add(count.len()).filter(|&data| data <= stored.len()).ok_or_else(cut_off)?;
        stored.part(at..data).read(&mut count)?;
        let dtype = types.get(key).copied().ok_or_else(cut_off)?;
        let len = usize::try_from(u64::from_le_bytes(count))
            .ok()
            .and_then(|count| count.checked_mul(bytes_of(dtype)));
        at = len
            .and_then(|len| data.checked_add(len))
            .filter(|&end| end <= stored.len())
            .ok_or_else(cut_off)?;
        places.insert(key, (data, at - data));
    }
    tensors(bytes, &unpickler, root, limits, |storage| places.get(&*storage.key).copied().ok_or_else(cut_off))
}

/// The entries of a state dict.
fn state_dict<'a>(unpickler: &Unpickler<'a>, root: Value) -> Result<Vec<(&'a str, Value)>> {
    let wrong = |what: &str| {
        Error::load(format!("it must hold a dictionary of names and tensors, {what}; {SAVE_AGAIN}"))
    };
    let entries = unpickler.dict(root).ok_or_else(|| wrong("found another value"))?;
    let named = |&(key, value)| Some((unpickler.str(key)?, value));
    let entries: Option<Vec<_>> = entries.iter().map(named).collect();
    let entries = entries.ok_or_else(|| wrong("found a name that is no text"))?;
    let inner = entries.iter().find(|entry| unpickler.dict(entry.1).is_some());
    match inner {
        Some((name, _)) if !entries.iter().any(|entry| unpickler.tensor(entry.1).is_some()) => {
            Err(wrong(&format!("found \"{}\" that is a dictionary itself", escape::name(name))))
        }
        _ => Ok(entries),
    }
}

/// The tensors of a state dict, of which `place` says where a storage is.
fn tensors(
    bytes: &Arc<FileBytes>,
    unpickler: &Unpickler<'_>,
    root: Value,
    limits: &mut HeaderLimits,
    mut place: impl FnMut(&StorageId) -> Result<(usize, usize)>,
) -> Result<Vec<TorchTensor>> {
    let mut tensors = Vec::new();
    let mut copied = 0_usize;
    for (name, value) in state_dict(unpickler, root)? {
        // What else there may be, such as a number of steps, has no place in a model.
        let Some(tensor) = unpickler.tensor(value) else { continue };
        limits.take_tensor()?;
        let storage = place(&tensor.storage)?;
        let made = TorchTensor::new(name, tensor, storage, bytes).ok_or_else(|| {
            Error::load(format!(
                "the tensor \"{}\" of the shape {:?} must be within its storage of {} bytes; download the file again",
                escape::name(name),
                tensor.shape,
                storage.1
            ))
        })?;
        copied = copied.saturating_add(made.strided.as_ref().map_or(0, |strided| strided.len()));
        if copied > bytes.stored().len() {
            return Err(Error::load(format!(
                "the tensor \"{}\" repeats elements of the file; {SAVE_AGAIN}",
                escape::name(name)
            )));
        }
        tensors.push(made);
    }
    Ok(tensors)
}

impl TorchTensor {
    /// `None` when it is not within its storage.
    fn new(
        name: &str,
        tensor: &Tensor,
        (start, len): (usize, usize),
        bytes: &Arc<FileBytes>,
    ) -> Option<Self> {
        let Tensor { storage, dtype, offset, shape, strides } = tensor;
        let element_bytes = bytes_of(*dtype);
        let storage_bytes = storage.num_elements.checked_mul(storage.dtype.map_or(1, bytes_of))?;
        let skipped = storage.skipped.checked_mul(storage.dtype.map_or(1, bytes_of))?;
        let num_elements = shape.iter().try_fold(1_usize, |product, &size| product.checked_mul(size))?;
        let first = offset.checked_mul(element_bytes)?;
        // The last element is the farthest, as no stride is negative.
        let mut span = 0;
        if num_elements > 0 {
            let mut steps = shape.iter().zip(strides).map(|(&size, &stride)| (size - 1).checked_mul(stride));
            let last = steps.try_fold(0_usize, |last, step| last.checked_add(step?))?;
            span = last.checked_add(1)?.checked_mul(element_bytes)?;
        }
        let end = first.checked_add(span).filter(|&end| end <= storage_bytes)?;
        if skipped.checked_add(storage_bytes)? > len || (num_elements == 0 && first > storage_bytes) {
            return None;
        }
        let place = start + skipped + first..start + skipped + end;
        let mut expected = 1;
        let is_ordered = num_elements == 0
            || shape.iter().zip(strides).rev().all(|(&size, &stride)| {
                let fits = size == 1 || stride == expected;
                expected *= size;
                fits
            });
        num_elements.checked_mul(element_bytes)?;
        let strided = (!is_ordered).then(|| {
            Box::new(Strided {
                bytes: Arc::clone(bytes),
                place: place.clone(),
                element_bytes,
                shape: shape.clone(),
                // Where there is one element in an axis, its stride is never taken.
                strides: shape
                    .iter()
                    .zip(strides)
                    .map(|(&size, &stride)| if size == 1 { 0 } else { stride })
                    .collect(),
                ordered: Mutex::new(Vec::new()),
            })
        });
        Some(Self { name: name.to_owned(), dtype: *dtype, shape: shape.clone(), place, strided })
    }
}

impl Strided {
    fn len(&self) -> usize {
        self.shape.iter().product::<usize>() * self.element_bytes
    }

    fn order(&self) -> Result<Vec<u8>> {
        let stored = self.bytes.stored().part(self.place.clone()).to_vec()?;
        let mut ordered = Vec::new();
        memory::reserve(&mut ordered, self.len(), "bytes of a weight file")?;
        let (mut index, mut at) = (vec![0; self.shape.len()], 0);
        while ordered.len() < self.len() {
            ordered.extend_from_slice(&stored[at * self.element_bytes..(at + 1) * self.element_bytes]);
            for (axis, index) in index.iter_mut().enumerate().rev() {
                (*index, at) = (*index + 1, at + self.strides[axis]);
                if *index < self.shape[axis] {
                    break;
                }
                (*index, at) = (0, at - self.shape[axis] * self.strides[axis]);
            }
        }
        Ok(ordered)
    }
}

impl ReadBytes for Strided {
    fn read(&self, start: usize, out: &mut [u8]) -> Result<()> {
        let mut ordered = self.ordered.lock();
        if ordered.is_empty() {
            *ordered = self.order()?;
        }
        out.copy_from_slice(&ordered[start..start + out.len()]);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
