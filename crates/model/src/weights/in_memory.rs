//! Tensors that the caller holds in memory, under the names of a checkpoint.

use std::collections::HashMap;
use std::sync::Arc;

use super::safetensors::{MAX_TENSORS, TensorView};
use rsgen_core::error::{Error, Result};
use rsgen_core::escape;
use rsgen_kernels::tensor::{DType, ReadBytes, StoredBytes};

/// The tensors of a model that is in memory. They are read once, in parts, by several threads while the model
/// is opened.
///
/// A list of [`Tensor`] is one; implement it for tensors of another library, so that they are not copied as a
/// whole.
pub trait TensorSource: Send + Sync {
    /// The names, element types and shapes of all tensors.
    fn tensors(&self) -> Vec<TensorInfo>;

    /// Copies bytes of tensor `index` of that list to `out`, from byte `start` on: little-endian numbers in
    /// row-major order. `start` and the length of `out` are multiples of the size of an element, and lie
    /// within the shape.
    ///
    /// # Errors
    /// `Load` when they cannot be read.
    fn read(&self, index: usize, start: usize, out: &mut [u8]) -> Result<()>;
}

/// The name, element type and shape of a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    name: String,
    /// A name where it is none of those that weights may have.
    dtype: std::result::Result<DType, String>,
    shape: Vec<usize>,
}

impl TensorInfo {
    /// A tensor by its full name, such as `model.norm.weight`.
    pub fn new(name: impl Into<String>, dtype: DType, shape: impl Into<Vec<usize>>) -> Self {
        Self { name: name.into(), dtype: Ok(dtype), shape: shape.into() }
    }

    /// A tensor of another element type, which is an error when the model needs it.
    pub fn of_other_type(
        name: impl Into<String>,
        dtype: impl Into<String>,
        shape: impl Into<Vec<usize>>,
    ) -> Self {
        Self { name: name.into(), dtype: Err(dtype.into()), shape: shape.into() }
    }

    /// The bytes of its elements, 0 if they are of another type; `None` if there are too many.
    fn num_bytes(&self) -> Option<usize> {
        let size = self.dtype.as_ref().map_or(0, |dtype| dtype.bytes());
        let bytes = self.shape.iter().try_fold(size, |bytes, &size| bytes.checked_mul(size));
        bytes.filter(|&bytes| isize::try_from(bytes).is_ok())
    }
}

/// A tensor in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    /// Its full name, such as `model.norm.weight`.
    pub name: String,
    /// Its element type.
    pub dtype: DType,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its elements, little-endian and row-major.
    pub bytes: Vec<u8>,
}

impl TensorSource for Vec<Tensor> {
    fn tensors(&self) -> Vec<TensorInfo> {
        let info = |tensor: &Tensor| TensorInfo::new(&*tensor.name, tensor.dtype, &*tensor.shape);
        self.iter().map(info).collect()
    }

    fn read(&self, index: usize, start: usize, out: &mut [u8]) -> Result<()> {
        let Tensor { name, shape, bytes, .. } = &self[index];
        let part = start.checked_add(out.len()).and_then(|end| bytes.get(start..end)).ok_or_else(|| {
            let (name, found) = (escape::name(name), bytes.len());
            Error::load(format!("{name}: the shape {shape:?} takes more bytes than there are, {found}"))
        })?;
        out.copy_from_slice(part);
        Ok(())
    }
}

/// The tensors of a source, by name.
pub(super) struct MemoryTensors {
    tensors: Vec<MemoryTensor>,
    by_name: HashMap<String, usize>,
}

struct MemoryTensor {
    info: TensorInfo,
    num_bytes: usize,
    source: Arc<dyn TensorSource>,
    index: usize,
}

impl MemoryTensors {
    /// # Errors
    /// `Load` when there are too many tensors, one is too large, or two have the same name.
    pub(super) fn new(source: &Arc<dyn TensorSource>) -> Result<Self> {
        let infos = source.tensors();
        if infos.len() > MAX_TENSORS {
            let found = infos.len();
            return Err(Error::load(format!("a model has at most {MAX_TENSORS} tensors, found {found}")));
        }
        let (mut tensors, mut by_name) = (Vec::with_capacity(infos.len()), HashMap::new());
        for (index, info) in infos.into_iter().enumerate() {
            let wrong =
                |what: &str| Error::load(format!("the tensor \"{}\" {what}", escape::name(&info.name)));
            let num_bytes = info
                .num_bytes()
                .ok_or_else(|| wrong(&format!("has the shape {:?}, which is too large", info.shape)))?;
            if by_name.insert(info.name.clone(), index).is_some() {
                return Err(wrong("comes twice; give each name once"));
            }
            tensors.push(MemoryTensor { info, num_bytes, source: Arc::clone(source), index });
        }
        Ok(Self { tensors, by_name })
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.iter().map(|tensor| tensor.info.name.as_str())
    }

