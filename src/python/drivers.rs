//! The threads that step the streams of event loops.
//!
//! A model computes one pass at a time, so a thread for each stream would only wait. One thread takes the streams in
//! turns, a pass each, which also keeps a long prompt from holding the others up. A second one looks on: when a step takes
//! long, in a large model or in a callback of the caller's, it goes on with the others. Handing each pass from thread to
//! thread without need would double the cost of the passes of a small model.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::sync::Mutex;

/// The most threads of one generator.
const MOST: usize = 4;
/// How long a step takes before another thread goes on with the next job.
const LONG: Duration = Duration::from_millis(20);
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
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Box<dyn Job>>,
    num_threads: usize,
    /// Those that do a step.
    num_active: usize,
    /// When a step has begun or ended last.
    moved: Option<Instant>,
}

impl Drivers {
    /// Adds a job: in front of all that wait if it is urgent.
    ///
    /// # Errors
    /// `Capacity` when there is no thread, and the operating system refuses one.
    pub(super) fn add(&self, job: Box<dyn Job>, is_urgent: bool) -> Result<()> {
        let mut queue = self.0.queue.lock();
        let reserve = self.0.keep_one_in_reserve(&mut queue);
        if let Some(error) = reserve.err().filter(|_| queue.num_threads == 0) {
            let refused = "could not start a thread for asynchronous streams; let other threads end";
            return Err(Error::capacity(refused).with_source(error));
        }
        if is_urgent {
            queue.jobs.push_front(job);
        } else {
            queue.jobs.push_back(job);
        }
        // Whoever is active looks for the next job anyway.
        if queue.num_active == 0 {
            self.0.changed.notify_one();
        }
        Ok(())
    }
}

impl Shared {
    /// Starts a thread when all that there are do a step.
    fn keep_one_in_reserve(self: &Arc<Self>, queue: &mut Queue) -> io::Result<()> {
        if queue.num_active == queue.num_threads && queue.num_threads < MOST {
            let shared = Arc::clone(self);
            thread::Builder::new().name("rsgen-stream".to_owned()).spawn(move || shared.drive())?;
            queue.num_threads += 1;
        }
        Ok(())
    }

    /// The life of a thread.
    fn drive(self: Arc<Self>) {
        while let Some(job) = self.next() {
            // A job reports its own failures; this keeps the counts right whatever happens.
            let rest = catch_unwind(AssertUnwindSafe(|| job.step()));
            let mut queue = self.queue.lock();
            queue.num_active -= 1;
            queue.moved = Some(Instant::now());
            queue.jobs.extend(rest.ok().flatten());
        }
    }

    /// The next job, or `None` when the thread is to end.
    fn next(self: &Arc<Self>) -> Option<Box<dyn Job>> {
        let (mut queue, start) = (self.queue.lock(), Instant::now());
        loop {
            let is_free = queue.num_active == 0 || queue.moved.is_none_or(|moved| moved.elapsed() >= LONG);
            if is_free && let Some(job) = queue.jobs.pop_front() {
                queue.num_active += 1;
                queue.moved = Some(Instant::now());
                if !queue.jobs.is_empty() {
                    // Without another thread the jobs wait for this one.
                    let _ = self.keep_one_in_reserve(&mut queue);
                }
                return Some(job);
            }
            if queue.jobs.is_empty() && start.elapsed() >= LINGER {
                queue.num_threads -= 1;
                return None;
            }
            // Nobody calls when a step takes long.
            let waited = self.changed.wait_timeout(queue, LONG);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{Sender, channel};
    use std::thread::ThreadId;

    use super::*;

    /// Sends its name at each step.
    struct Steps {
        name: usize,
        left: usize,
        sender: Sender<(usize, ThreadId)>,
    }

    impl Job for Steps {
        fn step(mut self: Box<Self>) -> Option<Box<dyn Job>> {
            self.sender.send((self.name, thread::current().id())).unwrap();
            self.left -= 1;
            (self.left > 0).then_some(self)
        }
    }

    #[test]
    fn quick_jobs_are_stepped_in_turns_by_one_thread_at_a_time_which_ends_too() {
        let (drivers, (sender, steps)) = (Drivers::default(), channel());
        for name in 0..100 {
            drivers.add(Box::new(Steps { name, left: 20, sender: sender.clone() }), false).unwrap();
            assert!(drivers.0.queue.lock().num_threads <= MOST);
        }
        drop(sender);
        let steps: Vec<_> = steps.into_iter().collect();
        let mut counts = [0; 100];
        for &(name, _) in &steps {
            counts[name] += 1;
        }
        assert_eq!(counts, [20; 100]);
        let changes = steps.windows(2).filter(|pair| pair[0].1 != pair[1].1).count();
        assert!(changes < 200, "{changes} of 2000 steps were handed to another thread");
        thread::sleep(3 * LINGER);
        assert_eq!(drivers.0.queue.lock().num_threads, 0);
    }

    /// Waits for as many others as there may be threads.
    struct Meets(Arc<Barrier>, Sender<(usize, ThreadId)>);

    impl Job for Meets {
        fn step(self: Box<Self>) -> Option<Box<dyn Job>> {
            self.0.wait();
            self.1.send((0, thread::current().id())).unwrap();
            None
        }
    }

    #[test]
    fn jobs_that_take_long_do_not_keep_the_others() {
        let (drivers, (sender, met)) = (Drivers::default(), channel());
        let all_there = Arc::new(Barrier::new(MOST));
        for _ in 0..MOST {
            drivers.add(Box::new(Meets(Arc::clone(&all_there), sender.clone())), false).unwrap();
        }
        drop(sender);
        let threads: HashSet<_> = met.into_iter().map(|(_, thread)| thread).collect();
        assert_eq!(threads.len(), MOST);
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
        assert_eq!(drivers.0.queue.lock().jobs.len(), 0);
    }
}
