//! The directory of a zip archive, as far as `torch.save` uses the format: entries that lie uncompressed in
//! one file.

use std::collections::HashMap;

use super::super::safetensors::{HeaderLimits, MAX_TENSORS};
use super::pickle::SAVE_AGAIN;
use rsgen_core::error::{Error, Result};
use rsgen_core::escape;
use rsgen_kernels::tensor::StoredBytes;

/// The records of an archive, by the first four bytes.
const LOCAL: &[u8] = b"PK\x03\x04";
const CENTRAL: &[u8] = b"PK\x01\x02";
const END: &[u8] = b"PK\x05\x06";
const END_64: &[u8] = b"PK\x06\x06";
const LOCATOR_64: &[u8] = b"PK\x06\x07";
const LOCAL_BYTES: usize = 30;
const CENTRAL_BYTES: usize = 46;
const END_BYTES: usize = 22;
const END_64_BYTES: usize = 56;
const LOCATOR_64_BYTES: usize = 20;
/// An archive has an entry for each tensor, and a few more.
const MAX_ENTRIES: usize = MAX_TENSORS + 100;

/// An archive whose directory has been read.
pub(super) struct Archive<'a> {
    bytes: StoredBytes<'a>,
    /// By name, without the folder that all are in.
    entries: HashMap<String, Entry>,
}

#[derive(Clone, Copy)]
struct Entry {
    is_plain: bool,
    /// Of the record before the data.
    start: usize,
    len: usize,
}

impl<'a> Archive<'a> {
    /// Whether these first bytes are those of an archive.
    pub(super) fn is_one(first_bytes: &[u8]) -> bool {
        first_bytes.starts_with(LOCAL)
    }

    /// Reads the directory, and takes its bytes from `limits`.
    ///
    /// # Errors
    /// `Load` when it is damaged or too large.
    pub(super) fn read(bytes: StoredBytes<'a>, limits: &mut HeaderLimits) -> Result<Self> {
        let (start, len) = directory(bytes).ok_or_else(damaged)??;
        limits.take(len)?;
        let directory = part(bytes, start, len)?.to_vec()?;
        let (mut entries, mut rest, mut folder) = (HashMap::new(), &directory[..], None);
        while !rest.is_empty() {
            let (name, entry, next) = central(rest).ok_or_else(damaged)?;
            rest = next;
            let (own, name) = name.split_once('/').ok_or_else(damaged)?;
            if *folder.get_or_insert(own) != own || entries.len() == MAX_ENTRIES {
                return Err(damaged());
            }
            if entries.insert(name.to_owned(), entry).is_some() {
                return Err(Error::load(format!(
                    "its zip archive has the entry {} twice",
                    escape::name(name)
                )));
            }
        }
        Ok(Self { bytes, entries })
    }

    /// The place of an entry's data: its first byte and its length.
    ///
    /// # Errors
    /// `Load` when it is missing, compressed, or not within the file.
    pub(super) fn entry(&self, name: &str) -> Result<(usize, usize)> {
        let shown = escape::name(name);
        let entry = *self.entries.get(name).ok_or_else(|| {
            Error::load(format!(
                "its zip archive has no entry {shown}; is it a file of torch.save? {SAVE_AGAIN}"
            ))
        })?;
        if !entry.is_plain {
            return Err(Error::load(format!(
                "the entry {shown} of its zip archive is compressed or encrypted, which torch.save never does; {SAVE_AGAIN}"
            )));
        }
        let record = part(self.bytes, entry.start, LOCAL_BYTES)?.to_vec()?;
        let extra = usize::from(u16(&record, 26).unwrap_or(0)) + usize::from(u16(&record, 28).unwrap_or(0));
        let start = entry.start.saturating_add(LOCAL_BYTES + extra);
        if !record.starts_with(LOCAL) {
            return Err(damaged());
        }
        part(self.bytes, start, entry.len).map(|_| (start, entry.len))
    }

    /// As [`Self::entry`], for the data of an entry that may be missing.
    ///
    /// # Errors
    /// As for [`Self::entry`]; `Load` also when there is more of it than `limits` leave.
    pub(super) fn data(&self, name: &str, limits: &mut HeaderLimits) -> Result<Option<Vec<u8>>> {
        if !self.entries.contains_key(name) {
            return Ok(None);
        }
        let (start, len) = self.entry(name)?;
        limits.take(len)?;
        part(self.bytes, start, len)?.to_vec().map(Some)
    }
}

