//! Packed files: a `model.safetensors` whose matrices are in the layout that rsgen computes with.
//! `docs/packed_models.md` describes it.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::str::FromStr as _;

use safetensors::tensor::{Dtype, View, serialize_to_file};

use super::safetensors::TensorView;
use super::shards::Weights;
use rsgen_core::error::{Error, Result, ResultExt as _};
use rsgen_core::escape;
use rsgen_core::json::shown;
use rsgen_kernels::quant::PackedMatrix;
use rsgen_kernels::tensor::{DType, Encoding, StoredBytes, WeightType};

/// The fields of the metadata.
const FORMAT: &str = "format";
const VERSION: &str = "rsgen_packed_version";
const WEIGHTS: &str = "rsgen_packed_dtype";
/// Their values.
const PACKED: &str = "rsgen_packed";
const CURRENT: &str = "1";

/// The name of a matrix that was packed from several tensors.
pub(super) fn packed_name(parts: &[String]) -> String {
    parts.join("+")
}

/// The metadata of a packed file.
fn packed_metadata(weights: WeightType) -> HashMap<String, String> {
    [(FORMAT, PACKED), (VERSION, CURRENT), (WEIGHTS, weights.name())]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
}

/// The packed type of the matrices of a file with this metadata; `None` if it is no packed file.
///
/// # Errors
/// `Load` when it was packed by a version of rsgen that this one does not know.
pub(super) fn packed_weights(metadata: Option<&HashMap<String, String>>) -> Result<Option<WeightType>> {
    let field = |name: &str| metadata.and_then(|fields| fields.get(name)).map(String::as_str);
    if field(FORMAT) != Some(PACKED) {
        return Ok(None);
    }
    let refused = |name: &str, rule: &str| {
        let value = field(name).map_or("nothing".to_owned(), |value| shown(&value.into()));
        Error::load(format!(
            "{name} must be {rule}, found {value}; pack the model again with this version of rsgen"
        ))
    };
    if field(VERSION) != Some(CURRENT) {
        return Err(refused(VERSION, &format!("\"{CURRENT}\"")));
    }
    let weights = field(WEIGHTS).and_then(|name| WeightType::from_str(name).ok());
    match weights {
        Some(weights @ (WeightType::Int8 | WeightType::Int4)) => Ok(Some(weights)),
        _ => Err(refused(WEIGHTS, "\"int8\" or \"int4\"")),
    }
}

impl Weights {
    /// How many weights each packed matrix holds, padding included, and their type; nothing of a model that
    /// is not packed.
    pub fn packed_parameters(&self) -> Vec<(WeightType, u64)> {
        let is_packed = self.packed().is_ok_and(|packed| packed.is_some());
        let shapes = if is_packed { self.packed_shapes() } else { Vec::new() };
        shapes.iter().filter_map(|shape| PackedMatrix::weights_in_file(shape)).collect()
    }

    /// Writes a packed file with these matrices, each with the names of its parts, and with tensors of these
    /// weights as they are. Returns the bytes of all.
    ///
    /// # Errors
    /// `Load` when a tensor cannot be read or the file cannot be written.
    pub fn write_packed(
        &self,
        path: &Path,
        weights: WeightType,
        matrices: Vec<(Vec<String>, PackedMatrix)>,
        tensors: &BTreeSet<String>,
    ) -> Result<u64> {
        let unread = RefCell::new(None);
        let mut items = Vec::with_capacity(matrices.len() + tensors.len());
        for (parts, matrix) in matrices {
            items.push((packed_name(&parts), Item::matrix(matrix)?));
        }
        for name in tensors {
            if let Some(tensor) = self.tensor(name)? {
                items.push((tensor.name.to_owned(), Item::stored(tensor, &unread)));
            }
        }
        write(path, packed_metadata(weights), items, &unread)
    }
}

/// Writes a safetensors file, tensor by tensor. Returns the bytes of all.
pub(super) fn write(
    path: &Path,
    metadata: HashMap<String, String>,
    items: Vec<(String, Item<'_>)>,
    unread: &Unread,
) -> Result<u64> {
    let bytes = items.iter().map(|(_, item)| item.data_len() as u64).sum();
    serialize_to_file(items, Some(metadata), path).map_err(|error| {
        let path = path.to_string_lossy();
        Error::load(format!("{} cannot be written", escape::name(&path))).with_source(error)
    })?;
    unread.take().map_or(Ok(bytes), Err)
}

/// The error of a tensor that could not be read: the library has no way to say so.
pub(super) type Unread = RefCell<Option<Error>>;

/// A tensor of a file that is written.
pub(super) enum Item<'a> {
    Matrix {
        matrix: PackedMatrix,
        shape: [usize; 3],
    },
    /// As it is stored.
    Tensor {
        name: &'a str,
        dtype: Dtype,
        shape: &'a [usize],
        bytes: StoredBytes<'a>,
        unread: &'a Unread,
    },
    /// As `float32`, since such files hold no blocks.
    Blocks {
        tensor: TensorView<'a>,
        unread: &'a Unread,
    },
    /// As `float32` whose rows become columns; the shape is the new one.
    Transposed {
        tensor: TensorView<'a>,
        shape: [usize; 2],
        unread: &'a Unread,
    },
}

