//! Locks and threads of shuttle, and a clock that says anything.

use std::sync::{PoisonError, TryLockError};
use std::time::Duration;

use shuttle::rand::{Rng, thread_rng};
pub(super) use shuttle::sync::MutexGuard;

#[derive(Default)]
pub(super) struct Mutex<T>(shuttle::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(super) const fn new(value: T) -> Self {
        Self(shuttle::sync::Mutex::new(value))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

#[derive(Clone, Copy)]
pub(super) struct Instant;

impl Instant {
    pub(super) fn now() -> Self {
        Self
    }

    pub(super) fn elapsed(self) -> Duration {
        Duration::from_millis([0, 1, 5000][thread_rng().gen_range(0..3)])
    }
}

pub(super) mod thread {
    use std::cell::Cell;

    use shuttle::rand::{Rng, thread_rng};
    pub(in super::super) use shuttle::thread::park_timeout;

    thread_local! {
        /// Whether some wake-ups are lost.
        pub(in super::super) static LOSES_WAKE_UPS: Cell<bool> = const { Cell::new(false) };
    }

    pub(in super::super) struct Thread(shuttle::thread::Thread);

    impl Thread {
        pub(in super::super) fn unpark(&self) {
            if !LOSES_WAKE_UPS.get() || thread_rng().gen_range(0..8) > 0 {
                self.0.unpark();
            }
        }
    }

    pub(in super::super) fn current() -> Thread {
        Thread(shuttle::thread::current())
    }
}
