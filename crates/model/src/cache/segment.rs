//! One allocation of the slab, zeroed as it is needed. Returns an error when memory is short, instead of
//! aborting.

use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut, Range};

use rsgen_core::error::Result;
use rsgen_kernels::{Pages, Workers};

/// Steps that never move. They begin at cache lines: that is their type's alignment.
#[derive(Debug)]
pub(super) struct Segment<T>(Pages<T>);

/// What a thread writes at a time, in bytes: a huge page.
const CHUNK: usize = 2 << 20;

impl<T: Copy + Default + Send + Sync> Segment<T> {
    /// No steps, with memory for `capacity`.
    pub(super) fn with_capacity(capacity: usize) -> Result<Self> {
        Pages::with_capacity(capacity, "tokens of a head").map(Self)
    }

    /// Extends it to `len` steps, the new ones default. Their pages are written here, on all threads, so that
    /// no kernel is the first to touch one: that takes much longer than later writes.
    ///
    /// # Panics
    /// When that exceeds the capacity.
    pub(super) fn extend_to(&mut self, len: usize, workers: &Workers) {
        workers.extend(&mut self.0, len, T::default(), CHUNK / size_of::<T>());
    }

    /// The memory of the steps from `start` to `end` that it has not been extended to.
    pub(super) fn untouched(&mut self, Range { start, end }: Range<usize>) -> &mut [MaybeUninit<T>] {
        let len = self.0.len();
        &mut self.0.spare()[start.max(len) - len..end.max(len) - len]
    }
}

impl<T> Deref for Segment<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T> DerefMut for Segment<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use rsgen_kernels::{Bf16Step, F32Step, Isa, KvStep};

    /// The calling thread alone.
    pub(in crate::cache) fn workers() -> Workers {
        Workers::new(1, Isa::select().unwrap()).unwrap()
    }

    #[test]
    fn segments_are_zeroed_and_aligned_wherever_they_lie() {
        fn check<T: KvStep>() {
            let workers = Workers::new(2, Isa::select().unwrap()).unwrap();
            for len in 1..40 {
                let mut segment = Segment::<T>::with_capacity(len).unwrap();
                let begin = segment.as_ptr();
                assert_eq!(begin.addr() % 64, 0);
                for len in [0, len / 2, len] {
                    segment.extend_to(len, &workers);
                    assert_eq!((segment.as_ptr(), segment.len()), (begin, len));
                    assert!(segment.iter().all(|step| step.get(31, 1) == 0.0));
                }
            }
        }
        check::<F32Step>();
        check::<Bf16Step>();
    }

    #[test]
    fn memory_that_does_not_exist_is_refused() {
        assert!(Segment::<F32Step>::with_capacity(usize::MAX).is_err());
        assert!(Segment::<F32Step>::with_capacity(isize::MAX as usize / 300).is_err());
    }
}
