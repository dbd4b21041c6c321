//! The tensors of GGUF files by the names that transformers has for them, read row by row where their order
//! differs.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::container::Container;
use super::types;
use crate::weights::safetensors::TensorView;
use rsgen_core::error::{Error, Result};
use rsgen_core::escape;
use rsgen_core::memory;
use rsgen_kernels::tensor::{DType, ReadBytes, StoredBytes};

/// A tensor under its name in transformers.
pub(super) struct Named {
    pub(super) name: String,
    pub(super) type_id: u32,
    pub(super) shape: Vec<usize>,
    pub(super) source: Source,
}

/// Where the bytes of a tensor are.
pub(super) enum Source {
    /// In a file, as they are.
    Stored(Part),
    /// In files, in another order.
    Made(Made),
    Memory(Vec<u8>),
}

/// Rows of a stored tensor.
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub(super) file: usize,
    pub(super) place: Range<usize>,
    pub(super) row_bytes: usize,
}

/// A tensor that is made while it is read.
pub(super) struct Made {
    pub(super) files: Arc<[Container]>,
    /// All with rows of one length.
    pub(super) parts: Vec<Part>,
    pub(super) order: Order,
    /// Whether 1 is taken from each number, which is float32.
    pub(super) minus_one: bool,
}

/// In which order rows are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Same,
    /// Of each head, the rows of both halves in turns.
    Pairs {
        head_dim: usize,
    },
    /// All queries, then all keys, then all values; transformers has groups of queries with a key and a
    /// value.
    Ungrouped {
        head_dim: usize,
        queries: usize,
        keys: usize,
    },
}

/// All tensors of a model.
pub(in crate::weights) struct GgufTensors {
    files: Arc<[Container]>,
    named: Vec<Named>,
    by_name: HashMap<String, usize>,
    /// Whether matrices of `Conv1D` are stored as those of other layers.
    is_transposed: bool,
}

impl Order {
    /// The stored row of a row of transformers.
    pub(super) fn stored_row(self, row: usize) -> usize {
        match self {
            Self::Same => row,
            Self::Pairs { head_dim } => {
                let (head, place) = (row / head_dim, row % head_dim);
                let (half, pair) = (place / (head_dim / 2).max(1), place % (head_dim / 2).max(1));
                head * head_dim + 2 * pair + half
            }
            Self::Ungrouped { head_dim, queries, keys } => {
                let per_group = queries / keys;
                let (head, place) = (row / head_dim, row % head_dim);
                let (group, in_group) = (head / (per_group + 2), head % (per_group + 2));
                let stored = match in_group.checked_sub(per_group) {
                    None => group * per_group + in_group,
                    Some(which) => queries + which * keys + group,
                };
                stored * head_dim + place
            }
        }
    }
}

impl GgufTensors {
    /// # Errors
    /// `Load` when two tensors have the same name.
    pub(super) fn new(files: Arc<[Container]>, named: Vec<Named>, is_transposed: bool) -> Result<Self> {
        let mut by_name = HashMap::with_capacity(named.len());
        for (index, tensor) in named.iter().enumerate() {
            if by_name.insert(tensor.name.clone(), index).is_some() {
                return Err(Error::load(format!(
                    "the tensor {} comes twice, perhaps as a whole and in parts; the file is damaged, download it again",
                    escape::name(&tensor.name)
                )));
            }
        }
        Ok(Self { files, named, by_name, is_transposed })
    }

    /// The names of all tensors, in the order of the file.
    pub(in crate::weights) fn names(&self) -> impl Iterator<Item = &str> {
        self.named.iter().map(|tensor| &*tensor.name)
    }

    /// The bytes that all tensors take.
    pub(in crate::weights) fn data_len(&self) -> usize {
        self.files.iter().flat_map(|file| &file.tensors).map(|tensor| tensor.place.len()).sum()
    }

    /// The numbers that all tensors hold.
    pub(in crate::weights) fn num_elements(&self) -> u64 {
        let sizes = self.files.iter().flat_map(|file| &file.tensors);
        sizes.map(|tensor| tensor.shape.iter().product::<usize>() as u64).sum()
    }

    /// The tensor of this name, if it is there.
    ///
    /// # Errors
    /// `Load` when it is stored in a type that is not supported.
    pub(in crate::weights) fn tensor<'a>(&'a self, name: &'a str) -> Result<Option<TensorView<'a>>> {
        let Some(&index) = self.by_name.get(name) else { return Ok(None) };
        let Named { type_id, shape, source, .. } = &self.named[index];
        let encoding = types::encoding(*type_id).ok_or_else(|| unsupported(name, *type_id))?;
        let bytes = match source {
            Source::Stored(part) => self.files[part.file].bytes.stored().part(part.place.clone()),
            Source::Memory(bytes) => (&bytes[..]).into(),
            Source::Made(made) => {
                let len = made.parts.iter().map(|part| part.place.len()).sum();
                StoredBytes::Reader { reader: made, start: 0, len }
            }
        };
        if matches!(source, Source::Made(made) if made.minus_one) && encoding != DType::F32.into() {
            return Err(Error::load(format!(
                "{} must be stored as F32, as all norms are, found {}; convert the model again",
                escape::name(name),
                types::name(*type_id)
            )));
        }
        let is_transposed = self.is_transposed;
        Ok(Some(TensorView { name, encoding, shape, is_transposed, bytes }))
    }

