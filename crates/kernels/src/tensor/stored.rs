//! Stored tensors: in memory, in a file that is read in parts, or behind a callback that copies parts.
//!
//! Why files are not mapped into memory: docs/decisions/0007.

use std::fmt;
use std::fs::File;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use super::encoding::Encoding;
use rsgen_core::{Error, Result, memory};

/// The bytes of a tensor.
#[derive(Debug, Clone, Copy)]
pub enum StoredBytes<'a> {
    /// In memory.
    Memory(&'a [u8]),
    /// `len` bytes of a file, from `start` on.
    File {
        /// The file, open for reading.
        file: &'a File,
        /// The offset of the first byte.
        start: u64,
        /// The number of bytes.
        len: usize,
    },
    /// `len` bytes that something else copies, from `start` on.
    Reader {
        /// What copies them.
        reader: &'a dyn ReadBytes,
        /// The offset of the first byte.
        start: usize,
        /// The number of bytes.
        len: usize,
    },
}

/// Copies parts of a tensor's bytes. Several threads may ask at the same time.
pub trait ReadBytes: Send + Sync {
    /// Copies the bytes from `start` on to `out`. Parts begin and end with an element.
    ///
    /// # Errors
    /// `Load` when they cannot be read.
    fn read(&self, start: usize, out: &mut [u8]) -> Result<()>;
}

impl fmt::Debug for dyn ReadBytes + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReadBytes")
    }
}

impl StoredBytes<'_> {
    /// The number of bytes.
    pub fn len(&self) -> usize {
        match *self {
            Self::Memory(bytes) => bytes.len(),
            Self::File { len, .. } | Self::Reader { len, .. } => len,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether both are known, without reading, to be the same bytes: one place in memory or in a file.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Memory(one), Self::Memory(other)) => std::ptr::eq(*one, *other),
            (
                Self::File { file, start, len },
                Self::File { file: other_file, start: other_start, len: other_len },
            ) => std::ptr::eq(*file, *other_file) && start == other_start && len == other_len,
            _ => false,
        }
    }

    /// Some of the bytes.
    ///
    /// # Panics
    /// When the range is out of bounds.
    #[must_use]
    pub fn part(&self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.len(), "a part lies within the bytes");
        match *self {
            Self::Memory(bytes) => Self::Memory(&bytes[range]),
            Self::File { file, start, .. } => {
                Self::File { file, start: start + range.start as u64, len: range.len() }
            }
            Self::Reader { reader, start, .. } => {
                Self::Reader { reader, start: start + range.start, len: range.len() }
            }
        }
    }

    /// Copies all of them to `out`.
    ///
    /// # Errors
    /// `Load` when the file cannot be read, or has become shorter.
    ///
    /// # Panics
    /// When `out` has another length.
    pub fn read(&self, out: &mut [u8]) -> Result<()> {
        match *self {
            Self::Memory(bytes) => {
                out.copy_from_slice(bytes);
                Ok(())
            }
            Self::File { file, start, len } => {
                assert_eq!(len, out.len(), "the buffer is as long as what is read");
                read_exact_at(file, start, out).map_err(|error| {
                    let message = format!("{len} bytes from byte {start} of a weight file cannot be read");
                    Error::load(message).with_source(error)
                })
            }
            Self::Reader { reader, start, len } => {
                assert_eq!(len, out.len(), "the buffer is as long as what is read");
                reader.read(start, out)
            }
        }
    }

    /// A copy of all of them.
    ///
    /// # Errors
    /// As for [`StoredBytes::read`]; `Capacity` when there is no memory for them.
    pub fn to_vec(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        memory::reserve(&mut bytes, self.len(), "bytes of a weight file")?;
        bytes.resize(self.len(), 0);
        self.read(&mut bytes)?;
        Ok(bytes)
    }
}

impl<'a> From<&'a [u8]> for StoredBytes<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Memory(bytes)
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, start: u64, out: &mut [u8]) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, out, start)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut start: u64, mut out: &mut [u8]) -> std::io::Result<()> {
    while !out.is_empty() {
        let read = std::os::windows::fs::FileExt::seek_read(file, out, start)?;
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        (start, out) = (start + read as u64, &mut out[read..]);
    }
    Ok(())
}

/// A matrix (or, with one row, a vector) as it is stored: row-major, little-endian, at any alignment.
#[derive(Debug, Clone, Copy)]
pub struct StoredMatrix<'a> {
    /// How the numbers are encoded. Rows are made of whole blocks.
    pub encoding: Encoding,
    /// The number of rows.
    pub num_rows: usize,
    /// The number of columns.
    pub num_columns: usize,
    /// As many bytes as the encoding takes for `num_rows * num_columns` numbers.
    pub bytes: StoredBytes<'a>,
    /// Ends each reading once it is set.
    pub cancelled: Option<&'a AtomicBool>,
}

