//! Returns freed memory to the system. The C library keeps what lies between used memory for later allocations.

/// Returns the whole pages of freed memory to the system. Other C libraries than glibc ignore it.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn return_freed_memory() {
    // SAFETY: it touches memory alone that is not allocated, under the locks of the allocator.
    unsafe { libc::malloc_trim(0) };
}

/// Returns the whole pages of freed memory to the system. Other C libraries than glibc ignore it.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn return_freed_memory() {}
