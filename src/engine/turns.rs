//! Turns at something that one thread at a time may use: first come, first served, and whoever waits can give up.
//!
//! A mutex knows neither: the thread that has just unlocked it may win it again and again, and waiting for it cannot be
//! interrupted, which with passes of a second would be too late for Ctrl-C.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::MutexGuard;
use std::thread::Thread;
use std::time::Duration;

use super::core::Interrupt;
use crate::error::{Error, Result};
use crate::sync::Mutex;

/// How often somebody who waits asks whether to go on waiting.
const ASK: Duration = Duration::from_millis(10);

/// A value with a line of threads in front of it.
pub(super) struct Turns<T> {
    line: Mutex<Line>,
    value: Mutex<T>,
}

#[derive(Default)]
struct Line {
    tickets: u64,
    /// The first one has the turn.
    waiting: VecDeque<(u64, Thread)>,
}

/// A place in the line, left when it is dropped.
struct Place<'a> {
    line: &'a Mutex<Line>,
    ticket: u64,
}

/// The value, for as long as the turn lasts.
pub(super) struct Turn<'a, T> {
    // Unlocked before the next one is called: fields are dropped in this order.
    value: MutexGuard<'a, T>,
    _place: Place<'a>,
}

impl<T> Turns<T> {
    pub(super) fn new(value: T) -> Self {
        Self { line: Mutex::default(), value: Mutex::new(value) }
    }

    /// Waits for a turn.
    ///
    /// # Errors
    /// `Cancelled` when `interrupted` says so before it has come.
    pub(super) fn take(&self, interrupted: &mut Interrupt<'_>) -> Result<Turn<'_, T>> {
        let place = Place::at_the_end(&self.line);
        while !place.is_first() {
            std::thread::park_timeout(ASK);
            // Whose turn has come leaves the question to the work itself.
            if !place.is_first() && interrupted() {
                return Err(Error::cancelled());
            }
        }
        Ok(Turn { value: self.value.lock(), _place: place })
    }
}

impl<'a> Place<'a> {
    fn at_the_end(line: &'a Mutex<Line>) -> Self {
        let mut places = line.lock();
        places.tickets += 1;
        let ticket = places.tickets;
        places.waiting.push_back((ticket, std::thread::current()));
        Self { line, ticket }
    }

    fn is_first(&self) -> bool {
        self.line.lock().waiting.front().is_some_and(|(ticket, _)| *ticket == self.ticket)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut places = self.line.lock();
        places.waiting.retain(|(ticket, _)| *ticket != self.ticket);
        if let Some((_, next)) = places.waiting.front() {
            next.unpark();
        }
    }
}

impl<T> Deref for Turn<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Turn<'_, T> {
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

    fn waiting<T>(turns: &Turns<T>) -> usize {
        turns.line.lock().waiting.len()
    }

    /// Returns when this many are in the line.
    fn wait_for<T>(turns: &Turns<T>, count: usize) {
        while waiting(turns) < count {
            thread::yield_now();
        }
    }

    #[test]
    fn turns_are_taken_in_the_order_of_coming() {
        let turns = Turns::new(Vec::new());
        let first = turns.take(&mut never).unwrap();
        thread::scope(|scope| {
            for index in 0..8 {
                let turns = &turns;
                scope.spawn(move || turns.take(&mut never).unwrap().push(index));
                wait_for(turns, index + 2);
            }
            drop(first);
        });
        assert_eq!(*turns.take(&mut never).unwrap(), (0..8).collect::<Vec<_>>());
        assert_eq!(waiting(&turns), 0);
    }

    #[test]
    fn who_comes_back_at_once_does_not_overtake() {
        let turns = Turns::new(Vec::new());
        let all_there = Barrier::new(3);
        thread::scope(|scope| {
            for index in 0..3 {
                let (turns, all_there) = (&turns, &all_there);
                scope.spawn(move || {
                    all_there.wait();
                    for _ in 0..200 {
                        let mut turn = turns.take(&mut never).unwrap();
                        turn.push(index);
                        // As long as a pass at the least, so that the others are in the line.
                        thread::sleep(Duration::from_micros(50));
                    }
                });
            }
        });
        let taken = turns.take(&mut never).unwrap();
        // While all three are at work.
        let repeats = taken[10..400].windows(2).filter(|pair| pair[0] == pair[1]).count();
        assert!(repeats < 40, "{repeats} of 390 turns went to the thread that had just had one");
    }

    #[test]
    fn who_is_interrupted_leaves_the_line_and_the_others_go_on() {
        let turns = Turns::new(0);
        let first = turns.take(&mut never).unwrap();
        thread::scope(|scope| {
            let impatient = scope.spawn(|| turns.take(&mut || true).map(|_| ()).unwrap_err().kind());
            assert_eq!(impatient.join().unwrap(), ErrorKind::Cancelled);
            assert_eq!(waiting(&turns), 1);
            let patient = scope.spawn(|| *turns.take(&mut never).unwrap() += 1);
            wait_for(&turns, 2);
            drop(first);
            patient.join().unwrap();
        });
        assert_eq!(*turns.take(&mut never).unwrap(), 1);
    }

    #[test]
    fn a_panic_during_a_turn_ends_it() {
        let turns = Turns::new(0);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _turn = turns.take(&mut never).unwrap();
            panic!("on purpose");
        }));
        assert!(panicked.is_err());
        assert_eq!(*turns.take(&mut never).unwrap(), 0);
    }
}
