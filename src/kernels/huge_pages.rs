//! Asks the operating system for huge pages. Memory that is first touched in pages of 4 KB costs more to touch than to fill.

/// Asks for huge pages in memory that has not been touched yet. A hint, which small memory and other systems ignore.
#[cfg(target_os = "linux")]
pub fn advise_huge_pages<T>(memory: &mut [T]) {
    const HUGE_PAGE: usize = 2 << 20;
    let begin = memory.as_mut_ptr().addr();
    let before = begin.next_multiple_of(HUGE_PAGE) - begin;
    let len = size_of_val(memory).saturating_sub(before) / HUGE_PAGE * HUGE_PAGE;
    if len > 0 {
        let first = memory.as_mut_ptr().wrapping_byte_add(before).cast();
        // SAFETY: the range lies within the slice, and how its pages are backed changes nothing of what they hold.
        unsafe { libc::madvise(first, len, libc::MADV_HUGEPAGE) };
    }
}

/// Asks for huge pages in memory that has not been touched yet. A hint, which small memory and other systems ignore.
#[cfg(not(target_os = "linux"))]
pub fn advise_huge_pages<T>(_memory: &mut [T]) {}
