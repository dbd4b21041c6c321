//! One zeroed allocation of the slab. Returns an error when memory is short, instead of aborting.

use std::ops::{Deref, DerefMut};

use crate::error::Result;
use crate::kernels::advise_huge_pages;
use crate::memory;

/// A fixed number of steps, which begin at cache lines: that is their type's alignment.
#[derive(Debug)]
pub(super) struct Segment<T>(Box<[T]>);

impl<T: Copy + Default> Segment<T> {
    /// `len` steps, all default. Every page is written here, so that none is first touched within a pass.
    pub(super) fn try_new(len: usize) -> Result<Self> {
        let mut data: Vec<T> = Vec::new();
        memory::reserve(&mut data, len, "tokens of a head")?;
        // A sequence's blocks lie far from each other: with small pages each of them costs a walk through page tables.
        advise_huge_pages(data.spare_capacity_mut());
        data.resize(len, T::default());
        Ok(Self(data.into_boxed_slice()))
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
mod tests {
    use super::*;
    use crate::kernels::{Bf16Step, F32Step, KvStep};

    #[test]
    fn segments_are_zeroed_and_aligned_wherever_they_lie() {
        fn check<T: KvStep>() {
            for len in 1..40 {
                let segment = Segment::<T>::try_new(len).unwrap();
                assert_eq!(segment.as_ptr().addr() % 64, 0);
                assert_eq!(segment.len(), len);
                assert!(segment.iter().all(|step| step.get(31, 1) == 0.0));
            }
        }
        check::<F32Step>();
        check::<Bf16Step>();
    }

    #[test]
    fn memory_that_does_not_exist_is_refused() {
        assert!(Segment::<F32Step>::try_new(usize::MAX).is_err());
        assert!(Segment::<F32Step>::try_new(isize::MAX as usize / 300).is_err());
    }
}