impl StoredMatrix<'_> {
    /// The number of elements.
    pub fn len(&self) -> usize {
        self.num_rows * self.num_columns
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads a range of elements, in row-major order, in the encoding that they are stored in or converted to a
    /// plain one. `out` has as many bytes as that takes.
    ///
    /// # Errors
    /// As for [`StoredBytes::read`], and `Cancelled`.
    ///
    /// # Panics
    /// When the range is out of bounds, `out` has another length, or the encoding is one of blocks and not that
    /// of whole stored ones.
    pub fn read(&self, elements: Range<usize>, encoding: Encoding, out: &mut [u8]) -> Result<()> {
        if self.cancelled.is_some_and(|cancelled| cancelled.load(Ordering::Relaxed)) {
            return Err(Error::cancelled());
        }
        if encoding == self.encoding {
            return self.units(&elements).1.read(out);
        }
        let Encoding::Plain(dtype) = encoding else {
            return Err(Error::internal("no encoding of blocks is made of another one"));
        };
        assert_eq!(out.len(), elements.len() * dtype.bytes(), "room for each element");
        let mut values = Vec::new();
        memory::reserve(&mut values, elements.len(), "weights")?;
        values.resize(elements.len(), 0.0);
        self.read_f32(elements, &mut values)?;
        dtype.narrow(&values, out);
        Ok(())
    }

    /// Reads a range of elements, in row-major order, widened: `out` is `[elements.len()]`.
    ///
    /// # Errors
    /// As for [`StoredBytes::read`].
    ///
    /// # Panics
    /// When the range is out of bounds, or `out` has another length.
    pub fn read_f32(&self, elements: Range<usize>, out: &mut [f32]) -> Result<()> {
        let (first, bytes) = self.units(&elements);
        let (bytes, skipped) = (bytes.to_vec()?, elements.start - first);
        if skipped == 0 && elements.len().is_multiple_of(self.encoding.elements()) {
            self.encoding.decode(&bytes, out);
            return Ok(());
        }
        // The first and the last block hold elements outside of the range.
        let mut values = vec![0.0; bytes.len() / self.encoding.unit_bytes() * self.encoding.elements()];
        self.encoding.decode(&bytes, &mut values);
        out.copy_from_slice(&values[skipped..][..elements.len()]);
        Ok(())
    }

    /// The units that hold a range of elements, and the first element of them.
    fn units(&self, elements: &Range<usize>) -> (usize, StoredBytes<'_>) {
        let (unit, size) = (self.encoding.elements(), self.encoding.unit_bytes());
        let (first, end) = (elements.start / unit, elements.end.div_ceil(unit));
        (first * unit, self.bytes.part(first * size..end * size))
    }

    /// All elements, widened, row by row.
    ///
    /// # Errors
    /// As for [`StoredBytes::read`].
    pub fn to_f32(&self) -> Result<Vec<f32>> {
        let mut values = Vec::new();
        memory::reserve(&mut values, self.len(), "weights")?;
        values.resize(self.len(), 0.0);
        self.read_f32(0..self.len(), &mut values)?;
        Ok(values)
    }
}

/// The error for weights that hold NaN or infinity.
#[cold]
pub fn not_finite() -> Error {
    Error::load(
        "the weights must be finite, but there is a NaN or an infinity; the file is damaged, download it again",
    )
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::tensor::DType;

    #[test]
    fn a_part_of_a_file_reads_as_that_of_memory() {
        let bytes: Vec<u8> = (0..200).collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        let stored = [(&bytes[20..]).into(), StoredBytes::File { file: &file, start: 20, len: 180 }];
        for range in [0..180, 7..8, 5..5, 100..180] {
            for stored in stored {
                let mut out = vec![0; range.len()];
                stored.part(range.clone()).read(&mut out).unwrap();
                assert_eq!(out, bytes[20 + range.start..20 + range.end], "{stored:?}");
            }
        }
    }

    #[test]
    fn a_file_that_has_become_shorter_is_an_error() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[1; 100]).unwrap();
        let stored = StoredBytes::File { file: &file, start: 40, len: 60 };
        stored.read(&mut [0; 60]).unwrap();
        file.set_len(99).unwrap();
        let error = stored.read(&mut [0; 60]).unwrap_err().to_string();
        assert!(error.contains("60 bytes from byte 40 of a weight file cannot be read"), "{error}");
    }

    #[test]
    fn elements_are_read_as_they_are_or_rounded() {
        let values = [1.5, -0.1, 3.0e-3, 7.0];
        for stored in [DType::F32, DType::Bf16, DType::F16] {
            let bytes: Vec<u8> = values.into_iter().flat_map(|value| stored.to_le_bytes(value)).collect();
            let matrix = StoredMatrix {
                encoding: stored.into(),
                num_rows: 2,
                num_columns: 2,
                bytes: (&bytes[..]).into(),
                cancelled: None,
            };
            assert_eq!(matrix.to_f32().unwrap(), values.map(|value| stored.round(value)));
            for dtype in [DType::F32, DType::Bf16, DType::F16] {
                let mut out = vec![0; 2 * dtype.bytes()];
                matrix.read(1..3, dtype.into(), &mut out).unwrap();
                let expected = [values[1], values[2]].map(|value| dtype.round(stored.round(value)));
                assert_eq!(dtype.to_f32(&out).collect::<Vec<_>>(), expected, "{stored} as {dtype}");
            }
        }
    }
}
