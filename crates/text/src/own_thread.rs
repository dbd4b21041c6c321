//! Encodes a long text on a thread of its own, so that the caller can leave.
//!
//! The `tokenizers` crate takes a whole text through each of its stages, up to 250 ms for each MB, and cannot be stopped within
//! one. The caller waits, polls, and leaves when it is interrupted; the thread ends after its stage.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use super::budget::Budget;
use rsgen_core::error::Result;
use rsgen_core::process::OwnerPid;
use rsgen_core::sync::thread;

/// The time between two polls.
const POLL: Duration = Duration::from_millis(5);

const RUNS: u8 = 0;
const HAS_ENDED: u8 = 1;
const IS_ABANDONED: u8 = 2;

/// How many threads go on although their callers have left, below the id of their process: a fork copies the number, and
/// not the threads.
static ABANDONED: AtomicU64 = AtomicU64::new(0);

/// Runs `encode` on a thread of its own, or on this one if the system gives none. No more threads than the machine has cores go
/// on without their callers: the next one waits for them.
///
/// # Errors
/// Those of `encode`, and `Cancelled`.
pub(super) fn encode<T: Send + 'static>(
    budget: &Budget<'_>,
    encode: impl Fn(&Budget<'_>) -> Result<T> + Send + Sync + 'static,
) -> Result<T> {
    let most = thread::available_parallelism().map_or(1, usize::from);
    while abandoned() >= most as u64 {
        thread::sleep(POLL);
        budget.poll()?;
    }
    let encode = Arc::new(encode);
    let caller = Caller { pid: OwnerPid::current(), state: Arc::new(AtomicU8::new(RUNS)) };
    // Nothing is sent: the sender is dropped when the thread ends, which wakes the caller.
    let (alive, ended) = mpsc::channel::<Infallible>();
    let thread = {
        let (encode, runner) = (Arc::clone(&encode), Runner(Arc::clone(&caller.state)));
        let run = move || {
            let _alive = alive;
            encode(&Budget::new(&mut || runner.0.load(Ordering::Relaxed) == IS_ABANDONED))
        };
        thread::Builder::new().name("rsgen-encode".into()).spawn(run)
    };
    let Ok(thread) = thread else { return encode(budget) };
    while let Err(mpsc::RecvTimeoutError::Timeout) = ended.recv_timeout(POLL) {
        budget.poll()?;
        if !caller.pid.is_current() {
            // A signal handler has forked, and here the thread does not exist.
            return encode(budget);
        }
    }
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
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
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, channel};

    use super::*;
    use rsgen_core::error::{Error, ErrorKind};

    /// The tests count the threads of the process, so they run one after the other.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

    /// A stage that ends when it is told to.
    fn stage() -> (mpsc::Sender<()>, Mutex<Receiver<()>>) {
        let (end, ended) = channel();
        (end, Mutex::new(ended))
    }

    #[test]
    fn a_caller_leaves_in_the_middle_of_a_stage_and_the_thread_ends_after_it() {
        let _alone = ONE_AT_A_TIME.lock().unwrap();
        let (end, ended) = stage();
        let mut polls = 0;
        let mut third = || {
            polls += 1;
            polls == 3
        };
        let left = encode(&Budget::new(&mut third), move |budget| {
            ended.lock().unwrap().recv().unwrap();
            budget.poll()?;
            Ok(())
        });
        assert_eq!(left.unwrap_err().kind(), ErrorKind::Cancelled);
        assert_eq!((polls, abandoned()), (3, 1));
        end.send(()).unwrap();
        while abandoned() > 0 {
            thread::sleep(POLL);
        }
    }

    #[test]
    fn as_many_as_cores_may_go_on_alone_and_the_next_one_waits() {
        let _alone = ONE_AT_A_TIME.lock().unwrap();
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let mut ends = Vec::new();
        for _ in 0..cores {
            let (end, ended) = stage();
            let encoded = encode(&Budget::new(&mut || true), move |_| {
                ended.lock().unwrap().recv().unwrap();
                Ok(())
            });
            assert_eq!(encoded.unwrap_err().kind(), ErrorKind::Cancelled);
            ends.push(end);
        }
        assert_eq!(abandoned(), cores as u64);
        let waits = encode(&Budget::new(&mut || true), |_| -> Result<()> { panic!("it may not begin") });
        assert_eq!(waits.unwrap_err().kind(), ErrorKind::Cancelled);
        for end in ends {
            end.send(()).unwrap();
        }
        let encoded = encode(&Budget::new(&mut || false), |_| Ok(5));
        assert_eq!(encoded.unwrap(), 5);
        while abandoned() > 0 {
            thread::sleep(POLL);
        }
    }

    #[test]
    fn results_errors_and_panics_reach_the_caller() {
        let never = || false;
        assert_eq!(encode(&Budget::new(&mut never.clone()), |_| Ok(7)).unwrap(), 7);
        let error =
            encode(&Budget::new(&mut never.clone()), |_| -> Result<()> { Err(Error::input("too long")) });
        assert_eq!(error.unwrap_err().to_string(), "too long");
        let panicked = std::panic::catch_unwind(|| {
            encode(&Budget::new(&mut never.clone()), |_| -> Result<()> { panic!("a defect") })
        });
        assert_eq!(panicked.unwrap_err().downcast_ref::<&str>(), Some(&"a defect"));
    }
}
