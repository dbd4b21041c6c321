//! Read-only memory maps of weight files: the one place of this layer with `unsafe`.
//!
//! Weights are read once, while they are packed; mapping spares a second copy of them in memory. A file that is
//! shortened by another process meanwhile ends this one by a signal, which no library can prevent: who can write
//! to the model folder is trusted. After loading, no page of the map is touched any more.

use std::fs::File;
use std::ops::Deref;

use memmap2::Mmap;

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
}

impl Deref for Mapping {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}
