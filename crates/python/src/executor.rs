//! A thread pool for the streams of event loops, with a thread for each awaited token.
//!
//! Streams that wait at the same time share their passes, so each needs a thread to wait on; the model
//! computes on one of them. Threads are started when all are busy, and end when they have nothing to do.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rsgen_core::error::{Error, Result};
use rsgen_core::sync::Mutex;

/// The most threads. Further tasks wait.
const MAX_THREADS: usize = 256;
/// How long an idle thread lives.
const IDLE_TIMEOUT: Duration = Duration::from_millis(500);

/// Work for a thread. It reports its own failures.
pub(crate) type Task = Box<dyn FnOnce() + Send>;

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
    tasks: VecDeque<Task>,
    num_threads: usize,
    num_idle: usize,
}

impl Executor {
    /// Adds a task: at the front of the queue if it is urgent.
    ///
    /// # Errors
    /// `Capacity` when there is no thread and the operating system refuses one.
    pub(crate) fn add(&self, task: Task, is_urgent: bool) -> Result<()> {
        let mut queue = self.0.queue.lock();
        if queue.num_idle <= queue.tasks.len() && queue.num_threads < MAX_THREADS {
            let spawned = self.0.spawn(&mut queue);
            if let Some(error) = spawned.err().filter(|_| queue.num_threads == 0) {
                let refused = "could not start a thread for asynchronous streams; let other threads end";
                return Err(Error::capacity(refused).with_source(error));
            }
        }
        if is_urgent {
            queue.tasks.push_front(task);
        } else {
            queue.tasks.push_back(task);
        }
        self.0.changed.notify_one();
        Ok(())
    }
}

impl Shared {
    fn spawn(self: &Arc<Self>, queue: &mut Queue) -> io::Result<()> {
        let shared = Arc::clone(self);
        thread::Builder::new().name("rsgen-stream".to_owned()).spawn(move || shared.run())?;
        queue.num_threads += 1;
        Ok(())
    }

    /// The body of a thread.
    fn run(self: Arc<Self>) {
        while let Some(task) = self.next() {
            // Keeps the counts right after a panic.
            let _ = catch_unwind(AssertUnwindSafe(task));
        }
    }

    /// Waits for the next task; `None` ends the thread.
    fn next(&self) -> Option<Task> {
        let (mut queue, start) = (self.queue.lock(), Instant::now());
        loop {
            if let Some(task) = queue.tasks.pop_front() {
                return Some(task);
            }
            let Some(left) = IDLE_TIMEOUT.checked_sub(start.elapsed()).filter(|left| !left.is_zero()) else {
                queue.num_threads -= 1;
                return None;
            };
            queue.num_idle += 1;
            let waited = self.changed.wait_timeout(queue, left);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
            queue.num_idle -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn tasks_that_wait_for_each_other_have_a_thread_each_and_the_threads_end() {
        let (executor, (sender, met)) = (Executor::default(), channel());
        let all_there = Arc::new(Barrier::new(40));
        for _ in 0..40 {
            let (all_there, sender) = (Arc::clone(&all_there), sender.clone());
            let task = move || {
                all_there.wait();
                sender.send(thread::current().id()).unwrap();
            };
            executor.add(Box::new(task), false).unwrap();
        }
        drop(sender);
        let threads: std::collections::HashSet<_> = met.into_iter().collect();
        assert_eq!(threads.len(), 40);
        let deadline = Instant::now() + Duration::from_secs(30);
        while executor.0.queue.lock().num_threads > 0 {
            assert!(Instant::now() < deadline, "idle threads go on");
            thread::sleep(Duration::from_millis(20));
        }
    }

    #[test]
    fn one_task_after_the_other_runs_on_the_same_thread() {
        let (executor, (sender, ran)) = (Executor::default(), channel());
        for _ in 0..50 {
            let sender = sender.clone();
            executor.add(Box::new(move || sender.send(()).unwrap()), false).unwrap();
            ran.recv().unwrap();
            // The task has ended; its thread is about to wait for the next one.
            while executor.0.queue.lock().num_idle == 0 {
                thread::yield_now();
            }
        }
        assert!(executor.0.queue.lock().num_threads <= 4);
    }

    #[test]
    fn a_panic_costs_no_thread() {
        let (executor, (sender, done)) = (Executor::default(), channel());
        for _ in 0..20 {
            executor.add(Box::new(|| panic!("on purpose")), false).unwrap();
            let sender = sender.clone();
            executor.add(Box::new(move || sender.send(()).unwrap()), true).unwrap();
        }
        drop(sender);
        assert_eq!(done.into_iter().count(), 20);
    }
}
