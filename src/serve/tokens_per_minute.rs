//! A limit of tokens a minute: what is used comes back evenly over a minute.

use std::time::{Duration, Instant};

use rsgen_core::sync::Mutex;

const MINUTE: f64 = 60.0;

/// The tokens of a key. How many a request takes is known at its end, so a request may overdraw them, and the next one waits
/// until they are there again.
#[derive(Debug)]
pub(super) struct TokensPerMinute {
    limit: usize,
    state: Mutex<Account>,
}

#[derive(Debug)]
struct Account {
    /// The tokens that are left; below 0 if they are overdrawn.
    left: f64,
    since: Instant,
}

impl TokensPerMinute {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, state: Mutex::new(Account { left: limit as f64, since: Instant::now() }) }
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// How long a request has to wait; `None` if there are tokens left.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        let mut account = self.state.lock();
        self.refill(&mut account, now);
        let lacking = 1.0 - account.left;
        (lacking > 0.0).then(|| Duration::from_secs_f64(lacking * MINUTE / self.limit as f64))
    }

    /// Takes tokens.
    pub(super) fn charge(&self, tokens: usize, now: Instant) {
        let mut account = self.state.lock();
        self.refill(&mut account, now);
        account.left -= tokens as f64;
    }

    fn refill(&self, account: &mut Account, now: Instant) {
        let seconds = now.saturating_duration_since(account.since).as_secs_f64();
        let limit = self.limit as f64;
        account.left = (account.left + seconds * limit / MINUTE).min(limit);
        account.since = account.since.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_back_evenly_and_can_be_overdrawn() {
        let tokens = TokensPerMinute::new(120);
        let begin = Instant::now();
        let after = |seconds| begin + Duration::from_secs(seconds);
        assert_eq!(tokens.wait(begin), None);
        tokens.charge(119, begin);
        assert_eq!(tokens.wait(begin), None, "one is left");
        tokens.charge(181, begin);
        let seconds = tokens.wait(begin).unwrap().as_secs_f64();
        assert!((90.4..=90.6).contains(&seconds), "{seconds}");
        assert!(tokens.wait(after(90)).is_some());
        assert_eq!(tokens.wait(after(91)), None);
        // Not more than the limit is kept.
        tokens.charge(121, after(10_000));
        assert!(tokens.wait(after(10_000)).is_some());
        // A clock of another thread may be behind.
        assert!(tokens.wait(begin).is_some());
    }
}
