//! The threads that step the streams of event loops.
//!
//! A model computes one pass at a time, so a thread for each stream would only wait. A few threads take the streams in
//! turns, a pass each, which also keeps a long prompt from holding the others up. They are started when there is more to
//! do than they can, and end when there has been nothing to do for a while.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, PoisonError};
use std::thread;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::sync::Mutex;

/// The most threads of one generator. More than one, because a callback of the caller's may take its time.
const MOST: usize = 4;
/// How long a thread waits for something to do.
const LINGER: Duration = Duration::from_millis(500);

/// Work that is done in steps.
pub(super) trait Job: Send {
    /// Does one step. What is left to do comes back, and goes behind the jobs that wait.
    fn step(self: Box<Self>) -> Option<Box<dyn Job>>;
}

/// The threads of one generator and the jobs that wait for them.
#[derive(Default)]
pub(super) struct Drivers(Arc<Shared>);

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    filled: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Box<dyn Job>>,
    num_threads: usize,
    num_idle: usize,
}

impl Drivers {
    /// Adds a job: in front of all that wait if it is urgent.
    ///
    /// # Errors
    /// `Capacity` when there is no thread, and the operating system refuses one.
    pub(super) fn add(&self, job: Box<dyn Job>, is_urgent: bool) -> Result<()> {
        let mut queue = self.0.queue.lock();
        if queue.jobs.len() >= queue.num_idle
            && queue.num_threads
                < std::env::var("RSGEN_MOST").ok().and_then(|m| m.parse().ok()).unwrap_or(MOST)
        {
            let shared = Arc::clone(&self.0);
            match thread::Builder::new().name("rsgen-stream".to_owned()).spawn(move || shared.drive()) {
                Ok(_) => queue.num_threads += 1,
                Err(_) if queue.num_threads > 0 => {}
                Err(error) => {
                    return Err(Error::capacity(
                        "could not start a thread for asynchronous streams; let other threads end",
                    )
                    .with_source(error));
                }
            }
        }
        if is_urgent {
            queue.jobs.push_front(job)
        } else {
            queue.jobs.push_back(job)
        }
        drop(queue);
        self.0.filled.notify_one();
        Ok(())
    }
}

impl Shared {
    /// The life of a thread.
    fn drive(&self) {
        while let Some(job) = self.next() {
            // A job reports its own failures; this keeps the count of the threads right whatever happens.
            if let Ok(Some(rest)) = catch_unwind(AssertUnwindSafe(|| job.step())) {
                self.queue.lock().jobs.push_back(rest);
            }
        }
    }

    /// The next job, or `None` when the thread is to end.
    fn next(&self) -> Option<Box<dyn Job>> {
        let mut queue = self.queue.lock();
        if queue.jobs.is_empty() {
            queue.num_idle += 1;
            let empty = |queue: &mut Queue| queue.jobs.is_empty();
            queue = self
                .filled
                .wait_timeout_while(queue, LINGER, empty)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
            queue.num_idle -= 1;
        }
        let job = queue.jobs.pop_front();
        if job.is_none() {
            queue.num_threads -= 1;
        }
        job
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{Sender, channel};

    use super::*;

    /// Sends its name at each step.
    struct Steps {
        name: usize,
        left: usize,
        sender: Sender<usize>,
    }

    impl Job for Steps {
        fn step(mut self: Box<Self>) -> Option<Box<dyn Job>> {
            self.sender.send(self.name).unwrap();
            self.left -= 1;
            (self.left > 0).then_some(self)
        }
    }

    #[test]
    fn all_jobs_are_stepped_to_their_end_by_a_few_threads_that_end_too() {
        let (drivers, (sender, steps)) = (Drivers::default(), channel());
        for name in 0..100 {
            drivers.add(Box::new(Steps { name, left: 20, sender: sender.clone() }), false).unwrap();
            assert!(drivers.0.queue.lock().num_threads <= MOST);
        }
        drop(sender);
        let mut counts = [0; 100];
        for name in steps {
            counts[name] += 1;
        }
        assert_eq!(counts, [20; 100]);
        thread::sleep(2 * LINGER);
        assert_eq!(drivers.0.queue.lock().num_threads, 0);
    }

    struct Panics;

    impl Job for Panics {
        fn step(self: Box<Self>) -> Option<Box<dyn Job>> {
            panic!("on purpose")
        }
    }

    #[test]
    fn a_panic_costs_no_thread() {
        static DONE: AtomicUsize = AtomicUsize::new(0);
        struct Counts;
        impl Job for Counts {
            fn step(self: Box<Self>) -> Option<Box<dyn Job>> {
                DONE.fetch_add(1, Ordering::SeqCst);
                None
            }
        }
        let drivers = Drivers::default();
        for _ in 0..20 {
            drivers.add(Box::new(Panics), false).unwrap();
            drivers.add(Box::new(Counts), true).unwrap();
        }
        while DONE.load(Ordering::SeqCst) < 20 {
            thread::yield_now();
        }
        assert!(drivers.0.queue.lock().num_threads <= MOST);
    }
}
