//! One safetensors file. Its header is checked before any tensor is read.
//!
//! The crate `safetensors` checks holes, overlaps and lengths. This module also limits what the headers of a
//! model hold in all, refuses duplicate names, which the crate would merge, and names the tensor of a
//! contradictory entry. A tensor of another type than float32, bfloat16 or float16 is an error when it is
//! requested.

use std::collections::HashSet;
use std::fmt;

use safetensors::tensor::{Dtype, Metadata};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::Value;

use super::foreign::gguf;
use super::packed::packed_weights;
use super::source::FileBytes;
use rsgen_core::error::{Error, Result, ResultExt as _};
use rsgen_core::escape;
use rsgen_core::json::{Budget, Checked, Strict, shown};
use rsgen_kernels::tensor::{DType, Encoding, StoredBytes, StoredMatrix, WeightType};

/// The most bytes that the headers of a model's files may have together.
pub const MAX_HEADER_BYTES: usize = 32 << 20;
/// The most tensors that a model may have.
pub const MAX_TENSORS: usize = 100_000;
/// The memory that the entry of a tensor may take: a shape of some hundred dimensions.
const MAX_ENTRY_BYTES: usize = 16 << 10;
/// The memory that the metadata of a file may take.
const MAX_METADATA_BYTES: usize = 16 << 20;
const LENGTH_BYTES: usize = 8;

/// A tensor within a file: little-endian numbers, or blocks of them, in row-major order, at any alignment.
#[derive(Debug, Clone, Copy)]
pub struct TensorView<'a> {
    /// Its full name, such as `model.norm.weight`.
    pub name: &'a str,
    /// How its numbers are encoded.
    pub encoding: Encoding,
    /// Its shape.
    pub shape: &'a [usize],
    /// Whether a matrix that its class keeps as `[inputs, outputs]` is stored as `[outputs, inputs]`.
    pub is_transposed: bool,
    /// Its numbers.
    pub bytes: StoredBytes<'a>,
}

impl<'a> TensorView<'a> {
    /// All its numbers as one row.
    pub fn row(&self) -> StoredMatrix<'a> {
        let Self { encoding, shape, bytes, .. } = *self;
        StoredMatrix { encoding, num_rows: 1, num_columns: shape.iter().product(), bytes, cancelled: None }
    }
}

/// What the headers of a model's files may hold beyond those that have been read.
#[derive(Debug, Clone, Copy)]
pub struct HeaderLimits {
    bytes: usize,
    tensors: usize,
}

impl HeaderLimits {
    /// The bytes that are left.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes a header of this length.
    ///
    /// # Errors
    /// `Load` when less is left.
    pub(super) fn take(&mut self, len: usize) -> Result<()> {
        let (left, most) = (self.bytes, MAX_HEADER_BYTES);
        self.bytes = left.checked_sub(len).ok_or_else(|| {
            damaged(if left == most {
                format!("its header may have at most {most} bytes, found {len}")
            } else {
                format!("all headers may have at most {most} bytes, of which {left} are left, found {len}")
            })
        })?;
        Ok(())
    }

    /// Takes a tensor.
    ///
    /// # Errors
    /// `Load` when none is left.
    pub(super) fn take_tensor(&mut self) -> Result<()> {
        let left = self.tensors.checked_sub(1);
        self.tensors =
            left.ok_or_else(|| Error::load(format!("a model has at most {MAX_TENSORS} tensors")))?;
        Ok(())
    }
}

impl Default for HeaderLimits {
    fn default() -> Self {
        Self { bytes: MAX_HEADER_BYTES, tensors: MAX_TENSORS }
    }
}

/// A safetensors file whose header has been checked against its length.
pub struct TensorFile {
    name: String,
    bytes: FileBytes,
    metadata: Metadata,
    /// The offset of the tensors.
    data: usize,
}

