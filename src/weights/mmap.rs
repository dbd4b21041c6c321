//! Read-only memory maps of weight files: the one place of this layer with `unsafe`.
//!
//! Weights are read once, while they are packed; mapping spares a second copy of them in memory. A file that is
//! shortened by another process meanwhile ends this one by a signal, which no library can prevent: who can write
//! to the model folder is trusted. After loading, no page of the map is touched any more.

use std::fs::File;
use std::ops::Deref;

use memmap2::Mmap;
#[cfg(unix)]
use memmap2::UncheckedAdvice;

use crate::error::{Error, Result};

/// The contents of a file, read by the operating system page by page as they are touched.
#[derive(Debug)]
pub struct Mapping(Mmap);

impl Mapping {
    /// Maps a regular file.
    ///
    /// # Errors
    /// `Load` when the operating system refuses, for instance because the address space is limited.
    pub fn new(file: &File) -> Result<Self> {
        // SAFETY: the map is private and read-only, so this process cannot change what the slice shows. That no
        // other process changes or shortens the file while it is loaded is part of the crate's trust model (see the
        // head of this file); every offset into the map was checked against its length, which is fixed here.
        let map = unsafe { Mmap::map(file) };
        map.map(Self).map_err(|error| Error::load("it cannot be mapped into memory").with_source(error))
    }

    /// Lets go of the memory that holds a part of the contents, until it is read again.
    pub(super) fn release(&self, part: &[u8]) {
        let begin = part.as_ptr().addr().wrapping_sub(self.0.as_ptr().addr());
        if begin >= self.0.len() || part.len() > self.0.len() - begin {
            return;
        }
        // SAFETY: the pages of a read-only map of a file are read from the file again, so nothing that is borrowed from
        // the map changes. A system that refuses keeps them: a hint.
        #[cfg(unix)]
        let _ = unsafe { self.0.unchecked_advise_range(UncheckedAdvice::DontNeed, begin, part.len()) };
    }
}

impl Deref for Mapping {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn what_was_released_reads_as_before() {
        let mut file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..100_000).map(|i| (i % 251) as u8).collect();
        file.write_all(&bytes).unwrap();
        let mapping = Mapping::new(&file).unwrap();
        for part in [0..100_000, 5..6, 4096..8192, 99_999..100_000, 7..7] {
            mapping.release(&mapping[part]);
            assert_eq!(*mapping, *bytes);
        }
        mapping.release(&bytes);
        assert_eq!(*mapping, *bytes);
    }
}