    pub(super) fn data_len(&self) -> usize {
        self.tensors.iter().fold(0, |sum, tensor| tensor.num_bytes.saturating_add(sum))
    }

    pub(super) fn num_elements(&self) -> u64 {
        let count = |tensor: &MemoryTensor| {
            let size = tensor.info.dtype.as_ref().map_or(1, |dtype| dtype.bytes());
            (tensor.num_bytes / size) as u64
        };
        self.tensors.iter().map(count).sum()
    }

    /// # Errors
    /// `Load` when it is of another type than float32, bfloat16 or float16.
    pub(super) fn tensor<'a>(&'a self, name: &'a str) -> Result<Option<TensorView<'a>>> {
        let Some(tensor) = self.by_name.get(name).map(|&index| &self.tensors[index]) else {
            return Ok(None);
        };
        let dtype = tensor.info.dtype.clone().map_err(|other| {
            let (name, other) = (escape::name(name), escape::name(&other).into_owned());
            Error::load(format!("{name} must be of float32, bfloat16 or float16, found {other}; convert it"))
        })?;
        let bytes = StoredBytes::Reader { reader: tensor, start: 0, len: tensor.num_bytes };
        let (encoding, shape) = (dtype.into(), &*tensor.info.shape);
        Ok(Some(TensorView { name, encoding, shape, is_transposed: false, bytes }))
    }
}

impl ReadBytes for MemoryTensor {
    fn read(&self, start: usize, out: &mut [u8]) -> Result<()> {
        self.source.read(self.index, start, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weights(tensors: Vec<Tensor>) -> Result<MemoryTensors> {
        MemoryTensors::new(&(Arc::new(tensors) as Arc<dyn TensorSource>))
    }

    fn tensor(name: &str, shape: &[usize], bytes: Vec<u8>) -> Tensor {
        Tensor { name: name.to_owned(), dtype: DType::F32, shape: shape.to_vec(), bytes }
    }

    #[test]
    fn tensors_are_read_in_parts() {
        let bytes: Vec<u8> = (0..24).collect();
        let tensors =
            weights(vec![tensor("a", &[2, 3], bytes.clone()), tensor("b", &[0], Vec::new())]).unwrap();
        assert_eq!((tensors.data_len(), tensors.num_elements()), (24, 6));
        assert_eq!(tensors.names().collect::<Vec<_>>(), ["a", "b"]);
        let view = tensors.tensor("a").unwrap().unwrap();
        assert_eq!((view.encoding, view.shape), (DType::F32.into(), &[2, 3][..]));
        assert_eq!(view.bytes.part(4..16).to_vec().unwrap(), bytes[4..16]);
        assert!(tensors.tensor("c").unwrap().is_none());
    }

    #[test]
    fn what_cannot_be_weights_is_named() {
        let twice = weights(vec![tensor("a", &[0], Vec::new()), tensor("a", &[0], Vec::new())]);
        assert!(twice.err().unwrap().to_string().contains("\"a\" comes twice"));
        let huge = weights(vec![tensor("a", &[usize::MAX, 8], Vec::new())]);
        assert!(huge.err().unwrap().to_string().contains("too large"));
        let short = weights(vec![tensor("a", &[4], vec![0; 12])]).unwrap();
        let error = short.tensor("a").unwrap().unwrap().bytes.to_vec().unwrap_err().to_string();
        assert!(error.contains("[4]") && error.contains("12"), "{error}");
    }

    #[test]
    fn another_type_is_an_error_when_it_is_needed() {
        struct Integers;
        impl TensorSource for Integers {
            fn tensors(&self) -> Vec<TensorInfo> {
                vec![TensorInfo::of_other_type("a", "int64", [2])]
            }
            fn read(&self, _: usize, _: usize, _: &mut [u8]) -> Result<()> {
                Ok(())
            }
        }
        let tensors = MemoryTensors::new(&(Arc::new(Integers) as Arc<dyn TensorSource>)).unwrap();
        let error = tensors.tensor("a").unwrap_err().to_string();
        assert!(error.contains("a must be of float32") && error.contains("int64"), "{error}");
    }
}