impl TensorFile {
    /// Checks the header of a file and takes it from `limits`; `name` is the file's name in errors.
    ///
    /// # Errors
    /// `Load` when the header is too large, damaged or has a name twice, or when the tensors do not fill the
    /// file exactly, as after a download that was cut off.
    pub fn new(name: impl Into<String>, bytes: FileBytes, limits: &mut HeaderLimits) -> Result<Self> {
        let name = name.into();
        let (length, metadata) = read_header(bytes.stored(), limits).context(|| name.clone())?;
        Ok(Self { name, bytes, metadata, data: LENGTH_BYTES + length })
    }

    /// The file's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The names of all tensors, in the order of their place in the file.
    pub fn tensor_names(&self) -> Vec<String> {
        self.metadata.offset_keys()
    }

    /// Whether the file has a tensor of this name.
    pub fn contains(&self, name: &str) -> bool {
        self.metadata.info(name).is_some()
    }

    /// The packed type of the matrices; `None` if the file is no packed one.
    ///
    /// # Errors
    /// `Load` when it was packed by another version of rsgen.
    pub fn packed(&self) -> Result<Option<WeightType>> {
        packed_weights(self.metadata.metadata().as_ref()).context(|| self.name.clone())
    }

    /// The shapes of all packed matrices.
    pub(super) fn packed_shapes(&self) -> Vec<Vec<usize>> {
        let tensors = self.metadata.tensors().into_values();
        tensors.filter(|info| info.dtype == Dtype::U8).map(|info| info.shape.clone()).collect()
    }

    /// The bytes of a packed matrix and its shape, if the file has one of this name.
    ///
    /// # Errors
    /// `Load` when it is stored as numbers of another type.
    pub fn packed_matrix(&self, name: &str) -> Result<Option<(&[usize], StoredBytes<'_>)>> {
        let Some(info) = self.metadata.info(name) else { return Ok(None) };
        if info.dtype != Dtype::U8 {
            return Err(Error::load(format!(
                "{}: {} must be stored as U8, found {}; pack the model again",
                escape::name(&self.name),
                escape::name(name),
                info.dtype
            )));
        }
        let (start, end) = info.data_offsets;
        Ok(Some((&info.shape, self.bytes.stored().part(self.data + start..self.data + end))))
    }

    /// The bytes that all tensors take.
    pub fn data_len(&self) -> usize {
        self.metadata.data_len()
    }

    /// The numbers that all tensors hold.
    pub fn num_elements(&self) -> u64 {
        let sizes =
            self.metadata.tensors().into_values().map(|info| info.shape.iter().product::<usize>() as u64);
        sizes.sum()
    }

    /// The type, the shape and the bytes of a tensor of any type.
    pub(super) fn stored(&self, name: &str) -> Option<(Dtype, &[usize], StoredBytes<'_>)> {
        let info = self.metadata.info(name)?;
        let (start, end) = info.data_offsets;
        Some((info.dtype, &info.shape, self.bytes.stored().part(self.data + start..self.data + end)))
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
}

impl fmt::Debug for TensorFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TensorFile").field("name", &self.name).finish_non_exhaustive()
    }
}

fn damaged(mut what: String) -> Error {
    what += "; the file is damaged, download it again";
    Error::load(what)
}

/// The element type of a tensor as one that weights may have.
///
/// # Errors
/// `Load` when it is none of them.
pub(super) fn float(dtype: Dtype, file: &str, tensor: &str) -> Result<DType> {
    match dtype {
        Dtype::F32 => Ok(DType::F32),
        Dtype::BF16 => Ok(DType::Bf16),
        Dtype::F16 => Ok(DType::F16),
        other => Err(Error::load(format!(
            "{}: {} must be stored as F32, BF16 or F16, found {other}; load the model with transformers and save it with \
             `dtype` float32",
            escape::name(file),
            escape::name(tensor)
        ))),
    }
}

