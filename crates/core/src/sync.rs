//! Locks, threads and time. The mutex is the standard one without poisoning: a panic of one request must not
//! fail the next one.
//!
//! Libraries such as `parking_lot` keep waiting threads in a global table. A fork while that table is locked
//! would hang the child at any lock, so the standard mutex is used.

use std::sync::{PoisonError, TryLockError};

pub use std::sync::MutexGuard;
pub use std::thread;
pub use std::time::Instant;

/// A mutex that a panic does not poison.
#[derive(Debug, Default)]
pub struct Mutex<T>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// A mutex around `value`.
    pub const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    /// Locks, waiting if needed.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks if the mutex is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_leaves_the_mutex_usable() {
        let mutex = Mutex::new(1);
        std::thread::scope(|scope| {
            let panicked = scope.spawn(|| {
                let mut value = mutex.lock();
                *value = 2;
                panic!("on purpose");
            });
            assert!(panicked.join().is_err());
        });
        assert_eq!(*mutex.lock(), 2);
        assert_eq!(mutex.try_lock().map(|value| *value), Some(2));
        let held = mutex.lock();
        assert!(mutex.try_lock().is_none());
        drop(held);
    }
}
