//! An allocator that counts what the current thread allocates, and that refuses a large allocation when it is told to.
#![allow(unsafe_code, reason = "an allocator is unsafe")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

thread_local! {
    static COUNTED: Cell<Counted> = const { Cell::new(Counted { count_total: 0, bytes_total: 0 }) };
    /// The bytes that the thread holds, and the most that it held.
    static HELD: Cell<(i64, i64)> = const { Cell::new((0, 0)) };
}

/// How many large allocations of all threads succeed before one is refused; negative when none is to be.
static LEFT: AtomicIsize = AtomicIsize::new(-1);
/// The size from which on an allocation is large.
static LARGE: AtomicUsize = AtomicUsize::new(usize::MAX);
const REFUSED: isize = -2;

struct Allocator;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// The allocations of a thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counted {
    pub(crate) count_total: u64,
    pub(crate) bytes_total: u64,
}

/// Runs a function and returns what this thread has allocated in it.
pub(crate) fn measure(run: impl FnOnce()) -> Counted {
    let before = COUNTED.get();
    run();
    let after = COUNTED.get();
    Counted {
        count_total: after.count_total - before.count_total,
        bytes_total: after.bytes_total - before.bytes_total,
    }
}

/// Runs a function and returns the most memory that this thread has held for it at a time.
pub(crate) fn most_held(run: impl FnOnce()) -> u64 {
    let (before, _) = HELD.get();
    HELD.set((before, before));
    run();
    (HELD.get().1 - before) as u64
}

fn hold(bytes: i64) {
    let _ = HELD.try_with(|held| {
        let (now, most) = held.get();
        held.set((now + bytes, most.max(now + bytes)));
    });
}

/// Waits until no other test of this program runs, and keeps others waiting.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Refuses one large allocation as long as it lives.
pub(crate) struct Refusing;

impl Refusing {
    /// Refuses allocation `index` of those of `large` bytes and more, from now on, of any thread, counted from 0.
    pub(crate) fn nth(index: usize, large: usize) -> Self {
        LARGE.store(large, Ordering::SeqCst);
        LEFT.store(index as isize, Ordering::SeqCst);
        Self
    }

    /// Whether there was such an allocation.
    #[expect(clippy::unused_self, reason = "there is one as long as it is asked")]
    pub(crate) fn has_refused(&self) -> bool {
        LEFT.load(Ordering::SeqCst) == REFUSED
    }
}

impl Drop for Refusing {
    fn drop(&mut self) {
        LEFT.store(-1, Ordering::SeqCst);
    }
}

/// Counts an allocation; whether it is refused.
fn is_refused(size: usize) -> bool {
    // A thread that ends has no counter any more.
    let _ = COUNTED.try_with(|counted| {
        let Counted { count_total, bytes_total } = counted.get();
        counted.set(Counted { count_total: count_total + 1, bytes_total: bytes_total + size as u64 });
    });
    size >= LARGE.load(Ordering::Relaxed)
        && LEFT.load(Ordering::Relaxed) >= 0
        && LEFT
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| match left {
                0 => Some(REFUSED),
                1.. => Some(left - 1),
                _ => None,
            })
            .is_ok_and(|left| left == 0)
}

// SAFETY: it gives memory of the system's allocator, or none.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_refused(layout.size()) {
            return std::ptr::null_mut();
        }
        hold(layout.size() as i64);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_refused(layout.size()) {
            return std::ptr::null_mut();
        }
        hold(layout.size() as i64);
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if is_refused(size) {
            return std::ptr::null_mut();
        }
        // Both may be there while the bytes are copied.
        hold(size as i64);
        hold(-(layout.size() as i64));
        // SAFETY: the caller's promise.
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        hold(-(layout.size() as i64));
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }
}
