//! One place that holds tensors: a file, several GGUF files, the caller, or what is made of other tensors.

use std::sync::Arc;

use safetensors::tensor::Dtype;

use super::gguf::GgufTensors;
use super::in_memory::MemoryTensors;
use super::quantized::QuantizedTensors;
use super::safetensors::{HeaderLimits, TensorFile, TensorView, float};
use super::shards::FORMATS;
use super::source::FileBytes;
use super::torch::TorchFile;
use rsgen_core::error::Result;
use rsgen_kernels::quant::PackedMatrix;
use rsgen_kernels::tensor::StoredBytes;

/// Where tensors are stored.
pub(super) enum Store {
    File(TensorFile),
    Torch(TorchFile),
    Memory(MemoryTensors),
    Gguf(Arc<GgufTensors>),
    Quantized(QuantizedTensors),
}

impl Store {
    /// The store of a weight file.
    ///
    /// # Errors
    /// `Load` when it is damaged.
    pub(super) fn of_file(name: &str, bytes: FileBytes, limits: &mut HeaderLimits) -> Result<Self> {
        if name.ends_with(FORMATS[1].2) {
            TorchFile::new(name, bytes, limits).map(Self::Torch)
        } else {
            TensorFile::new(name, bytes, limits).map(Self::File)
        }
    }

    /// The names of all tensors, in the order of their place.
    pub(super) fn names(&self) -> Vec<String> {
        match self {
            Self::File(file) => file.tensor_names(),
            Self::Torch(file) => file.tensor_names(),
            Self::Memory(tensors) => tensors.names().map(str::to_owned).collect(),
            Self::Gguf(tensors) => tensors.names().map(str::to_owned).collect(),
            Self::Quantized(tensors) => tensors.names(),
        }
    }

    /// The tensor of this name, if it is there.
    ///
    /// # Errors
    /// `Load` when it is stored in a type that is not supported.
    pub(super) fn tensor<'a>(&'a self, name: &'a str) -> Result<Option<TensorView<'a>>> {
        match self {
            Self::File(file) => file.tensor(name),
            Self::Torch(file) => file.tensor(name),
            Self::Memory(tensors) => tensors.tensor(name),
            Self::Gguf(tensors) => tensors.tensor(name),
            Self::Quantized(tensors) => Ok(tensors.tensor(name)),
        }
    }

    /// How a tensor of any type is stored, its numbers and its bytes in the file.
    pub(super) fn described(&self, name: &str) -> Option<(String, u64, u64)> {
        let packed = self.file().filter(|file| file.packed().is_ok_and(|packed| packed.is_some()));
        match self {
            Self::Memory(tensors) => Some(of_view(&tensors.tensor(name).ok()??)),
            Self::Gguf(tensors) => tensors.described(name),
            Self::Quantized(tensors) => tensors.described(name),
            Self::File(_) | Self::Torch(_) => {
                let (dtype, shape, bytes) = self.stored(name)?;
                let weights = packed.and_then(|_| PackedMatrix::weights_in_file(shape));
                let (dtype, numbers) = match weights {
                    Some((kind, weights)) if dtype == Dtype::U8 => (kind.name().to_owned(), weights),
                    _ => (name_of(dtype), shape.iter().product::<usize>() as u64),
                };
                Some((dtype, numbers, bytes.len() as u64))
            }
        }
    }

    /// The type, the shape and the bytes of a tensor of any type, where files have such.
    pub(super) fn stored(&self, name: &str) -> Option<(Dtype, &[usize], StoredBytes<'_>)> {
        match self {
            Self::File(file) => file.stored(name),
            Self::Torch(file) => file.stored(name),
            Self::Memory(_) | Self::Gguf(_) | Self::Quantized(_) => None,
        }
    }

    pub(super) fn file(&self) -> Option<&TensorFile> {
        match self {
            Self::File(file) => Some(file),
            Self::Torch(_) | Self::Memory(_) | Self::Gguf(_) | Self::Quantized(_) => None,
        }
    }

    pub(super) fn data_len(&self) -> u64 {
        match self {
            Self::File(file) => file.data_len() as u64,
            Self::Torch(file) => file.data_len() as u64,
            Self::Memory(tensors) => tensors.data_len() as u64,
            Self::Gguf(tensors) => tensors.data_len() as u64,
            // It counts where its parts are stored.
            Self::Quantized(_) => 0,
        }
    }

    pub(super) fn num_elements(&self) -> u64 {
        match self {
            Self::File(file) => file.num_elements(),
            Self::Torch(file) => file.num_elements(),
            Self::Memory(tensors) => tensors.num_elements(),
            Self::Gguf(tensors) => tensors.num_elements(),
            Self::Quantized(tensors) => tensors.num_elements(),
        }
    }
}

/// How a tensor is stored, its numbers and its bytes.
pub(super) fn of_view(tensor: &TensorView<'_>) -> (String, u64, u64) {
    let numbers = tensor.shape.iter().product::<usize>() as u64;
    (tensor.encoding.name().to_owned(), numbers, tensor.bytes.len() as u64)
}

/// The name of a type: that of torch for those that weights may have.
pub(super) fn name_of(dtype: Dtype) -> String {
    float(dtype, "", "").map_or_else(|_| dtype.to_string(), |dtype| dtype.name().to_owned())
}