impl<'a> Item<'a> {
    /// A tensor as it is stored, or in `float32` if it has blocks.
    pub(super) fn stored(tensor: TensorView<'a>, unread: &'a Unread) -> Self {
        let TensorView { name, encoding, shape, bytes, .. } = tensor;
        let dtype = match encoding {
            Encoding::Plain(DType::F32) => Dtype::F32,
            Encoding::Plain(DType::Bf16) => Dtype::BF16,
            Encoding::Plain(DType::F16) => Dtype::F16,
            Encoding::Blocks(_) | Encoding::Indexed(_) => return Self::Blocks { tensor, unread },
        };
        Self::Tensor { name, dtype, shape, bytes, unread }
    }

    fn matrix(matrix: PackedMatrix) -> Result<Self> {
        let shape = matrix.packed_shape().ok_or_else(|| Error::internal("a packed matrix has a shape"))?;
        Ok(Self::Matrix { matrix, shape })
    }
}

impl View for Item<'_> {
    fn dtype(&self) -> Dtype {
        match self {
            Self::Matrix { .. } => Dtype::U8,
            Self::Tensor { dtype, .. } => *dtype,
            Self::Blocks { .. } | Self::Transposed { .. } => Dtype::F32,
        }
    }

    fn shape(&self) -> &[usize] {
        match self {
            Self::Matrix { shape, .. } => shape,
            Self::Tensor { shape, .. } => shape,
            Self::Transposed { shape, .. } => shape,
            Self::Blocks { tensor, .. } => tensor.shape,
        }
    }

    fn data(&self) -> Cow<'_, [u8]> {
        let (name, read, unread) = match self {
            Self::Matrix { matrix, .. } => return matrix.to_file().into(),
            // After an error the file is of no use, so the rest is not read.
            Self::Tensor { unread, .. } | Self::Blocks { unread, .. } | Self::Transposed { unread, .. }
                if unread.borrow().is_some() =>
            {
                return Cow::default();
            }
            Self::Tensor { name, bytes, unread, .. } => (*name, bytes.to_vec(), unread),
            Self::Blocks { tensor, unread } => {
                let floats = tensor.row().to_f32();
                let bytes = floats.map(|floats| floats.into_iter().flat_map(f32::to_le_bytes).collect());
                (tensor.name, bytes, unread)
            }
            Self::Transposed { tensor, shape: [_, columns], unread } => {
                let floats = tensor.row().to_f32();
                let bytes = floats.map(|floats| {
                    let rows = floats.len().checked_div(*columns).unwrap_or(0);
                    let column = |row: usize| floats[row..].iter().step_by(rows);
                    (0..rows).flat_map(column).flat_map(|value| value.to_le_bytes()).collect()
                });
                (tensor.name, bytes, unread)
            }
        };
        match read.context(|| name.to_owned()) {
            Ok(bytes) => bytes.into(),
            Err(error) => {
                unread.replace(Some(error));
                Cow::default()
            }
        }
    }

    fn data_len(&self) -> usize {
        match self {
            Self::Matrix { shape, .. } => shape.iter().product(),
            Self::Tensor { bytes, .. } => bytes.len(),
            Self::Blocks { tensor, .. } | Self::Transposed { tensor, .. } => {
                tensor.row().len() * DType::F32.bytes()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_file_is_known_by_its_metadata() {
        assert_eq!(packed_weights(None).unwrap(), None);
        let other = HashMap::from([("format".to_owned(), "pt".to_owned())]);
        assert_eq!(packed_weights(Some(&other)).unwrap(), None);
        for weights in [WeightType::Int8, WeightType::Int4] {
            assert_eq!(packed_weights(Some(&packed_metadata(weights))).unwrap(), Some(weights));
        }
        for (field, value) in [(VERSION, "2"), (WEIGHTS, "int3"), (WEIGHTS, "float32")] {
            let mut fields = packed_metadata(WeightType::Int4);
            fields.insert(field.to_owned(), value.to_owned());
            let error = packed_weights(Some(&fields)).unwrap_err().to_string();
            assert!(error.contains(field) && error.contains(value) && error.contains("pack"), "{error}");
        }
    }
}
