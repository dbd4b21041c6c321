//! A small thread pool that runs tasks in steps, round robin.
//!
//! A model computes one pass at a time, so a thread for each stream of an event loop would only wait. One thread steps all
//! streams in turn, which also keeps a long prompt from delaying the others. A spare thread takes over when a step takes
//! long, in a large model or in a callback. Handing each step from thread to thread would double the cost of the steps of a
//! small model.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::sync::Mutex;

/// The most threads of an executor.
const MAX_THREADS: usize = 4;
/// How long a step may take before the spare thread runs the next task.
const SLOW_STEP: Duration = Duration::from_millis(20);
/// How long an idle thread lives.
const IDLE_TIMEOUT: Duration = Duration::from_millis(500);

/// Work that is done in steps.
pub(crate) trait Task: Send {
    /// Does one step. Returns the rest of the task, which goes to the end of the queue.
    fn step(self: Box<Self>) -> Option<Box<dyn Task>>;
}

/// Threads, and the tasks that wait for them.
#[derive(Default)]
pub(crate) struct Executor(Arc<Shared>);

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    tasks: VecDeque<Box<dyn Task>>,
    num_threads: usize,
    /// The threads that run a step.
    num_active: usize,
    /// When a step last began or ended.
    last_progress: Option<Instant>,
}

impl Executor {
    /// Adds a task: at the front of the queue if it is urgent.
    ///
    /// # Errors
    /// `Capacity` when there is no thread and the operating system refuses one.
    pub(crate) fn add(&self, task: Box<dyn Task>, is_urgent: bool) -> Result<()> {
        let mut queue = self.0.queue.lock();
        let spawned = self.0.ensure_spare_thread(&mut queue);
        if let Some(error) = spawned.err().filter(|_| queue.num_threads == 0) {
            let refused = "could not start a thread for asynchronous streams; let other threads end";
            return Err(Error::capacity(refused).with_source(error));
        }
        if is_urgent {
            queue.tasks.push_front(task);
        } else {
            queue.tasks.push_back(task);
        }
        // An active thread takes the next task by itself.
        if queue.num_active == 0 {
            self.0.changed.notify_one();
        }
        Ok(())
    }
}

impl Shared {
    /// Starts a thread when all threads run a step.
    fn ensure_spare_thread(self: &Arc<Self>, queue: &mut Queue) -> io::Result<()> {
        if queue.num_active == queue.num_threads && queue.num_threads < MAX_THREADS {
            let shared = Arc::clone(self);
            thread::Builder::new().name("rsgen-stream".to_owned()).spawn(move || shared.run())?;
            queue.num_threads += 1;
        }
        Ok(())
    }

    /// The body of a thread.
    fn run(self: Arc<Self>) {
        while let Some(task) = self.next() {
            // A task reports its own failures; this keeps the counts right after a panic.
            let rest = catch_unwind(AssertUnwindSafe(|| task.step()));
            let mut queue = self.queue.lock();
            queue.num_active -= 1;
            queue.last_progress = Some(Instant::now());
            queue.tasks.extend(rest.ok().flatten());
        }
    }

    /// Waits for the next task; `None` ends the thread.
    fn next(self: &Arc<Self>) -> Option<Box<dyn Task>> {
        let (mut queue, start) = (self.queue.lock(), Instant::now());
        loop {
            let is_free = queue.num_active == 0
                || queue.last_progress.is_none_or(|last_progress| last_progress.elapsed() >= SLOW_STEP);
            if is_free && let Some(task) = queue.tasks.pop_front() {
                queue.num_active += 1;
                queue.last_progress = Some(Instant::now());
                if !queue.tasks.is_empty() {
                    // Without a spare thread the tasks wait for this one.
                    let _ = self.ensure_spare_thread(&mut queue);
                }
                return Some(task);
            }
            if queue.tasks.is_empty() && start.elapsed() >= IDLE_TIMEOUT {
                queue.num_threads -= 1;
                return None;
            }
            // A slow step wakes nobody, so look again.
            let waited = self.changed.wait_timeout(queue, SLOW_STEP);
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

    impl Task for Steps {
        fn step(mut self: Box<Self>) -> Option<Box<dyn Task>> {
            self.sender.send((self.name, thread::current().id())).unwrap();
            self.left -= 1;
            (self.left > 0).then_some(self)
        }
    }

    #[test]
    fn quick_tasks_are_stepped_in_turns_by_one_thread_at_a_time_which_ends_too() {
        let (executor, (sender, steps)) = (Executor::default(), channel());
        for name in 0..100 {
            executor.add(Box::new(Steps { name, left: 20, sender: sender.clone() }), false).unwrap();
            assert!(executor.0.queue.lock().num_threads <= MAX_THREADS);
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
        thread::sleep(3 * IDLE_TIMEOUT);
        assert_eq!(executor.0.queue.lock().num_threads, 0);
    }

    /// Waits for as many others as there may be threads.
    struct Meets(Arc<Barrier>, Sender<(usize, ThreadId)>);

    impl Task for Meets {
        fn step(self: Box<Self>) -> Option<Box<dyn Task>> {
            self.0.wait();
            self.1.send((0, thread::current().id())).unwrap();
            None
        }
    }

    #[test]
    fn tasks_that_take_long_do_not_keep_the_others() {
        let (executor, (sender, met)) = (Executor::default(), channel());
        let all_there = Arc::new(Barrier::new(MAX_THREADS));
        for _ in 0..MAX_THREADS {
            executor.add(Box::new(Meets(Arc::clone(&all_there), sender.clone())), false).unwrap();
        }
        drop(sender);
        let threads: HashSet<_> = met.into_iter().map(|(_, thread)| thread).collect();
        assert_eq!(threads.len(), MAX_THREADS);
    }

    struct Panics;

    impl Task for Panics {
        fn step(self: Box<Self>) -> Option<Box<dyn Task>> {
            panic!("on purpose")
        }
    }

    #[test]
    fn a_panic_costs_no_thread() {
        static DONE: AtomicUsize = AtomicUsize::new(0);
        struct Counts;
        impl Task for Counts {
            fn step(self: Box<Self>) -> Option<Box<dyn Task>> {
                DONE.fetch_add(1, Ordering::SeqCst);
                None
            }
        }
        let executor = Executor::default();
        for _ in 0..20 {
            executor.add(Box::new(Panics), false).unwrap();
            executor.add(Box::new(Counts), true).unwrap();
        }
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let queue = executor.0.queue.lock();
            let left = (queue.tasks.len(), queue.num_active);
            drop(queue);
            if left == (0, 0) {
                break;
            }
            assert!(Instant::now() < deadline, "{left:?} tasks wait and run");
            thread::yield_now();
        }
        assert_eq!(DONE.load(Ordering::SeqCst), 20);
    }
}
