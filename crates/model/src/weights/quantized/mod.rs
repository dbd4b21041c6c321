//! Matrices that are stored quantized in several tensors each, as `quantization_config` says: presented as
//! matrices of blocks, under the names that the models' classes have.
//!
//! A format is a file here and a line in [`FORMATS`]. It finds its matrices by the names of their tensors, so that
//! lists of modules that are left as they are need not be understood. Weights are those of the published formula
//! in `float32`, unrounded; the quantization of activations is left to engines that want it.

mod awq;
mod bitsandbytes;
mod compressed_tensors;
mod config;
mod fields;
mod float8;
mod gptq;
mod integers;
mod mlx;
mod mxfp4;
mod tensor;

use std::collections::HashMap;
use std::fmt;

use serde_json::{Map, Value};

use self::fields::Field;
use self::tensor::{Parts, QuantizedTensor};
use super::safetensors::TensorView;
use super::shards::Weights;
use rsgen_core::error::{Error, Result, ResultExt as _};
use rsgen_core::escape;

pub(super) use config::{check, find};

/// Finds the matrices of a format. The first argument is its `quantization_config`.
type Present = fn(&Map<String, Value>, &Weights) -> Result<Vec<Matrix>>;

/// The formats: their `quant_method`, the fields of their configuration, and how their matrices are found.
const FORMATS: &[(&str, &[Field], Present)] = &[
    ("gptq", fields::GPTQ, gptq::matrices),
    ("awq", fields::AWQ, awq::matrices),
    ("compressed-tensors", fields::COMPRESSED_TENSORS, compressed_tensors::matrices),
    ("fp8", fields::FP8, float8::matrices),
    ("mxfp4", fields::MXFP4, mxfp4::matrices),
    ("bitsandbytes", fields::BITSANDBYTES, bitsandbytes::matrices),
    (config::MLX, fields::MLX, mlx::matrices),
];

/// A matrix that is stored in several tensors.
struct Matrix {
    /// The name of the tensor that a model's class has.
    name: String,
    tensor: QuantizedTensor,
}

/// The matrices of a model that are stored quantized.
pub(super) struct QuantizedTensors(HashMap<String, QuantizedTensor>);

impl QuantizedTensors {
    /// The matrices, and the names of the tensors that they are made of.
    ///
    /// # Errors
    /// `Load`, naming the tensor, when those of a matrix do not belong together.
    pub(super) fn find(config: &Map<String, Value>, weights: &Weights) -> Result<(Self, Vec<String>)> {
        let method = config::method(config)?;
        let (.., matrices) = FORMATS.iter().find(|(name, ..)| *name == method).ok_or_else(|| {
            Error::internal(format!("the configuration was checked, but {method} is no format"))
        })?;
        let matrices = matrices(config, weights)?;
        let parts = matrices.iter().flat_map(|matrix| matrix.tensor.parts()).map(str::to_owned).collect();
        let by_name = matrices.into_iter().map(|matrix| (matrix.name, matrix.tensor)).collect();
        Ok((Self(by_name), parts))
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }

    /// The matrix of this name.
    pub(super) fn tensor<'a>(&'a self, name: &'a str) -> Option<TensorView<'a>> {
        self.0.get(name).map(|tensor| tensor.view(name))
    }

    /// The type of a matrix, its weights and the bytes that it takes in the files.
    pub(super) fn described(&self, name: &str) -> Option<(String, u64, u64)> {
        let tensor = self.0.get(name)?;
        Some((tensor.stored_as(), tensor.num_elements(), tensor.stored().1 as u64))
    }

    /// The weights of all matrices.
    pub(super) fn num_elements(&self) -> u64 {
        self.sum(|tensor| tensor.num_elements() as usize)
    }

    /// The numbers that the files hold in their place.
    pub(super) fn num_stored(&self) -> u64 {
        self.sum(|tensor| tensor.stored().0)
    }

    /// What reading all matrices delivers, and the bytes that the files hold in their place.
    pub(super) fn read_and_stored(&self) -> (u64, u64) {
        (self.sum(QuantizedTensor::num_bytes), self.sum(|tensor| tensor.stored().1))
    }

    /// The memory that matrices take beyond the files' bytes: those that are kept in `float32`.
    pub(super) fn excess(&self) -> u64 {
        self.sum(
            |tensor| {
                if tensor.is_packed() { 0 } else { tensor.num_bytes().saturating_sub(tensor.stored().1) }
            },
        )
    }

    fn sum(&self, of: impl Fn(&QuantizedTensor) -> usize) -> u64 {
        self.0.values().map(|tensor| of(tensor) as u64).sum()
    }
}

impl fmt::Debug for QuantizedTensors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QuantizedTensors({})", self.0.len())
    }
}

/// The modules that have a tensor `MODULE.suffix`, in alphabetical order.
fn modules(weights: &Weights, suffix: &str) -> Vec<String> {
    let names = weights.names().filter_map(|name| name.strip_suffix(suffix)?.strip_suffix('.'));
    let mut modules: Vec<String> = names.map(str::to_owned).collect();
    modules.sort_unstable();
    modules
}

/// The matrices `MODULE.weight` of all modules that have a tensor `MODULE.suffix`.
fn each_module<T: Into<Option<QuantizedTensor>>>(
    weights: &Weights,
    suffix: &str,
    matrix: impl Fn(Parts<'_>) -> Result<T>,
) -> Result<Vec<Matrix>> {
    let of_module = |module: String| {
        let parts = Parts::new(weights, format!("{module}."));
        let tensor = matrix(parts).context(|| escape::name(&module).into_owned())?;
        Ok(tensor.into().map(|tensor| Matrix { name: format!("{module}.weight"), tensor }))
    };
    modules(weights, suffix).into_iter().filter_map(|module| of_module(module).transpose()).collect()
}