    /// The type of a tensor, its numbers and its bytes in the file; of any type.
    pub(in crate::weights) fn described(&self, name: &str) -> Option<(String, u64, u64)> {
        let Named { type_id, shape, source, .. } = &self.named[*self.by_name.get(name)?];
        let bytes = match source {
            Source::Stored(part) => part.place.len(),
            Source::Made(made) => made.parts.iter().map(|part| part.place.len()).sum(),
            Source::Memory(_) => 0,
        };
        let dtype = types::encoding(*type_id);
        let dtype = dtype.map_or_else(|| types::name(*type_id), |encoding| encoding.name().to_owned());
        Some((dtype, shape.iter().product::<usize>() as u64, bytes as u64))
    }

    /// The numbers of a stored float32 tensor of at most `most` numbers.
    pub(super) fn small_floats(files: &[Container], name: &str, most: usize) -> Result<Option<Vec<f32>>> {
        let all = files.iter().flat_map(|file| file.tensors.iter().map(move |tensor| (file, tensor)));
        let mut all = all.filter(|(_, tensor)| tensor.name == name);
        let Some((file, tensor)) = all.next() else { return Ok(None) };
        if tensor.type_id != 0 || tensor.place.len() > 4 * most {
            return Err(Error::load(format!(
                "the tensor {} must hold at most {most} numbers of F32, found {:?} of {}; the file is damaged",
                escape::name(name),
                tensor.shape,
                types::name(tensor.type_id)
            )));
        }
        let bytes = file.bytes.stored().part(tensor.place.clone()).to_vec()?;
        let mut floats = Vec::new();
        memory::reserve(&mut floats, bytes.len() / 4, "numbers of a tensor")?;
        floats.extend(DType::F32.to_f32(&bytes));
        Ok(Some(floats))
    }
}

impl ReadBytes for Made {
    fn read(&self, start: usize, out: &mut [u8]) -> Result<()> {
        let Some(row_bytes) = self.parts.first().map(|part| part.row_bytes).filter(|&bytes| bytes > 0) else {
            return Ok(());
        };
        let (mut at, mut rest) = (start, &mut *out);
        while !rest.is_empty() {
            // The first and the last row may be asked for in part.
            let (row, in_row) = (at / row_bytes, at % row_bytes);
            let stored = self.order.stored_row(row);
            // Rows that follow each other here and there are read at once.
            let mut rows = 1;
            while rows * row_bytes < rest.len() + in_row && self.order.stored_row(row + rows) == stored + rows
            {
                rows += 1;
            }
            let len = (rows * row_bytes - in_row).min(rest.len());
            let (now, later) = rest.split_at_mut(len);
            self.read_rows(stored * row_bytes + in_row, now)?;
            (at, rest) = (at + len, later);
        }
        if self.minus_one {
            let (numbers, _) = out.as_chunks_mut::<4>();
            for number in numbers {
                *number = (f32::from_le_bytes(*number) - 1.0).to_le_bytes();
            }
        }
        Ok(())
    }
}

impl Made {
    /// Reads bytes of the parts, which follow each other.
    fn read_rows(&self, mut start: usize, mut out: &mut [u8]) -> Result<()> {
        for part in &self.parts {
            if out.is_empty() {
                break;
            }
            let Some(len) = part.place.len().checked_sub(start).filter(|&len| len > 0) else {
                start -= part.place.len();
                continue;
            };
            let (now, later) = out.split_at_mut(len.min(out.len()));
            let from = part.place.start + start;
            self.files[part.file].bytes.stored().part(from..from + now.len()).read(now)?;
            (start, out) = (0, later);
        }
        Ok(())
    }
}

impl fmt::Debug for GgufTensors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GgufTensors").field("tensors", &self.named.len()).finish_non_exhaustive()
    }
}

#[cold]
fn unsupported(name: &str, type_id: u32) -> Error {
    Error::load(format!(
        "{} is stored as {}, which is not supported; use a file whose tensors are Q8_0, Q6_K, Q5_K, Q4_K, Q4_0 or of \
         another of the types that docs/weight_files.md lists",
        escape::name(name),
        types::name(type_id)
    ))
}
