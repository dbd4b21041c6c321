//! A pool of helper threads that generators can share.
//!
//! It owns its threads or uses a rayon pool of the caller. [`Workers`](super::Workers) schedules work on it.
//! The global rayon pool is never used.

use std::fmt;
use std::sync::Arc;
use std::thread::JoinHandle;

use rsgen_core::{Error, OwnerPid, Result, message, refuse_if};

/// Threads that one or more generators compute on.
///
/// A call computes on the thread that makes it and on helpers out of the pool,
/// [`num_threads`](Self::num_threads) in all. Clones are handles of the same pool.
///
/// Generators that share a pool, and other jobs on it, alternate: a helper leaves its thread after some
/// milliseconds, and waiting jobs run first. A call never waits for a thread of the pool: while all are busy
/// it computes alone, with the same bits. So a generator can also be used from inside its own pool.
///
/// The threads of [`ThreadPool::new`] end when the last handle and the last generator on them are dropped,
/// and the drop returns when they have ended.
#[derive(Clone)]
pub struct ThreadPool(Arc<Inner>);

struct Inner {
    /// The rayon pool of the helpers; `None` when callers work alone.
    helpers: Option<Arc<rayon::ThreadPool>>,
    num_threads: usize,
    /// The threads to join on drop; empty for a pool of the caller.
    owned: Vec<JoinHandle<()>>,
    /// The process that has these threads.
    owner: OwnerPid,
}

impl ThreadPool {
    /// A pool for calls on `num_threads` threads: the one that calls, and `num_threads - 1` that are started
    /// here.
    ///
    /// # Errors
    /// When `num_threads` is 0 or above 1024, or when the operating system refuses the threads.
    pub fn new(num_threads: usize) -> Result<Self> {
        refuse_if(!(1..=1024).contains(&num_threads), "num_threads", || {
            format!("must be from 1 to 1024, got {num_threads}")
        })?;
        let mut owned = Vec::new();
        let helpers = (num_threads > 1).then(|| {
            rayon::ThreadPoolBuilder::new()
                .num_threads(num_threads - 1)
                // Spawned here to have join handles.
                .spawn_handler(|thread| {
                    let name = format!("rsgen-{}", thread.index() + 1);
                    owned.push(std::thread::Builder::new().name(name).spawn(|| thread.run())?);
                    Ok(())
                })
                .build()
        });
        let helpers = helpers.transpose().map_err(|error| {
            Error::capacity(message!(
                ("could not start {} threads; lower ", num_threads - 1) {num_threads}
            ))
            .with_source(error)
        })?;
        let helpers = helpers.map(Arc::new);
        Ok(Self(Arc::new(Inner { helpers, num_threads, owned, owner: OwnerPid::current() })))
    }

    /// The threads that a call computes on, the calling one included.
    pub fn num_threads(&self) -> usize {
        self.0.num_threads
    }

    /// The rayon pool of the helpers; `None` when callers work alone.
    pub(super) fn helpers(&self) -> Option<&rayon::ThreadPool> {
        self.0.helpers.as_deref()
    }
}

/// A pool of the caller's: with `n` threads, calls compute on `n` as well, of which at most `n - 1` are the
/// pool's, for the calling thread is one. Its threads stay the caller's to end.
impl From<Arc<rayon::ThreadPool>> for ThreadPool {
    fn from(pool: Arc<rayon::ThreadPool>) -> Self {
        let num_threads = pool.current_num_threads();
        let helpers = (num_threads > 1).then_some(pool);
        Self(Arc::new(Inner { helpers, num_threads, owned: Vec::new(), owner: OwnerPid::current() }))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.owner.is_current() {
            // A forked process has none of the threads, and may have copied a lock of the pool that one of
            // them held.
            std::mem::forget(self.helpers.take());
            return;
        }
        // Tells the threads of our own to end; no job on them waits for anything.
        self.helpers = None;
        for thread in self.owned.drain(..) {
            // A thread that panicked has ended, too.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for ThreadPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadPool").field("num_threads", &self.0.num_threads).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    #[test]
    fn absurd_thread_counts_are_refused() {
        for count in [0, 1025, usize::MAX] {
            let error = ThreadPool::new(count).unwrap_err();
            assert!(error.to_string().contains("num_threads"), "{error}");
        }
    }

    #[test]
    fn the_calling_thread_is_one_of_them() {
        for count in [1, 2, 5] {
            let own = ThreadPool::new(count).unwrap();
            assert_eq!(own.num_threads(), count);
            assert_eq!(own.helpers().map_or(0, rayon::ThreadPool::current_num_threads), count - 1);
            let handed_in = rayon::ThreadPoolBuilder::new().num_threads(count).build().unwrap();
            assert_eq!(ThreadPool::from(Arc::new(handed_in)).num_threads(), count);
        }
    }
    /// Counts threads as they end, and takes its time.
    struct Ending(Arc<AtomicUsize>);

    impl Drop for Ending {
        fn drop(&mut self) {
            std::thread::sleep(Duration::from_millis(30));
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    thread_local! {
        static ENDING: RefCell<Option<Ending>> = const { RefCell::new(None) };
    }

    #[test]
    fn the_last_handle_returns_when_the_threads_have_ended() {
        let ended = Arc::new(AtomicUsize::new(0));
        let pool = ThreadPool::new(4).unwrap();
        pool.helpers().unwrap().broadcast(|_| ENDING.set(Some(Ending(Arc::clone(&ended)))));
        let handle = pool.clone();
        drop(pool);
        assert_eq!(ended.load(Ordering::Relaxed), 0);
        drop(handle);
        assert_eq!(ended.load(Ordering::Relaxed), 3);
    }
}
