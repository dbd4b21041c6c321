//! The worker threads on which the code of a model folder runs: its chat template, and its tokenizer on long
//! texts.
//!
//! minijinja and the `tokenizers` crate cannot be stopped from outside. So the caller waits, polls, and
//! leaves when it is interrupted or the time limit is over; a panic becomes an error. A worker that was left
//! asks `check` now and then and ends; no more of them than the machine has cores go on, and the next call
//! waits for them.

use std::cell::RefCell;
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use rsgen_core::error::{Error, Result};
use rsgen_core::process::OwnerPid;
use rsgen_core::sync::thread;

/// The time between two polls.
const POLL: Duration = Duration::from_millis(5);
/// The limit of a worker's processor time, and what each byte of the input adds to it: a hundred times what
/// ordinary templates and texts take. It is counted in polls, so a process that was paused loses none of it,
/// and when they are over, what the system says counts (on Linux), so a busy machine takes none of it away.
const MAX_TIME: Duration = Duration::from_secs(10);
const MAX_TIME_PER_BYTE: Duration = Duration::from_micros(50);
/// The stack of a worker: templates nest and recurse. Reserved, not committed.
const STACK_BYTES: usize = 64 << 20;

const RUNS: u8 = 0;
const HAS_ENDED: u8 = 1;
const IS_ABANDONED: u8 = 2;

/// How many workers go on although their callers have left, below the id of their process: a fork copies the
/// number, and not the threads.
static ABANDONED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The state of the worker that this thread is.
    static STATE: RefCell<Arc<AtomicU8>> = RefCell::default();
}

/// Runs `work` on a worker, for `what` with an input of `bytes` bytes, until `interrupted` returns true. It
/// is polled every few milliseconds, on this thread.
///
/// # Errors
/// Those of `work`; `Cancelled`; `Input` when it takes too long or panics; `Capacity` when no worker is to be
/// had.
pub(super) fn run<T: Send + 'static>(
    interrupted: &mut dyn FnMut() -> bool,
    what: &str,
    bytes: usize,
    work: impl Fn() -> Result<T> + Send + Sync + 'static,
) -> Result<T> {
    run_shared(interrupted, what, bytes, &Arc::new(work))
}

fn run_shared<T: Send + 'static>(
    interrupted: &mut dyn FnMut() -> bool,
    what: &str,
    bytes: usize,
    work: &Arc<impl Fn() -> Result<T> + Send + Sync + 'static>,
) -> Result<T> {
    let limit = MAX_TIME + MAX_TIME_PER_BYTE * u32::try_from(bytes).unwrap_or(u32::MAX);
    let mut polls_left = polls(limit);
    let mut poll = |started: Option<&PathBuf>| {
        polls_left = polls_left.saturating_sub(1);
        if interrupted() {
            return Err(Error::cancelled());
        }
        if polls_left == 0 {
            let taken = started.and_then(|started| processor_time(started));
            polls_left = polls(taken.map_or(Duration::ZERO, |taken| limit.saturating_sub(taken)));
        }
        Ok(polls_left > 0)
    };
    let most = thread::available_parallelism().map_or(1, usize::from);
    while abandoned() >= most as u64 {
        thread::sleep(POLL);
        if !poll(None)? {
            return Err(Error::capacity(format!(
                "{what}: {most} others that took too long have not ended; try again later"
            )));
        }
    }
    let caller = Caller { pid: OwnerPid::current(), state: Arc::new(AtomicU8::new(RUNS)) };
    // Nothing is sent: the sender is dropped when the thread ends, which wakes the caller.
    let (alive, ended) = mpsc::channel::<Infallible>();
    let (shared, runner) = (Arc::clone(work), Runner(Arc::clone(&caller.state)));
    let started = Arc::new(OnceLock::new());
    let starts = Arc::clone(&started);
    let run = move || {
        let _alive = alive;
        if let Ok(thread) = std::fs::read_link("/proc/thread-self") {
            let _ = starts.set(Path::new("/proc").join(thread));
        }
        STATE.set(Arc::clone(&runner.0));
        let result = catch_unwind(AssertUnwindSafe(|| shared()));
        drop(runner);
        result
    };
    let builder = thread::Builder::new().name("rsgen-text".into()).stack_size(STACK_BYTES);
    let thread = builder.spawn(run).map_err(|error| {
        Error::capacity(format!("{what}: the system gives no thread for it")).with_source(error)
    })?;
    while let Err(mpsc::RecvTimeoutError::Timeout) = ended.recv_timeout(POLL) {
        let in_time = poll(started.get())?;
        if !caller.pid.is_current() {
            // A signal handler has forked, and here the thread does not exist.
            return run_shared(interrupted, what, bytes, work);
        }
        if !in_time {
            return Err(Error::input(format!(
                "{what}: it takes too long, more than {} seconds",
                limit.as_secs()
            )));
        }
    }
    let panicked = |panic: Box<dyn std::any::Any + Send>| {
        let message = panic.downcast_ref::<String>().map(String::as_str);
        let message = message.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        Err(Error::input(format!("{what}: it makes the library that runs it panic: {message}")))
    };
    thread.join().unwrap_or_else(Err).unwrap_or_else(panicked)
}

fn polls(time: Duration) -> u128 {
    time.as_millis() / POLL.as_millis()
}

