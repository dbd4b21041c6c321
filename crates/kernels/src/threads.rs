//! The threads that share the work of a forward pass.
//!
//! The calling thread is worker 0. Helpers are jobs on a [`ThreadPool`]. A *phase* is a closure and a number
//! of chunks. Threads claim chunks by compare-and-swap, and the phase ends when all chunks are done, not when
//! all threads have arrived. A helper that is descheduled or still asleep delays a phase only while it holds
//! a chunk.
//!
//! The caller begins with the first chunk, helpers begin with the one in the middle, and all go forward. So
//! the data of a chunk is usually still in the cache of the core that claims the same chunk of the next
//! phase, and what a core reads ahead at the end of a chunk is what it needs next.
//!
//! An idle helper spins for some microseconds, then yields its core, then returns to the pool and sleeps; the
//! next phase with several chunks wakes it. When other jobs wait for a thread of the pool, a helper also
//! leaves during work after [`MAX_OCCUPANCY`] and queues again.
//!
//! A fork and join per operation would cost 10 µs or more, and a decode step has 150 operations.

use std::any::Any;
use std::cell::UnsafeCell;
use std::fmt;
use std::hint::spin_loop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::isa::Isa;
use super::thread_pool::ThreadPool;
use rsgen_core::{Mutex, Result};

/// The most chunks of a phase: the claim word has 16 bits for each of the two counters.
const MAX_CHUNKS: usize = u16::MAX as usize;
/// How often an idle helper polls before it yields: some tens of microseconds.
const SPINS: u32 = 1000;
/// How long an idle helper yields before it sleeps: longer than the gap between two decode steps.
const LINGER: Duration = Duration::from_millis(2);
/// How long a helper occupies a thread of the pool: long compared with the microseconds that starting one
/// takes.
const MAX_OCCUPANCY: Duration = Duration::from_millis(10);

/// The threads of one model, and the instruction set they compute with.
pub struct Workers {
    pool: ThreadPool,
    shared: Arc<Shared>,
    isa: Isa,
}

/// The state that the caller and its helpers share.
struct Shared {
    /// `phase << 32 | end << 16 | next`, in one word so that a claim is atomic. Chunks `next..end` are
    /// unclaimed.
    claim: CachePadded<AtomicU64>,
    /// The chunks of the current phase that are done.
    done: CachePadded<AtomicUsize>,
    /// The helpers that are awake, or queued for a thread of the pool.
    awake: CachePadded<AtomicUsize>,
    /// The closure of the current phase. Written by the caller while no chunk is claimed or claimable, read
    /// after a successful claim.
    job: UnsafeCell<Job>,
    /// The payload of the first panic in the current phase.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    /// Set while a phase runs. A second caller then runs its phase alone.
    busy: AtomicBool,
}

/// A value on its own pair of cache lines: processors prefetch pairs.
#[repr(align(128))]
struct CachePadded<T>(T);

/// A borrowed closure with its lifetime erased. It lives until all chunks of its phase are done.
#[derive(Clone, Copy)]
struct Job(*const (dyn Fn(usize) + Sync));

// SAFETY: `job` is the one field that is not `Sync`; the protocol of `claim` and `done` orders its accesses:
// it is written only between phases, when every claimed chunk has been counted as done.
unsafe impl Sync for Shared {}
// SAFETY: the closure behind the pointer is `Sync`, and is called only while the caller waits for the phase's
// end.
unsafe impl Send for Shared {}

fn pack(phase: u64, end: usize, next: usize) -> u64 {
    phase << 32 | (end as u64) << 16 | next as u64
}

/// The chunk of a claim. Helpers claim from the back: they get the second half of the chunks from its first
/// one on.
fn chunk_of_claim(claim: usize, num_chunks: usize) -> usize {
    let half = num_chunks / 2;
    if claim < half { claim } else { half + num_chunks - 1 - claim }
}

fn unpack(word: u64) -> (usize, usize) {
    ((word >> 16 & 0xffff) as usize, (word & 0xffff) as usize)
}

impl Workers {
    /// The calling thread and `num_threads - 1` helpers.
    ///
    /// # Errors
    /// When `num_threads` is 0 or above 1024, or when the operating system refuses the threads.
    pub fn new(num_threads: usize, isa: Isa) -> Result<Self> {
        Ok(Self::on(ThreadPool::new(num_threads)?, isa))
    }

