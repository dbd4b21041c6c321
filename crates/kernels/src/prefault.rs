//! Prefaults memory: the system maps its pages before they are written.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
#[cfg(target_os = "linux")]
use std::time::Duration;

use rsgen_core::sync::{Mutex, thread};

/// The bytes that one system call prefaults: a huge page.
const STEP: usize = 2 << 20;
/// The processor time that other threads of the process may take during a pause or a step, and how long a
/// pause is.
#[cfg(target_os = "linux")]
const MOST_BUSY: Duration = Duration::from_millis(2);
#[cfg(target_os = "linux")]
const PAUSE: Duration = Duration::from_millis(20);

/// Prefaults untouched memory while the process has nothing else to do, in a thread that ends when all is
/// done.
///
/// In a virtual machine whose host gives memory when it is first touched, that write can take a hundred times
/// as long as a later one. A hint: only Linux from 5.14 on takes it, and a failure changes nothing but times.
#[derive(Debug, Default)]
pub struct Prefaulter(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// Whether the prefaulter is gone.
    is_dropped: AtomicBool,
}

#[derive(Debug, Default)]
struct Queue {
    /// Addresses.
    ranges: VecDeque<Range<usize>>,
    is_running: bool,
}

impl Prefaulter {
    /// Adds memory. Its contents stay, and it may be written or freed meanwhile.
    pub fn add<T>(&self, memory: &mut [T]) {
        if cfg!(any(miri, not(target_os = "linux"))) {
            return;
        }
        let begin = memory.as_mut_ptr().addr();
        let mut queue = self.0.queue.lock();
        queue.ranges.push_back(begin..begin + size_of_val(memory));
        if !queue.is_running {
            let shared = Arc::clone(&self.0);
            let builder = thread::Builder::new().name("rsgen-prefault".to_owned());
            queue.is_running = builder.spawn(move || prefault_when_idle(&shared)).is_ok();
        }
    }
}

impl Drop for Prefaulter {
    /// The thread ends after its step. Without the lock: in a forked process no thread may be left to unlock
    /// it.
    fn drop(&mut self) {
        self.0.is_dropped.store(true, Ordering::Relaxed);
    }
}

/// The next memory of at most a step; none ends the thread.
fn next(shared: &Shared) -> Option<Range<usize>> {
    let mut queue = shared.queue.lock();
    let is_dropped = shared.is_dropped.load(Ordering::Relaxed);
    let Some(range) = queue.ranges.front_mut().filter(|_| !is_dropped) else {
        queue.is_running = false;
        return None;
    };
    let end = range.end.min((range.start + 1).next_multiple_of(STEP));
    let step = range.start..end;
    range.start = end;
    if range.start >= range.end {
        queue.ranges.pop_front();
    }
    Some(step)
}

#[cfg(target_os = "linux")]
fn prefault_when_idle(shared: &Shared) {
    // SAFETY: it takes numbers. On Linux it changes the priority of this thread alone.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) };
    // The first look finds it busy: the thread that added memory is about to compute.
    let mut before = Duration::ZERO;
    prefault_all(shared, || {
        let now = time_of_others();
        let is_busy = now.saturating_sub(before) > MOST_BUSY;
        before = now;
        is_busy
    });
}

/// Prefaults all memory of the queue, in steps, with pauses while `is_busy`.
#[cfg(target_os = "linux")]
fn prefault_all(shared: &Shared, mut is_busy: impl FnMut() -> bool) {
    // SAFETY: it reads a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    loop {
        if is_busy() {
            if shared.is_dropped.load(Ordering::Relaxed) {
                return;
            }
            thread::sleep(PAUSE);
            continue;
        }
        let Some(Range { start, end }) = next(shared) else { return };
        let (start, end) = (start.next_multiple_of(page), end / page * page);
        if start < end {
            let first = std::ptr::without_provenance_mut::<libc::c_void>(start);
            // SAFETY: whatever is mapped there by now, prefaulting leaves its contents as they are.
            unsafe { libc::madvise(first, end - start, libc::MADV_POPULATE_WRITE) };
        }
    }
}

/// The processor time that other threads of the process have taken.
#[cfg(target_os = "linux")]
fn time_of_others() -> Duration {
    let [all, own] = [libc::CLOCK_PROCESS_CPUTIME_ID, libc::CLOCK_THREAD_CPUTIME_ID].map(|clock| {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: it writes the time, and both clocks exist.
        unsafe { libc::clock_gettime(clock, &raw mut time) };
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    });
    all.saturating_sub(own)
}

#[cfg(not(target_os = "linux"))]
fn prefault_when_idle(_: &Shared) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_cover_all_ranges_once_and_the_thread_ends() {
        let ranges = [100..100, 7 * STEP + 5..10 * STEP - 1, 20 * STEP..20 * STEP + 1];
        let queue = Queue { ranges: ranges.clone().into(), is_running: true };
        let shared = Shared { queue: Mutex::new(queue), ..Shared::default() };
        let steps: Vec<_> = std::iter::from_fn(|| next(&shared)).collect();
        let covered = |range: &Range<usize>| -> usize {
            let within = |step: &&Range<usize>| range.start <= step.start && step.end <= range.end;
            steps.iter().filter(within).map(Range::len).sum()
        };
        for range in &ranges {
            assert_eq!(covered(range), range.len());
        }
        assert!(steps.iter().all(|step| step.len() <= STEP));
        assert!(!shared.queue.lock().is_running);
    }

    #[test]
    fn nothing_is_left_once_the_prefaulter_is_gone() {
        let queue = Queue { ranges: [0..STEP, STEP..2 * STEP].into(), is_running: true };
        let prefaulter = Prefaulter(Arc::new(Shared { queue: Mutex::new(queue), ..Shared::default() }));
        let shared = Arc::clone(&prefaulter.0);
        assert_eq!(next(&shared), Some(0..STEP));
        drop(prefaulter);
        assert_eq!(next(&shared), None);
        assert!(!shared.queue.lock().is_running);
    }

    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn pages_are_mapped_and_hold_what_they_held() {
        // An allocation of this size is fresh memory from the system.
        let mut memory: Vec<u64> = Vec::with_capacity((64 << 20) / size_of::<u64>());
        memory.resize(1000, 7);
        let begin = memory.as_ptr().addr();
        let page = (begin + 2 * STEP) / 4096 * 4096;
        let is_mapped = || {
            let mut found = 0u8;
            let first = std::ptr::without_provenance_mut(page);
            // SAFETY: the page lies within the vector, and the answer for one page is one byte.
            assert_eq!(unsafe { libc::mincore(first, 1, &raw mut found) }, 0);
            found & 1 == 1
        };
        assert!(!is_mapped());
        let mut queue = Queue { is_running: true, ..Queue::default() };
        queue.ranges.push_back(begin..begin + 4 * STEP);
        let mut busy = 3;
        prefault_all(&Shared { queue: Mutex::new(queue), ..Shared::default() }, || {
            busy -= i32::from(busy > 0);
            busy > 0
        });
        // Kernels before 5.14 do not know the request.
        assert!(is_mapped() || std::io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL));
        assert_eq!(memory, [7; 1000]);
    }
}
