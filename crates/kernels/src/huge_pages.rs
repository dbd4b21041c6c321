//! Requests huge pages. The page faults of 4 KB pages cost more than filling the memory.

/// Requests huge pages for untouched memory. A hint: small memory and other systems ignore it.
#[cfg(target_os = "linux")]
pub fn advise_huge_pages<T>(memory: &mut [T]) {
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

/// Requests huge pages for untouched memory. A hint: small memory and other systems ignore it.
#[cfg(not(target_os = "linux"))]
pub fn advise_huge_pages<T>(_memory: &mut [T]) {}
