//! One allocation of the slab: zeroed, 64-byte aligned, and refused instead of aborting when memory is short.
//!
//! Alignment lets a kernel load a token's row without crossing a cache line. It is a matter of speed alone: the
//! buffer is plain safe code over a vector that is a cache line too long, and kernels must not rely on it for safety.

use std::collections::TryReserveError;
use std::ops::{Deref, DerefMut};

/// A fixed number of zeroed elements that start at a cache line.
///
/// It is never cloned or grown: the vector would move, and the start would no longer be aligned.
#[derive(Debug)]
pub(super) struct Segment<E> {
    data: Vec<E>,
    start: usize,
}

/// Bytes of a cache line.
const ALIGNMENT: usize = 64;

impl<E: Copy + Default> Segment<E> {
    /// `len` elements, all default. Every page is written here, so that none is first touched within a pass.
    pub(super) fn try_new(len: usize) -> Result<Self, TryReserveError> {
        let slack = ALIGNMENT / size_of::<E>();
        let mut data: Vec<E> = Vec::new();
        data.try_reserve_exact(len.saturating_add(slack))?;
        let start = data.as_ptr().align_offset(ALIGNMENT).min(slack);
        data.resize(start + len, E::default());
        Ok(Self { data, start })
    }
}

impl<E> Deref for Segment<E> {
    type Target = [E];

    #[inline]
    fn deref(&self) -> &[E] {
        &self.data[self.start..]
    }
}

impl<E> DerefMut for Segment<E> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [E] {
        &mut self.data[self.start..]
    }
}

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::*;

    #[test]
    fn segments_are_zeroed_and_aligned_wherever_they_lie() {
        let segments: Vec<_> = (1..40).map(|len| Segment::<bf16>::try_new(len).unwrap()).collect();
        for (segment, len) in segments.iter().zip(1..) {
            assert_eq!(segment.as_ptr().addr() % ALIGNMENT, 0);
            assert_eq!(segment.len(), len);
            assert!(segment.iter().all(|&value| value.to_bits() == 0));
        }
    }

    #[test]
    fn memory_that_does_not_exist_is_refused() {
        assert!(Segment::<f32>::try_new(usize::MAX).is_err());
        assert!(Segment::<f32>::try_new(isize::MAX as usize / 8).is_err());
    }
}
