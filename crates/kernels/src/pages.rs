//! Lists of millions of numbers, in pages of their own that go back to the system as soon as they are freed. The C
//! library would keep what lies at the end of a thread's heap.

use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};

use rsgen_core::{Result, memory};

/// A list that never moves: as a `Vec` that has all of its capacity from the beginning.
#[derive(Debug)]
pub struct Pages<T> {
    memory: Memory<T>,
    len: usize,
}

/// Where the numbers are.
#[derive(Debug)]
enum Memory<T> {
    /// Few of them, and all where the system is not known. The length of the `Vec` is 0.
    Heap(Vec<T>),
    #[cfg(unix)]
    Mapped(mapping::Mapping<T>),
}

impl<T: Copy> Pages<T> {
    /// No numbers, with room for `capacity`; `what` they are, such as "weights", goes into the error.
    ///
    /// # Errors
    /// `Capacity` when the system does not give the memory.
    pub fn with_capacity(capacity: usize, what: &str) -> Result<Self> {
        #[cfg(unix)]
        if let Some(mapping) = mapping::Mapping::new(capacity, what)? {
            return Ok(Self { memory: Memory::Mapped(mapping), len: 0 });
        }
        let mut list = Vec::new();
        memory::reserve(&mut list, capacity, what)?;
        Ok(Self { memory: Memory::Heap(list), len: 0 })
    }

    /// The room that is left.
    pub fn spare(&mut self) -> &mut [MaybeUninit<T>] {
        let all = match &mut self.memory {
            Memory::Heap(list) => list.spare_capacity_mut(),
            #[cfg(unix)]
            Memory::Mapped(mapping) => mapping.all(),
        };
        &mut all[self.len..]
    }

    /// Takes more of the room.
    ///
    /// # Safety
    /// The numbers up to `len` have been written.
    pub(crate) unsafe fn set_len(&mut self, len: usize) {
        self.len = len;
    }
}

impl<T: Copy> From<Vec<T>> for Pages<T> {
    fn from(mut list: Vec<T>) -> Self {
        let len = list.len();
        list.clear();
        Self { memory: Memory::Heap(list), len }
    }
}

impl<T> Deref for Pages<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        let first = match &self.memory {
            Memory::Heap(list) => list.as_ptr(),
            #[cfg(unix)]
            Memory::Mapped(mapping) => mapping.first(),
        };
        // SAFETY: so many numbers have been written.
        unsafe { std::slice::from_raw_parts(first, self.len) }
    }
}

impl<T> DerefMut for Pages<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        let first = match &mut self.memory {
            Memory::Heap(list) => list.as_mut_ptr(),
            #[cfg(unix)]
            Memory::Mapped(mapping) => mapping.first(),
        };
        // SAFETY: so many numbers have been written, and they are borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(first, self.len) }
    }
}

#[cfg(unix)]
mod mapping {
    use std::io;
    use std::mem::MaybeUninit;
    use std::ptr::{NonNull, null_mut};

    use rsgen_core::{Result, memory};

    /// The fewest bytes that have pages of their own: taking and returning pages costs some microseconds.
    const MIN_BYTES: usize = 1 << 20;

    /// Pages for some numbers. They hold zeros before they are written.
    #[derive(Debug)]
    pub(super) struct Mapping<T> {
        first: NonNull<T>,
        capacity: usize,
    }

    // SAFETY: it owns its numbers, as a `Vec` does.
    unsafe impl<T: Send> Send for Mapping<T> {}
    // SAFETY: as above.
    unsafe impl<T: Sync> Sync for Mapping<T> {}