    /// The calling thread and helpers out of a pool.
    pub fn on(pool: ThreadPool, isa: Isa) -> Self {
        let shared = Shared {
            claim: CachePadded(AtomicU64::new(0)),
            done: CachePadded(AtomicUsize::new(0)),
            awake: CachePadded(AtomicUsize::new(0)),
            job: UnsafeCell::new(Job(&|_| {})),
            panic: Mutex::new(None),
            busy: AtomicBool::new(false),
        };
        Self { pool, shared: Arc::new(shared), isa }
    }

    /// The same threads with another instruction set, for a model that was packed for it.
    #[must_use]
    pub fn with_isa(&self, isa: Isa) -> Self {
        Self { pool: self.pool.clone(), shared: Arc::clone(&self.shared), isa }
    }

    /// The instruction set of the kernels.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// The number of threads, the calling one included.
    pub fn num_threads(&self) -> usize {
        self.pool.num_threads()
    }

    /// Runs `job(0)` to `job(num_chunks - 1)`, each once, on all threads; returns when all are done.
    ///
    /// # Panics
    /// When a chunk panics: all other chunks are finished first.
    pub fn run(&self, num_chunks: usize, job: &(dyn Fn(usize) + Sync)) {
        let mut first = 0;
        while first < num_chunks {
            let count = (num_chunks - first).min(MAX_CHUNKS);
            self.run_phase(count, &|chunk| job(first + chunk));
            first += count;
        }
    }

    fn run_phase(&self, num_chunks: usize, job: &(dyn Fn(usize) + Sync)) {
        let shared = &*self.shared;
        let pool = self.pool.helpers().filter(|_| num_chunks > 1);
        let Some(pool) = pool.filter(|_| !shared.busy.swap(true, Ordering::Acquire)) else {
            (0..num_chunks).for_each(job);
            return;
        };
        let job = &|claim| job(chunk_of_claim(claim, num_chunks));
        self.wake(pool);
        shared.done.0.store(0, Ordering::Relaxed);
        // SAFETY: `busy` makes this the only caller, and the previous phase ended with all its chunks done,
        // so no helper reads the job. The lifetime is erased, but this function returns only after all chunks
        // are done.
        unsafe {
            *shared.job.get() =
                Job(std::mem::transmute::<&(dyn Fn(usize) + Sync), &'static (dyn Fn(usize) + Sync)>(job));
        }
        let phase = (shared.claim.0.load(Ordering::Relaxed) >> 32) + 1;
        shared.claim.0.store(pack(phase & 0xffff_ffff, num_chunks, 0), Ordering::Release);

        while shared.run_one_chunk(End::Front) {}
        let mut looks = 0u32;
        while shared.done.0.load(Ordering::Acquire) < num_chunks {
            looks += 1;
            if looks < SPINS { spin_loop() } else { std::thread::yield_now() }
        }
        let panic = shared.panic.lock().take();
        shared.busy.store(false, Ordering::Release);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// Starts the helpers that sleep or have left the pool.
    fn wake(&self, pool: &rayon::ThreadPool) {
        let helpers = self.num_threads() - 1;
        while self.shared.awake.0.load(Ordering::Relaxed) < helpers {
            self.shared.awake.0.fetch_add(1, Ordering::Relaxed);
            let (shared, called) = (Arc::clone(&self.shared), Instant::now());
            pool.spawn(move || shared.helper_loop(called));
        }
    }
}

/// The end that a thread claims from.
#[derive(Clone, Copy)]
enum End {
    Front,
    Back,
}

impl Shared {
    /// Claims and runs one chunk; false when none is left.
    fn run_one_chunk(&self, from: End) -> bool {
        let mut word = self.claim.0.load(Ordering::Acquire);
        loop {
            let (end, next) = unpack(word);
            if next >= end {
                return false;
            }
            let (chunk, left) = match from {
                End::Front => (next, word + 1),
                End::Back => (end - 1, word - (1 << 16)),
            };
            match self.claim.0.compare_exchange_weak(word, left, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => {
                    // SAFETY: the chunk just claimed is not done, so the phase has not ended: the job is the
                    // one published with this phase, and its closure is alive.
                    let job = unsafe { &*(*self.job.get()).0 };
                    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| job(chunk))) {
                        self.panic.lock().get_or_insert(panic);
                    }
                    self.done.0.fetch_add(1, Ordering::Release);
                    return true;
                }
                Err(current) => word = current,
            }
        }
    }