/// The processor time of a thread of this process, on Linux.
fn processor_time(thread: &Path) -> Option<Duration> {
    let nanoseconds = std::fs::read_to_string(thread.join("schedstat")).ok()?;
    nanoseconds.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}

/// Fails if the caller no longer waits for this worker.
///
/// # Errors
/// `Cancelled` when its caller has left.
pub(super) fn check() -> Result<()> {
    if STATE.with_borrow(|state| state.load(Ordering::Relaxed)) == IS_ABANDONED {
        return Err(Error::cancelled());
    }
    Ok(())
}

/// The threads of this process that go on without their callers.
fn abandoned() -> u64 {
    of_this_process(ABANDONED.load(Ordering::Acquire))
}

fn of_this_process(counted: u64) -> u64 {
    if counted >> 32 == u64::from(std::process::id()) { counted & u64::from(u32::MAX) } else { 0 }
}

/// Says when the caller leaves, also by a panic.
struct Caller {
    pid: OwnerPid,
    state: Arc<AtomicU8>,
}

impl Drop for Caller {
    fn drop(&mut self) {
        if !self.pid.is_current() || self.state.load(Ordering::Acquire) == HAS_ENDED {
            return;
        }
        // Counted first: the thread may end at any moment, and then counts itself out.
        let pid = u64::from(std::process::id()) << 32;
        let one_more = |counted| Some(pid | (of_this_process(counted) + 1));
        let _ = ABANDONED.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more);
        if self.state.swap(IS_ABANDONED, Ordering::AcqRel) == HAS_ENDED {
            ABANDONED.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// Says when the thread ends, also by a panic.
struct Runner(Arc<AtomicU8>);

impl Drop for Runner {
    fn drop(&mut self) {
        if self.0.swap(HAS_ENDED, Ordering::AcqRel) == IS_ABANDONED {
            ABANDONED.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::mpsc::{Receiver, channel};
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use super::*;
    use rsgen_core::error::ErrorKind;

    /// Tests that leave workers, or count those of the process, run one after the other.
    pub(crate) fn alone() -> MutexGuard<'static, ()> {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        wait_for_all();
        alone
    }

    /// A stage that ends when it is told to.
    fn stage() -> (mpsc::Sender<()>, Mutex<Receiver<()>>) {
        let (end, ended) = channel();
        (end, Mutex::new(ended))
    }

    fn wait_for_all() {
        while abandoned() > 0 {
            thread::sleep(POLL);
        }
    }

    #[test]
    fn a_caller_leaves_in_the_middle_of_a_stage_and_the_thread_ends_after_it() {
        let _alone = alone();
        let (end, ended) = stage();
        let mut polls = 0;
        let mut third = || {
            polls += 1;
            polls == 3
        };
        let left = run(&mut third, "a text", 0, move || {
            ended.lock().unwrap().recv().unwrap();
            check()
        });
        assert_eq!(left.unwrap_err().kind(), ErrorKind::Cancelled);
        assert_eq!((polls, abandoned()), (3, 1));
        end.send(()).unwrap();
        wait_for_all();
    }

    #[test]
    fn as_many_as_cores_may_go_on_alone_and_the_next_one_waits() {
        let _alone = alone();
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let mut ends = Vec::new();
        for _ in 0..cores {
            let (end, ended) = stage();
            let encoded = run(&mut || true, "a text", 0, move || {
                ended.lock().unwrap().recv().unwrap();
                Ok(())
            });
            assert_eq!(encoded.unwrap_err().kind(), ErrorKind::Cancelled);
            ends.push(end);
        }
        assert_eq!(abandoned(), cores as u64);
        let waits = run(&mut || true, "a text", 0, || -> Result<()> { panic!("it may not begin") });
        assert_eq!(waits.unwrap_err().kind(), ErrorKind::Cancelled);
        for end in ends {
            end.send(()).unwrap();
        }
        assert_eq!(run(&mut || false, "a text", 0, || Ok(5)).unwrap(), 5);
        wait_for_all();
    }

    #[test]
    fn results_errors_and_panics_reach_the_caller() {
        let _alone = alone();
        assert_eq!(run(&mut || false, "a text", 0, || Ok(7)).unwrap(), 7);
        let error = run(&mut || false, "a text", 0, || -> Result<()> { Err(Error::input("too long")) });
        assert_eq!(error.unwrap_err().to_string(), "too long");
        let panicked = run(&mut || false, "a text", 0, || -> Result<()> { panic!("a defect") }).unwrap_err();
        assert_eq!(panicked.kind(), ErrorKind::Input);
        assert!(panicked.to_string().ends_with("panic: a defect"), "{panicked}");
    }

    #[test]
    fn a_worker_that_takes_too_long_is_left_and_ends_when_it_asks() {
        let _alone = alone();
        let started = std::time::Instant::now();
        let late = run(&mut || false, "a text", 0, || -> Result<()> {
            loop {
                check()?;
            }
        });
        let error = late.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Input);
        assert!(error.to_string().contains("takes too long"), "{error}");
        assert!(started.elapsed() >= MAX_TIME, "{:?}", started.elapsed());
        wait_for_all();
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_processor_time_of_a_thread_is_known_and_sleep_is_none() {
        let thread = Path::new("/proc").join(std::fs::read_link("/proc/thread-self").unwrap());
        let before = processor_time(&thread).unwrap();
        thread::sleep(Duration::from_millis(200));
        assert!(processor_time(&thread).unwrap() < before + Duration::from_millis(150));
    }
}