/// The first byte of the directory and its length; `None` where the archive has no end.
fn directory(bytes: StoredBytes<'_>) -> Option<Result<(usize, usize)>> {
    let longest = END_BYTES + usize::from(u16::MAX);
    let from = bytes.len().saturating_sub(longest);
    let tail = bytes.part(from..bytes.len()).to_vec();
    let tail = match tail {
        Ok(tail) => tail,
        Err(error) => return Some(Err(error)),
    };
    let is_end = |at: &usize| {
        tail[*at..].starts_with(END)
            && u16(&tail, at + 20).map(usize::from) == Some(tail.len() - at - END_BYTES)
    };
    let end = (0..(tail.len() + 1).checked_sub(END_BYTES)?).rev().find(is_end)?;
    let small = (u32(&tail, end + 16)? as usize, u32(&tail, end + 12)? as usize);
    // Large archives say it in another record, to which one right before the end leads.
    let locator = (from + end).checked_sub(LOCATOR_64_BYTES)?;
    let large = || -> Result<Option<(usize, usize)>> {
        let locator = part(bytes, locator, LOCATOR_64_BYTES)?.to_vec()?;
        let Some(at) = u64(&locator, 8).filter(|_| locator.starts_with(LOCATOR_64)) else { return Ok(None) };
        let record = part(bytes, at, END_64_BYTES)?.to_vec()?;
        Ok(u64(&record, 48).zip(u64(&record, 40)).filter(|_| record.starts_with(END_64)))
    };
    Some(large().map(|large| large.unwrap_or(small)))
}

/// The name and the place of the directory's next entry, and the rest of the directory.
fn central(bytes: &[u8]) -> Option<(&str, Entry, &[u8])> {
    let record = bytes.get(..CENTRAL_BYTES).filter(|record| record.starts_with(CENTRAL))?;
    let length = |at| u16(record, at).map(usize::from);
    let (name_len, extra_len, comment_len) = (length(28)?, length(30)?, length(32)?);
    let name = std::str::from_utf8(bytes.get(CENTRAL_BYTES..)?.get(..name_len)?).ok()?;
    let extra = bytes.get(CENTRAL_BYTES + name_len..)?.get(..extra_len)?;
    let rest = bytes.get(CENTRAL_BYTES + name_len + extra_len + comment_len..)?;
    // Numbers of 32 bits that do not suffice are in the extra field 1, in this order.
    let mut large = field_64(extra);
    let mut number = |at| {
        let small = u32(record, at)?;
        if small != u32::MAX {
            return Some(small as usize);
        }
        let number = u64(large, 0)?;
        large = &large[8..];
        Some(number)
    };
    let (len, packed_len, start) = (number(24)?, number(20)?, number(42)?);
    let is_plain = length(10)? == 0 && length(8)? & 1 == 0 && len == packed_len;
    Some((name, Entry { is_plain, start, len }, rest))
}

/// The extra field of a large entry; nothing if it is missing.
fn field_64(mut extra: &[u8]) -> &[u8] {
    while let (Some(id), Some(len)) = (u16(extra, 0), u16(extra, 2)) {
        let Some(field) = extra[4..].get(..usize::from(len)) else { break };
        if id == 1 {
            return field;
        }
        extra = &extra[4 + field.len()..];
    }
    &[]
}

fn part(bytes: StoredBytes<'_>, start: usize, len: usize) -> Result<StoredBytes<'_>> {
    let end = start.checked_add(len).filter(|&end| end <= bytes.len()).ok_or_else(damaged)?;
    Ok(bytes.part(start..end))
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn u16(bytes: &[u8], at: usize) -> Option<u16> {
    array(bytes, at).map(u16::from_le_bytes)
}

fn u32(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_le_bytes)
}

fn u64(bytes: &[u8], at: usize) -> Option<usize> {
    array(bytes, at).and_then(|bytes| u64::from_le_bytes(bytes).try_into().ok())
}

fn damaged() -> Error {
    Error::load("its zip archive is cut off or damaged; download the file again")
}
