//! The container of a GGUF file: its header, its metadata and the places of its tensors.
//!
//! The file is untrusted. Each count and length is compared with the bytes that remain before anything is
//! allocated for it, and all headers of a model together are limited as those of safetensors are.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::ops::Range;

use super::value::{Kind, Metadata, Value, wrong};
use crate::weights::safetensors::HeaderLimits;
use crate::weights::source::FileBytes;
use rsgen_core::error::{Error, Result, ResultExt as _};
use rsgen_core::escape;
use rsgen_core::memory;
use rsgen_kernels::tensor::StoredBytes;

/// The first bytes of each file.
pub(super) const MAGIC: &[u8; 4] = b"GGUF";
/// The versions that are read: they differ in the order of bytes alone, which is little-endian here.
const VERSIONS: std::ops::RangeInclusive<u32> = 2..=3;
/// The bytes that an entry takes at least: the length of its key, its type and its value.
const MIN_ENTRY_BYTES: u64 = 8 + 4 + 1;
/// The same for a tensor: the length of its name, its dimensions and their number, its type and its offset.
const MIN_TENSOR_BYTES: u64 = 8 + 4 + 8 + 4 + 8;
/// llama.cpp's limits.
const MAX_DIMENSIONS: u32 = 4;
const MAX_NAME_BYTES: usize = 64;
const MAX_KEY_BYTES: usize = 1 << 16;
const DEFAULT_ALIGNMENT: u64 = 32;
const MAX_ALIGNMENT: u64 = 1 << 20;
/// The bytes that are read at a time.
const WINDOW_BYTES: usize = 1 << 20;

/// A GGUF file whose header has been checked against its length.
pub(super) struct Container {
    pub(super) name: String,
    pub(super) bytes: FileBytes,
    pub(super) metadata: Metadata,
    pub(super) tensors: Vec<TensorInfo>,
}

/// What a header says about a tensor.
#[derive(Debug)]
pub(super) struct TensorInfo {
    pub(super) name: String,
    /// The slowest axis first, as everywhere else.
    pub(super) shape: Vec<usize>,
    /// The format's number of the type.
    pub(super) type_id: u32,
    /// Its bytes within the file; for a type that is not supported, those up to the next tensor.
    pub(super) place: Range<usize>,
}

impl Container {
    /// Reads the header of a file and takes it from `limits`; `name` is the file's name in errors.
    ///
    /// # Errors
    /// `Load` when it is cut off, damaged, too large, or of a version that is not supported.
    pub(super) fn read(name: &str, bytes: FileBytes, limits: &mut HeaderLimits) -> Result<Self> {
        let mut read = || {
            let mut reader = Reader::new(bytes.stored(), limits.bytes());
            let (num_tensors, num_entries) = read_counts(&mut reader)?;
            let metadata = read_metadata(&mut reader, num_entries)?;
            let alignment = alignment(&metadata)?;
            let tensors = read_tensors(&mut reader, num_tensors, limits)?;
            limits.take(reader.position())?;
            let start = (reader.position() as u64).next_multiple_of(alignment);
            let len = bytes.stored().len() as u64;
            let tensors = place_tensors(tensors, start, alignment, len)?;
            Ok((metadata, tensors))
        };
        let (metadata, tensors) = read().context(|| name.to_owned())?;
        Ok(Self { name: name.to_owned(), bytes, metadata, tensors })
    }
}

