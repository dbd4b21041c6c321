//! Parallel writes to one slice: each chunk is handed to exactly one thread.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;

use super::pages::Pages;
use super::threads::Workers;
use rsgen_core::{Mutex, Result};

/// A mutable slice that several threads write disjoint parts of.
pub(crate) struct Disjoint<'a, T> {
    pointer: *mut T,
    len: usize,
    _slice: PhantomData<&'a mut [T]>,
}

// SAFETY: it is only a way to hand out `&mut` parts of a slice, and the caller of `part` keeps them disjoint.
unsafe impl<T: Send> Sync for Disjoint<'_, T> {}

impl<'a, T> Disjoint<'a, T> {
    /// Borrows the slice for the parallel work.
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Self { pointer: slice.as_mut_ptr(), len: slice.len(), _slice: PhantomData }
    }

    /// A part of the slice.
    ///
    /// # Safety
    /// No two parts that are alive at the same time overlap.
    #[expect(clippy::mut_from_ref, reason = "the caller keeps the parts disjoint")]
    pub(crate) unsafe fn part(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "a part lies within the slice");
        // SAFETY: it lies within the slice, and no other part that is alive overlaps it (by contract).
        unsafe { std::slice::from_raw_parts_mut(self.pointer.add(range.start), range.len()) }
    }
}

impl Workers {
    /// Calls `job(i, chunk)` for each chunk of `chunk_len` elements of `data` (the last may be shorter), on
    /// all threads.
    pub fn for_each_chunk<T: Send>(
        &self,
        data: &mut [T],
        chunk_len: usize,
        job: impl Fn(usize, &mut [T]) + Sync,
    ) {
        let len = data.len();
        let chunk_len = chunk_len.max(1);
        let parts = Disjoint::new(data);
        self.run(len.div_ceil(chunk_len), &|i| {
            let start = i * chunk_len;
            // SAFETY: chunk `i` is run once, and chunks do not overlap.
            job(i, unsafe { parts.part(start..len.min(start + chunk_len)) });
        });
    }

    /// [`Workers::for_each_chunk`] for a job that can fail. All chunks are run, whichever fails.
    ///
    /// # Errors
    /// The first one of any chunk.
    fn try_for_each_chunk<T: Send>(
        &self,
        data: &mut [T],
        chunk_len: usize,
        job: impl Fn(usize, &mut [T]) -> Result<()> + Sync,
    ) -> Result<()> {
        let failure = Mutex::new(None);
        self.for_each_chunk(data, chunk_len, |i, chunk| {
            if failure.lock().is_none()
                && let Err(error) = job(i, chunk)
            {
                failure.lock().get_or_insert(error);
            }
        });
        let failure = failure.lock().take();
        failure.map_or(Ok(()), Err)
    }

    /// A list of `num_chunks * chunk_len` elements, filled by all threads, chunk by chunk.
    ///
    /// # Errors
    /// `Capacity` when there is no memory for it; the first one of `make`.
    ///
    /// # Safety
    /// `make(i, chunk)` writes every element of chunk `i`, unless it fails.
    pub(crate) unsafe fn collect_chunks<T: Send + Copy>(
        &self,
        num_chunks: usize,
        chunk_len: usize,
        make: impl Fn(usize, &mut [MaybeUninit<T>]) -> Result<()> + Sync,
    ) -> Result<Pages<T>> {
        let len = num_chunks * chunk_len;
        let mut data = Pages::with_capacity(len, "weights")?;
        self.try_for_each_chunk(&mut data.spare()[..len], chunk_len, make)?;
        // SAFETY: `make` has written every element (by contract), and has failed for none.
        unsafe { data.set_len(len) };
        Ok(data)
    }