    impl<T: Copy> Mapping<T> {
        /// `None` for few numbers, and for more than an address can name.
        pub(super) fn new(capacity: usize, what: &str) -> Result<Option<Self>> {
            let bytes = capacity.checked_mul(size_of::<T>()).filter(|&bytes| isize::try_from(bytes).is_ok());
            let Some(bytes) = bytes.filter(|&bytes| bytes >= MIN_BYTES && align_of::<T>() <= 4096) else {
                return Ok(None);
            };
            memory::check::<T>(capacity, what)?;
            let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANON);
            // SAFETY: it creates a mapping of its own, wherever the system likes.
            let first = unsafe { libc::mmap(null_mut(), bytes, access, flags, -1, 0) };
            let mapped = NonNull::new(first.cast()).filter(|_| first != libc::MAP_FAILED);
            let first =
                mapped.ok_or_else(|| memory::refusal::<T>(capacity, what, &io::Error::last_os_error()))?;
            let mut mapping = Self { first, capacity };
            advise_huge_pages(mapping.all());
            Ok(Some(mapping))
        }

        pub(super) fn all(&mut self) -> &mut [MaybeUninit<T>] {
            // SAFETY: the mapping has so many, and is borrowed exclusively.
            unsafe { std::slice::from_raw_parts_mut(self.first.as_ptr().cast(), self.capacity) }
        }
    }

    impl<T> Mapping<T> {
        pub(super) fn first(&self) -> *mut T {
            self.first.as_ptr()
        }
    }

    impl<T> Drop for Mapping<T> {
        fn drop(&mut self) {
            // SAFETY: the mapping is its own, and nobody borrows it any more.
            unsafe { libc::munmap(self.first.as_ptr().cast(), self.capacity * size_of::<T>()) };
        }
    }

    /// Requests huge pages for untouched memory: page faults of 4 KB pages cost more than filling it. A hint that
    /// small memory and other systems ignore.
    fn advise_huge_pages<T>(memory: &mut [MaybeUninit<T>]) {
        #[cfg(target_os = "linux")]
        {
            const HUGE_PAGE: usize = 2 << 20;
            let begin = memory.as_mut_ptr().addr();
            let before = begin.next_multiple_of(HUGE_PAGE) - begin;
            let len = size_of_val(memory).saturating_sub(before) / HUGE_PAGE * HUGE_PAGE;
            if len > 0 {
                let first = memory.as_mut_ptr().wrapping_byte_add(before).cast();
                // SAFETY: the range lies within the slice, and how its pages are backed changes nothing of what they
                // hold.
                unsafe { libc::madvise(first, len, libc::MADV_HUGEPAGE) };
            }
        }
        #[cfg(not(target_os = "linux"))]
        let _ = memory;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rsgen_core::ErrorKind;

    #[test]
    fn few_and_many_numbers_are_kept_where_they_are() {
        for capacity in [0, 1, 1000, 1 << 17, (1 << 19) + 3] {
            let mut pages = Pages::<u64>::with_capacity(capacity, "numbers").unwrap();
            assert!(pages.is_empty());
            let first = pages.as_ptr();
            for len in [capacity / 3, capacity] {
                let before = pages.len();
                for (i, slot) in pages.spare()[..len - before].iter_mut().enumerate() {
                    slot.write((before + i) as u64);
                }
                // SAFETY: they have been written.
                unsafe { pages.set_len(len) };
            }
            assert_eq!((pages.as_ptr(), pages.len()), (first, capacity));
            assert!(pages.iter().copied().eq(0..capacity as u64));
            pages.reverse();
            assert!(pages.iter().rev().copied().eq(0..capacity as u64));
        }
    }

    #[test]
    fn memory_that_does_not_exist_is_refused() {
        for capacity in [usize::MAX, isize::MAX as usize, isize::MAX as usize / 8, 1 << 55] {
            let error = Pages::<u64>::with_capacity(capacity, "numbers").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Capacity);
            assert!(error.to_string().contains("numbers"), "{error}");
        }
    }

    #[test]
    fn a_list_becomes_pages() {
        assert_eq!(*Pages::from(vec![1, 2, 3]), [1, 2, 3]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn many_numbers_are_not_in_the_heap_of_a_thread() {
        // Freed in a heap that another thread has used, they would stay in memory.
        let pages = std::thread::spawn(|| {
            let mut pages = Pages::<u64>::with_capacity(4 << 20, "numbers").unwrap();
            pages.spare().fill(MaybeUninit::new(1));
            pages
        });
        let pages = pages.join().unwrap();
        assert!(matches!(pages.memory, Memory::Mapped(_)));
    }
}