impl fmt::Debug for Container {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Container").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The numbers of tensors and of entries of the metadata.
fn read_counts(reader: &mut Reader<'_>) -> Result<(u64, u64)> {
    let magic = reader.take::<4>("the magic")?;
    if &magic != MAGIC {
        return Err(damaged(format!("the magic must be \"GGUF\", found {}", magic.escape_ascii())));
    }
    let version = reader.u32("the version")?;
    if VERSIONS.contains(&version.swap_bytes()) {
        return Err(Error::load(
            "it is a big-endian GGUF file, which is not supported; download the little-endian file, or convert it with \
             gguf-convert-endian",
        ));
    }
    if version == 1 {
        return Err(Error::load(
            "the version of the GGUF format must be 2 or 3, found 1, that of 2023; download a newer file of the model",
        ));
    }
    if !VERSIONS.contains(&version) {
        return Err(damaged(format!("the version of the GGUF format must be 2 or 3, found {version}")));
    }
    let mut count = |field: &str, least: u64| {
        let count = reader.u64(field)?;
        let most = reader.remaining() as u64 / least;
        if count > most {
            return Err(damaged(format!(
                "{field} must be at most {most} in a file of this size, found {count}"
            )));
        }
        Ok(count)
    };
    Ok((count("tensor_count", MIN_TENSOR_BYTES)?, count("metadata_kv_count", MIN_ENTRY_BYTES)?))
}

fn read_metadata(reader: &mut Reader<'_>, count: u64) -> Result<Metadata> {
    let mut entries = BTreeMap::new();
    for index in 0..count {
        let key = reader.text(&|| format!("the key of entry {index}"), MAX_KEY_BYTES)?;
        let of_key = |what: &str| format!("{what} of {}", escape::name(&key));
        let type_id = reader.u32(&of_key("the type"))?;
        let value = read_value(reader, &key, type_id)?;
        if entries.insert(key.clone(), value).is_some() {
            return Err(damaged(format!("the key {} comes twice", escape::name(&key))));
        }
    }
    Ok(Metadata(entries))
}

fn read_value(reader: &mut Reader<'_>, key: &str, type_id: u32) -> Result<Value> {
    const TEXT: u32 = 8;
    const LIST: u32 = 9;
    let shown = escape::name(key);
    let unknown = |what: &str, id| {
        damaged(format!("{what} of {shown} must be one of the 13 types of the format, found {id}"))
    };
    let text = |reader: &mut Reader<'_>| reader.text(&|| format!("the text of {shown}"), usize::MAX);
    if type_id == TEXT {
        return text(reader).map(Value::Text);
    }
    if type_id != LIST {
        let kind = Kind::from_id(type_id).ok_or_else(|| unknown("the type", type_id))?;
        let bytes = reader.bytes(kind.bytes(), &|| format!("the value of {shown}"))?;
        let number = kind.read(&bytes);
        return number
            .map(Value::Number)
            .ok_or_else(|| damaged(format!("{shown} must be true or false, found the byte {}", bytes[0])));
    }
    let element = reader.u32(&format!("the type of the elements of {shown}"))?;
    let count = reader.u64(&format!("the length of {shown}"))?;
    let size = match element {
        TEXT => 8,
        LIST => {
            return Err(damaged(format!("{shown} must be a list of plain values, found a list of lists")));
        }
        _ => Kind::from_id(element).ok_or_else(|| unknown("the type of the elements", element))?.bytes(),
    };
    let most = (reader.remaining() / size) as u64;
    if count > most {
        return Err(damaged(format!("the length of {shown} must be at most {most} here, found {count}")));
    }
    match Kind::from_id(element) {
        Some(kind) => {
            let len = count as usize * kind.bytes();
            reader.bytes(len, &|| format!("the list {shown}")).map(|bytes| Value::Numbers(kind, bytes))
        }
        None => (0..count).map(|_| text(reader)).collect::<Result<_>>().map(Value::Texts),
    }
}

fn alignment(metadata: &Metadata) -> Result<u64> {
    const KEY: &str = "general.alignment";
    let alignment = metadata.count(KEY)?.unwrap_or(DEFAULT_ALIGNMENT);
    if alignment.is_power_of_two() && (8..=MAX_ALIGNMENT).contains(&alignment) {
        return Ok(alignment);
    }
    Err(wrong(KEY, &format!("a power of two from 8 to {MAX_ALIGNMENT}"), metadata.get(KEY)))
}

/// A tensor before its place is checked: `place` starts at its offset and is empty.
fn read_tensors(
    reader: &mut Reader<'_>,
    count: u64,
    limits: &mut HeaderLimits,
) -> Result<Vec<(TensorInfo, u64)>> {
    let (mut tensors, mut names) = (Vec::new(), HashSet::new());
    for index in 0..count {
        limits.take_tensor()?;
        let name = reader.text(&|| format!("the name of tensor {index}"), MAX_NAME_BYTES)?;
        let of_tensor = |what: &str| format!("{what} of the tensor {}", escape::name(&name));
        if !names.insert(name.clone()) {
            return Err(damaged(format!("the tensor {} comes twice", escape::name(&name))));
        }
        let num_dimensions = reader.u32(&of_tensor("the number of dimensions"))?;
        if !(1..=MAX_DIMENSIONS).contains(&num_dimensions) {
            return Err(damaged(format!(
                "{} must be from 1 to {MAX_DIMENSIONS}, found {num_dimensions}",
                of_tensor("the number of dimensions")
            )));
        }
        let mut shape = Vec::new();
        for axis in 0..num_dimensions {
            let field = of_tensor(&format!("dimension {axis}"));
            let size = reader.u64(&field)?;
            let fits = usize::try_from(size).ok().filter(|&size| size > 0);
            shape.push(fits.ok_or_else(|| damaged(format!("{field} must be at least 1, found {size}")))?);
        }
        // The file has the fastest axis first. A single number is a vector of one.
        shape.reverse();
        let in_range = shape.iter().try_fold(1_usize, |product, &size| product.checked_mul(size));
        if in_range.is_none_or(|product| product > isize::MAX as usize / 8) {
            return Err(damaged(format!("{} are too large: {shape:?}", of_tensor("the dimensions"))));
        }
        let type_id = reader.u32(&of_tensor("the type"))?;
        let offset = reader.u64(&of_tensor("the offset"))?;
        tensors.push((TensorInfo { name, shape, type_id, place: 0..0 }, offset));
    }
    Ok(tensors)
}

/// Checks where the tensors are: aligned, within the file, and apart from each other.
fn place_tensors(
    mut tensors: Vec<(TensorInfo, u64)>,
    start: u64,
    alignment: u64,
    len: u64,
) -> Result<Vec<TensorInfo>> {
    let mut offsets: Vec<u64> = tensors.iter().map(|(_, offset)| *offset).collect();
    offsets.sort_unstable();
    for (tensor, offset) in &mut tensors {
        let offset = *offset;
        let field = format!("the offset of the tensor {}", escape::name(&tensor.name));
        if !offset.is_multiple_of(alignment) {
            return Err(damaged(format!("{field} must be a multiple of {alignment}, found {offset}")));
        }
        let next = offsets[offsets.partition_point(|&other| other <= offset)..].first().copied();
        if offsets.binary_search(&offset).is_ok_and(|at| {
            offsets.get(at + 1) == Some(&offset) || at.checked_sub(1).map(|at| offsets[at]) == Some(offset)
        }) {
            return Err(damaged(format!("{field}, {offset}, is that of another tensor too")));
        }
        let Some(first) = start.checked_add(offset).filter(|&first| first < len) else {
            return Err(damaged(format!(
                "{field} must be within the {} bytes of data, found {offset}",
                len.saturating_sub(start)
            )));
        };
        let end = next.map_or(len, |next| start.saturating_add(next).min(len));
        let room = end - first;
        let shown = escape::name(&tensor.name);
        let Some((elements, bytes)) = super::types::block(tensor.type_id) else {
            let found = tensor.type_id;
            return Err(damaged(format!(
                "the type of the tensor {shown} must be one of the format, found {found}"
            )));
        };
        let columns = tensor.shape.last().copied().unwrap_or(1);
        if !columns.is_multiple_of(elements) {
            return Err(damaged(format!(
                "the rows of the tensor {shown} must be whole blocks of {elements} numbers in {}, found rows of {columns}",
                super::types::name(tensor.type_id)
            )));
        }
        let needed = (tensor.shape.iter().product::<usize>() / elements * bytes) as u64;
        if needed > room {
            let until = if next.is_some() { "the next tensor" } else { "the end of the file" };
            return Err(damaged(format!(
                "the tensor {} takes {needed} bytes, but there are {room} up to {until}",
                escape::name(&tensor.name)
            )));
        }
        tensor.place = first as usize..(first + needed) as usize;
    }
    Ok(tensors.into_iter().map(|(tensor, _)| tensor).collect())
}

/// Reads the header from front to back, a window at a time.
struct Reader<'a> {
    bytes: StoredBytes<'a>,
    /// The place of the window in the file, and what was read of it.
    start: usize,
    window: Vec<u8>,
    /// The next byte, in the window.
    at: usize,
    /// The most bytes of a header.
    limit: usize,
}