    /// `len` bytes of which `fill(i, chunk)` writes those from `i * chunk_len` on, on all threads. They are
    /// zero before.
    ///
    /// # Errors
    /// `Capacity` when there is no memory for it; the first one of `fill`.
    pub fn filled(
        &self,
        len: usize,
        chunk_len: usize,
        fill: impl Fn(usize, &mut [u8]) -> Result<()> + Sync,
    ) -> Result<Pages<u8>> {
        let mut data = Pages::with_capacity(len, "bytes of weights")?;
        self.try_for_each_chunk(&mut data.spare()[..len], chunk_len, |i, chunk: &mut [MaybeUninit<u8>]| {
            for byte in &mut *chunk {
                byte.write(0);
            }
            // SAFETY: every byte of the chunk has just been written.
            fill(i, unsafe { std::slice::from_raw_parts_mut(chunk.as_mut_ptr().cast(), chunk.len()) })
        })?;
        // SAFETY: every chunk has been written.
        unsafe { data.set_len(len) };
        Ok(data)
    }

    /// Extends a list to `len` elements with a value, in chunks of `chunk_len` on all threads.
    ///
    /// # Panics
    /// When that exceeds its capacity.
    pub fn extend<T: Copy + Send + Sync>(&self, data: &mut Pages<T>, len: usize, value: T, chunk_len: usize) {
        let Some(more) = len.checked_sub(data.len()) else { return };
        self.for_each_chunk(&mut data.spare()[..more], chunk_len.max(1), |_, chunk| {
            for slot in chunk {
                slot.write(value);
            }
        });
        // SAFETY: what is new has been written: `run` returns only when all chunks are done.
        unsafe { data.set_len(len) };
    }

    /// A vector of `len` elements whose element `i` is `make(i)`, filled by all threads in chunks of
    /// `chunk_len`.
    ///
    /// The thread that makes an element is the first to touch its memory.
    pub fn collect<T: Send + Copy>(
        &self,
        len: usize,
        chunk_len: usize,
        make: impl Fn(usize) -> T + Sync,
    ) -> Vec<T> {
        let mut data: Vec<T> = Vec::with_capacity(len);
        let chunk_len = chunk_len.max(1);
        self.for_each_chunk(&mut data.spare_capacity_mut()[..len], chunk_len, |i, chunk| {
            for (j, slot) in chunk.iter_mut().enumerate() {
                slot.write(make(i * chunk_len + j));
            }
        });
        // SAFETY: every one of the `len` slots has been written: `run` returns only when all chunks are done.
        unsafe { data.set_len(len) };
        data
    }
}

#[cfg(test)]
mod tests {
    use crate::{Isa, Pages, Workers};
    use rsgen_core::Error;

    #[test]
    fn chunks_cover_the_slice_once() {
        let workers = Workers::new(3, Isa::select().unwrap()).unwrap();
        for len in [0, 1, 10, 1001] {
            let mut data = vec![0usize; len];
            workers.for_each_chunk(&mut data, 7, |i, chunk| {
                for (j, value) in chunk.iter_mut().enumerate() {
                    *value += i * 7 + j + 1;
                }
            });
            assert!(data.iter().enumerate().all(|(i, &value)| value == i + 1));
            assert_eq!(workers.collect(len, 7, |i| i + 1), data);
            let mut extended = Pages::with_capacity(len, "numbers").unwrap();
            for len in [len / 3, len, 0] {
                workers.extend(&mut extended, len, 5, 7);
            }
            assert_eq!(*extended, vec![5; len]);
            let fails = |i| if i == 3 { Err(Error::internal("chunk 3")) } else { Ok(()) };
            let failed = workers.filled(len, 7, |i, _| fails(i));
            assert_eq!(failed.is_err(), len > 3 * 7);
            let fill = |i: usize, chunk: &mut [u8]| {
                chunk.fill(i as u8 + 1);
                Ok(())
            };
            let bytes = workers.filled(len, 7, fill).unwrap();
            assert!(bytes.iter().enumerate().all(|(i, &byte)| byte == (i / 7) as u8 + 1));
        }
    }
}
