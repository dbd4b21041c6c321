//! Defects of the program, such as panics: one ends its request alone, but after many the server ends, so
//! that whoever supervises it starts it anew.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use rsgen_core::sync::Mutex;

/// The number of defects within this time that ends the server.
pub(super) const TOO_MANY: usize = 10;
const WITHIN: Duration = Duration::from_secs(60);

/// The last defects of a server.
#[derive(Debug)]
pub(super) struct Defects {
    /// When they happened, the oldest first.
    times: Mutex<VecDeque<Instant>>,
    too_many: watch::Sender<bool>,
}

impl Default for Defects {
    fn default() -> Self {
        Self { times: Mutex::default(), too_many: watch::Sender::new(false) }
    }
}

impl Defects {
    /// Counts one that happened now.
    pub(super) fn add(&self, now: Instant) {
        let mut times = self.times.lock();
        times.push_back(now);
        while times.front().is_some_and(|&first| now.duration_since(first) > WITHIN) {
            times.pop_front();
        }
        if times.len() >= TOO_MANY {
            times.clear();
            self.too_many.send_replace(true);
        }
    }

    /// Whether there were ever too many.
    pub(super) fn are_too_many(&self) -> bool {
        *self.too_many.borrow()
    }

    /// Returns when there are too many.
    pub(super) async fn too_many(&self) {
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = self.too_many.subscribe().wait_for(|&too_many| too_many).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_defects_within_a_minute_are_too_many_and_ten_within_two_are_not() {
        let (seldom, often, start) = (Defects::default(), Defects::default(), Instant::now());
        for second in 0..100 {
            seldom.add(start + Duration::from_secs(12 * second));
        }
        assert!(!seldom.are_too_many());
        for second in 0..9 {
            often.add(start + Duration::from_secs(6 * second));
        }
        assert!(!often.are_too_many());
        often.add(start + Duration::from_secs(60));
        assert!(often.are_too_many());
        often.add(start + Duration::from_secs(600));
        assert!(often.are_too_many(), "the server ends all the same");
    }
}
