//! A FIFO mutex whose waiters can be cancelled.
//!
//! The standard mutex is neither: the thread that has just unlocked it may get it again and again, and a waiter cannot be
//! interrupted. Passes can take a second, which would be too late for Ctrl-C.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::MutexGuard;
use std::thread::Thread;
use std::time::Duration;

use super::core::Interrupt;
use crate::error::{Error, Result};
use crate::sync::Mutex;

/// How often a waiter polls its interrupt.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A value behind a FIFO queue.
pub(super) struct TicketLock<T> {
    queue: Mutex<Queue>,
    value: Mutex<T>,
}

#[derive(Default)]
struct Queue {
    tickets: u64,
    /// The first one holds the lock.
    waiting: VecDeque<(u64, Thread)>,
}

/// An entry of the queue, removed when it is dropped.
struct Ticket<'a> {
    queue: &'a Mutex<Queue>,
    number: u64,
}

/// Unlocks when it is dropped.
pub(super) struct TicketGuard<'a, T> {
    // Fields are dropped in this order: the value is unlocked before the next thread wakes up.
    value: MutexGuard<'a, T>,
    _ticket: Ticket<'a>,
}

impl<T> TicketLock<T> {
    pub(super) fn new(value: T) -> Self {
        Self { queue: Mutex::default(), value: Mutex::new(value) }
    }

    /// Waits for the lock.
    ///
    /// # Errors
    /// `Cancelled` when `interrupted` returns true before this thread is the first in the queue.
    pub(super) fn lock(&self, interrupted: &mut Interrupt<'_>) -> Result<TicketGuard<'_, T>> {
        let ticket = Ticket::draw(&self.queue);
        while !ticket.is_first() {
            std::thread::park_timeout(POLL_INTERVAL);
            // The first in the queue does not poll here: its own work does.
            if !ticket.is_first() && interrupted() {
                return Err(Error::cancelled());
            }
        }
        Ok(TicketGuard { value: self.value.lock(), _ticket: ticket })
    }
}

impl<'a> Ticket<'a> {
    /// Joins the end of the queue.
    fn draw(queue: &'a Mutex<Queue>) -> Self {
        let mut entries = queue.lock();
        entries.tickets += 1;
        let number = entries.tickets;
        entries.waiting.push_back((number, std::thread::current()));
        Self { queue, number }
    }

    fn is_first(&self) -> bool {
        self.queue.lock().waiting.front().is_some_and(|(number, _)| *number == self.number)
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut entries = self.queue.lock();
        entries.waiting.retain(|(number, _)| *number != self.number);
        if let Some((_, next)) = entries.waiting.front() {
            next.unpark();
        }
    }
}

impl<T> Deref for TicketGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for TicketGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Barrier;
    use std::thread;

    use super::*;
    use crate::error::ErrorKind;

    fn never() -> bool {
        false
    }

    fn waiting<T>(lock: &TicketLock<T>) -> usize {
        lock.queue.lock().waiting.len()
    }

    /// Waits until this many threads are in the queue.
    fn wait_for<T>(lock: &TicketLock<T>, count: usize) {
        while waiting(lock) < count {
            thread::yield_now();
        }
    }

    #[test]
    fn threads_get_the_lock_in_the_order_in_which_they_asked() {
        let lock = TicketLock::new(Vec::new());
        let first = lock.lock(&mut never).unwrap();
        thread::scope(|scope| {
            for index in 0..8 {
                let lock = &lock;
                scope.spawn(move || lock.lock(&mut never).unwrap().push(index));
                wait_for(lock, index + 2);
            }
            drop(first);
        });
        assert_eq!(*lock.lock(&mut never).unwrap(), (0..8).collect::<Vec<_>>());
        assert_eq!(waiting(&lock), 0);
    }

    #[test]
    fn a_thread_that_asks_again_at_once_does_not_overtake() {
        let lock = TicketLock::new(Vec::new());
        let all_there = Barrier::new(3);
        thread::scope(|scope| {
            for index in 0..3 {
                let (lock, all_there) = (&lock, &all_there);
                scope.spawn(move || {
                    all_there.wait();
                    for _ in 0..200 {
                        let mut guard = lock.lock(&mut never).unwrap();
                        guard.push(index);
                        // Long enough for the others to join the queue.
                        thread::sleep(Duration::from_micros(50));
                    }
                });
            }
        });
        let order = lock.lock(&mut never).unwrap();
        // While all three threads run.
        let repeats = order[10..400].windows(2).filter(|pair| pair[0] == pair[1]).count();
        assert!(repeats < 40, "{repeats} of 390 times the thread that had just unlocked got the lock");
    }

    #[test]
    fn an_interrupted_waiter_leaves_the_queue_and_the_others_go_on() {
        let lock = TicketLock::new(0);
        let first = lock.lock(&mut never).unwrap();
        thread::scope(|scope| {
            let impatient = scope.spawn(|| lock.lock(&mut || true).map(|_| ()).unwrap_err().kind());
            assert_eq!(impatient.join().unwrap(), ErrorKind::Cancelled);
            assert_eq!(waiting(&lock), 1);
            let patient = scope.spawn(|| *lock.lock(&mut never).unwrap() += 1);
            wait_for(&lock, 2);
            drop(first);
            patient.join().unwrap();
        });
        assert_eq!(*lock.lock(&mut never).unwrap(), 1);
    }

    #[test]
    fn a_panic_while_locked_unlocks() {
        let lock = TicketLock::new(0);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _guard = lock.lock(&mut never).unwrap();
            panic!("on purpose");
        }));
        assert!(panicked.is_err());
        assert_eq!(*lock.lock(&mut never).unwrap(), 0);
    }
}
