//! The mutex of this crate: the standard library's, without the memory of panics.
//!
//! A panic of one request must not refuse the next one, so there is no poison. And the lock is a word of its own: locks
//! that share a table of waiting threads, as some libraries have it, can be caught by a fork while the table itself is
//! locked, and then hang a forked process that never touched what its parent had locked.

use std::sync::{MutexGuard, PoisonError, TryLockError};

/// A mutex that panics leave as they found it.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// A mutex around `value`.
    pub(crate) const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    /// Waits for the value.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value, if nobody has it.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
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