/// Returns the length of the header and its content.
fn read_header(bytes: StoredBytes<'_>, limits: &mut HeaderLimits) -> Result<(usize, Metadata)> {
    let Some(rest) = bytes.len().checked_sub(LENGTH_BYTES) else {
        return Err(damaged(format!("a safetensors file has at least 8 bytes, found {}", bytes.len())));
    };
    let mut length = [0; LENGTH_BYTES];
    bytes.part(0..LENGTH_BYTES).read(&mut length)?;
    if let Some(gguf) = gguf(&length) {
        return Err(Error::load(gguf));
    }
    let length = usize::try_from(u64::from_le_bytes(length)).unwrap_or(usize::MAX);
    limits.take(length)?;
    if length > rest {
        return Err(damaged(format!("its header has {length} bytes, but only {rest} bytes follow")));
    }
    let header = bytes.part(LENGTH_BYTES..LENGTH_BYTES + length).to_vec()?;
    if header.first() != Some(&b'{') {
        return Err(damaged("its header must be a JSON object".to_owned()));
    }
    let mut deserializer = serde_json::Deserializer::from_slice(&header);
    deserializer
        .deserialize_map(HeaderCheck(&mut limits.tensors))
        .and_then(|()| deserializer.end())
        .map_err(|error| damaged("its header is refused".to_owned()).with_source(error))?;
    let not_exactly = || damaged(format!("its tensors do not fill its {} bytes exactly", bytes.len()));
    // Deserializing checks for holes, overlaps and lengths.
    let metadata =
        serde_json::from_slice::<Metadata>(&header).map_err(|error| not_exactly().with_source(error))?;
    if metadata.data_len() != rest - length {
        return Err(not_exactly());
    }
    Ok((length, metadata))
}

/// Checks the number of entries, duplicate keys, and each entry. Takes the tensors from those that a model
/// may have.
struct HeaderCheck<'a>(&'a mut usize);

impl<'de> Visitor<'de> for HeaderCheck<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a safetensors header")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let mut names = HashSet::new();
        while let Some(name) = entries.next_key::<String>()? {
            let wrong = |what: &dyn fmt::Display| {
                A::Error::custom(format!("the tensor \"{}\" {what}", escape::name(&name)))
            };
            if name == "__metadata__" {
                entries.next_value_seed(Checked(&Budget::new(MAX_METADATA_BYTES)))?;
            } else {
                let left = self.0.checked_sub(1);
                *self.0 = left.ok_or_else(|| A::Error::custom(format!("more than {MAX_TENSORS} tensors")))?;
                let entry = entries.next_value_seed(Strict(&Budget::new(MAX_ENTRY_BYTES)));
                check_entry(&entry.map_err(|error| wrong(&error))?).map_err(|what| wrong(&what))?;
            }
            if names.contains(&name) {
                return Err(wrong(&"comes twice"));
            }
            names.insert(name);
        }
        Ok(())
    }
}

/// Returns what is wrong with the entry of a tensor.
fn check_entry(entry: &Value) -> Result<(), String> {
    let field = |name: &str| entry.get(name).ok_or_else(|| format!("has no {name}"));
    let (dtype, shape, offsets) = (field("dtype")?, field("shape")?, field("data_offsets")?);
    let bits =
        Dtype::deserialize(dtype).map_err(|_| format!("has the unknown dtype {}", shown(dtype)))?.bitsize();
    let sizes = |value: &Value| Vec::<usize>::deserialize(value).ok();
    let dimensions =
        sizes(shape).ok_or_else(|| format!("has the shape {}, which is no list of sizes", shown(shape)))?;
    let [start, end] = sizes(offsets).unwrap_or_default()[..] else {
        return Err(format!("has the data_offsets {}, which are not two places", shown(offsets)));
    };
    let Some(held) = end.checked_sub(start) else {
        return Err(format!("has the data_offsets {}, whose end is before the start", shown(offsets)));
    };
    let taken = dimensions.iter().try_fold(bits, |bits, &size| bits.checked_mul(size));
    if taken != held.checked_mul(8) {
        let dtype = shown(dtype);
        return Err(format!(
            "has the shape {} of dtype {dtype}, but its data_offsets {} hold {held} bytes",
            shown(shape),
            shown(offsets)
        ));
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests;