    /// Runs a helper until it has been idle for [`LINGER`] or has occupied its thread for [`MAX_OCCUPANCY`].
    /// Time spent queued for the pool counts as idle.
    fn helper_loop(&self, called: Instant) {
        let came = Instant::now();
        let mut looks = 0u32;
        let mut idle_since = Some(called);
        loop {
            if self.run_one_chunk(End::Back) {
                (looks, idle_since) = (0, None);
                continue;
            }
            looks += 1;
            if looks == 1 && came.elapsed() > MAX_OCCUPANCY {
                break;
            }
            if looks < SPINS {
                spin_loop();
                continue;
            }
            std::thread::yield_now();
            if idle_since.get_or_insert_with(Instant::now).elapsed() > LINGER {
                break;
            }
        }
        self.awake.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers")
            .field("num_threads", &self.num_threads())
            .field("isa", &self.isa)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workers(num_threads: usize) -> Workers {
        Workers::new(num_threads, Isa::select().unwrap()).unwrap()
    }

    /// How often a test repeats a race. Miri takes a thousand times as long, and tries another order in each
    /// run.
    const REPEATS: usize = if cfg!(miri) { 4 } else { 200 };

    #[test]
    fn each_chunk_runs_exactly_once() {
        for num_threads in [1, 2, 3, 8] {
            let workers = workers(num_threads);
            assert_eq!(workers.num_threads(), num_threads);
            for num_chunks in [0, 1, 2, 7, 100] {
                let counts: Vec<AtomicUsize> = (0..num_chunks).map(|_| AtomicUsize::new(0)).collect();
                for _ in 0..REPEATS {
                    workers.run(num_chunks, &|chunk| {
                        counts[chunk].fetch_add(1, Ordering::Relaxed);
                    });
                }
                assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == REPEATS));
            }
        }
    }

    #[test]
    fn a_helper_goes_forward_from_the_middle() {
        let order = Mutex::new(Vec::new());
        workers(2).run(9, &|chunk| {
            // The caller's first chunk, which ends last.
            while chunk == 0 && order.lock().len() < 8 {
                std::thread::yield_now();
            }
            order.lock().push(chunk);
        });
        assert_eq!(*order.lock(), [4, 5, 6, 7, 8, 3, 2, 1, 0]);
    }

    #[test]
    fn more_chunks_than_a_claim_word_holds_run_in_several_phases() {
        let sum = AtomicUsize::new(0);
        workers(2).run(200_000, &|chunk| {
            sum.fetch_add(chunk, Ordering::Relaxed);
        });
        assert_eq!(sum.into_inner(), 199_999 * 200_000 / 2);
    }

    #[test]
    fn a_panic_in_a_chunk_reaches_the_caller_and_the_workers_stay_usable() {
        let workers = workers(2);
        let attempt =
            catch_unwind(AssertUnwindSafe(|| workers.run(8, &|chunk| assert_ne!(chunk, 5, "on purpose"))));
        let panic = attempt.unwrap_err();
        assert!(panic.downcast_ref::<String>().is_some_and(|message| message.contains("on purpose")));
        let count = AtomicUsize::new(0);
        workers.run(8, &|_| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(count.into_inner(), 8);
    }

    #[test]
    fn two_callers_at_once_both_finish() {
        let workers = workers(2);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..3 * REPEATS {
                        let count = AtomicUsize::new(0);
                        workers.run(4, &|_| {
                            count.fetch_add(1, Ordering::Relaxed);
                        });
                        assert_eq!(count.into_inner(), 4);
                    }
                });
            }
        });
    }
    #[test]
    fn other_jobs_of_the_pool_run_while_the_work_never_pauses() {
        let pool = ThreadPool::new(2).unwrap();
        let workers = Workers::on(pool.clone(), Isa::select().unwrap());
        let stop = &AtomicBool::new(false);
        std::thread::scope(|scope| {
            // Long enough for the helper to find some of each phase left.
            let chunk = |_| (0..2000).for_each(|_| spin_loop());
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    workers.run(8, &chunk);
                }
            });
            let (done, ends) = std::sync::mpsc::channel();
            let in_time = (0..50).all(|_| {
                let done = done.clone();
                // By then the one helper is at work.
                std::thread::sleep(Duration::from_millis(1));
                pool.helpers().unwrap().spawn(move || done.send(()).unwrap());
                ends.recv_timeout(Duration::from_secs(5)).is_ok()
            });
            stop.store(true, Ordering::Relaxed);
            assert!(in_time);
        });
    }
}