impl<'a> Reader<'a> {
    fn new(bytes: StoredBytes<'a>, limit: usize) -> Self {
        Self { bytes, start: 0, window: Vec::new(), at: 0, limit }
    }

    fn position(&self) -> usize {
        self.start + self.at
    }

    /// The bytes of the file that follow.
    fn remaining(&self) -> usize {
        self.bytes.len() - self.position()
    }

    fn bytes(&mut self, len: usize, field: &dyn Fn() -> String) -> Result<Vec<u8>> {
        if len > self.remaining() {
            let remaining = self.remaining();
            return Err(damaged(format!("{} takes {len} bytes, but only {remaining} follow", field())));
        }
        let end = self.position() + len;
        if end > self.limit {
            return Err(damaged(format!(
                "its header may have at most {} bytes, found more in {}",
                self.limit,
                field()
            )));
        }
        let mut taken = Vec::new();
        memory::reserve(&mut taken, len, "bytes of a header")?;
        while taken.len() < len {
            if self.at == self.window.len() {
                self.start += self.at;
                let next = self.start..self.bytes.len().min(self.start + WINDOW_BYTES);
                (self.window, self.at) = (self.bytes.part(next).to_vec()?, 0);
            }
            let part = self.window.len().min(self.at + len - taken.len());
            taken.extend_from_slice(&self.window[self.at..part]);
            self.at = part;
        }
        Ok(taken)
    }

    fn take<const N: usize>(&mut self, field: &str) -> Result<[u8; N]> {
        let bytes = self.bytes(N, &|| field.to_owned())?;
        Ok(bytes.first_chunk().copied().unwrap_or([0; N]))
    }

    fn u32(&mut self, field: &str) -> Result<u32> {
        self.take(field).map(u32::from_le_bytes)
    }

    fn u64(&mut self, field: &str) -> Result<u64> {
        self.take(field).map(u64::from_le_bytes)
    }

    fn text(&mut self, field: &dyn Fn() -> String, most: usize) -> Result<String> {
        let len = self.bytes(8, &|| format!("the length of {}", field()))?;
        let len = u64::from_le_bytes(len.first_chunk().copied().unwrap_or_default());
        let most = most.min(self.remaining());
        let Some(len) = usize::try_from(len).ok().filter(|&len| len <= most) else {
            return Err(damaged(format!("{} may have at most {most} bytes here, found {len}", field())));
        };
        let bytes = self.bytes(len, field)?;
        String::from_utf8(bytes)
            .map_err(|error| damaged(format!("{} must be UTF-8", field())).with_source(error))
    }
}

#[cold]
pub(super) fn damaged(mut what: String) -> Error {
    what += "; the file is damaged, download it again";
    Error::load(what)
}
