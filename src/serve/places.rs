//! Admission control: a bounded number of requests runs, a bounded number waits, further ones are refused at
//! once.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::connections::{Busy, Connection};
use super::failure::Failure;
use super::keys::Tenant;
use super::metrics::{Cancelled, Metrics, Refused};
use super::options::ServeOptions;
use rsgen_core::error::Result;
use rsgen_core::sync::Mutex;

/// The number of ended requests by which the rate of freed slots is estimated.
const REMEMBERED: usize = 32;
/// The bounds of `Retry-After`.
const SOONEST: Duration = Duration::from_secs(1);
const LATEST: Duration = Duration::from_secs(60);

/// The slots of running requests and the FIFO queue before them.
#[derive(Debug)]
pub(super) struct Places {
    shared: Arc<Shared>,
    metrics: Arc<Metrics>,
    running: Arc<Semaphore>,
    /// The permits of each key, if requests per key are limited.
    of_keys: Vec<Arc<Semaphore>>,
    max_running: usize,
    max_of_key: usize,
    max_waiting: usize,
    max_tokens: usize,
    patience: Duration,
}

#[derive(Debug, Default)]
struct Shared(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    waiting: usize,
    /// The prompt tokens in the queue.
    tokens: usize,
    /// When the last requests ended.
    ended: VecDeque<Instant>,
}

/// The slot of a running request, freed when its last clone is dropped.
#[derive(Debug, Clone)]
pub(super) struct Place(Arc<Held>);

#[derive(Debug)]
struct Held {
    arrived: Instant,
    shared: Arc<Shared>,
    _permit: OwnedSemaphorePermit,
    _claim: Claim,
    busy: Option<Busy>,
}

/// A permit of the request's key, returned when it is dropped.
#[derive(Debug, Default)]
pub(super) struct Claim {
    _permit: Option<OwnedSemaphorePermit>,
}

/// A request in the queue; it leaves on drop.
struct Waiting<'a>(&'a Shared, usize);

impl Places {
    pub(super) fn new(options: &ServeOptions, metrics: &Arc<Metrics>) -> Self {
        let places = |most: usize| Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)));
        let of_keys = options.max_requests_per_key.into_iter();
        Self {
            of_keys: of_keys.flat_map(|most| options.api_keys.iter().map(move |_| places(most))).collect(),
            max_of_key: options.max_requests_per_key.unwrap_or(usize::MAX),
            metrics: Arc::clone(metrics),
            shared: Arc::default(),
            running: places(options.max_requests),
            max_running: options.max_requests,
            max_waiting: options.max_queue,
            max_tokens: options.max_queued_tokens,
            patience: options.queue_timeout,
        }
    }

    /// The number of running requests.
    pub(super) fn num_running(&self) -> usize {
        self.max_running - self.running.available_permits().min(self.max_running)
    }

    /// The number of waiting requests.
    pub(super) fn num_waiting(&self) -> usize {
        self.shared.0.lock().waiting
    }

    /// Acquires a permit of the key owner. Running and waiting requests both hold one.
    ///
    /// # Errors
    /// When all permits of the key are taken.
    pub(super) fn claim(&self, tenant: &Tenant) -> Result<Claim, Failure> {
        let Some(of_key) = tenant.key.and_then(|key| self.of_keys.get(key)) else {
            return Ok(Claim::default());
        };
        let refused = |_| {
            self.metrics.refused(Refused::KeyLimit);
            let retry_after = retry_after(&self.shared.0.lock());
            Failure::rate_limited(
                format!(
                    "this key may have {} requests at a time, and has as many; come again when one has ended",
                    self.max_of_key
                ),
                retry_after,
            )
        };
        Arc::clone(of_key).try_acquire_owned().map(|permit| Claim { _permit: Some(permit) }).map_err(refused)
    }

    /// Refuses a request when neither a slot nor the queue has room.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if self.running.available_permits() > 0 {
            return Ok(());
        }
        self.room(&self.shared.0.lock(), 0)
    }

    /// Waits for a slot. `tokens` is an estimate of the prompt tokens.
    pub(super) async fn enter(
        &self,
        tokens: usize,
        connection: Option<Connection>,
        claim: Claim,
    ) -> Result<Place, Failure> {
        let arrived = Instant::now();
        let busy = connection.map(Connection::into_busy);
        let permit = match Arc::clone(&self.running).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => self.wait(tokens).await?,
        };
        self.metrics.admitted(arrived.elapsed());
        let shared = Arc::clone(&self.shared);
        let held = Held { arrived, shared, _permit: permit, _claim: claim, busy };
        Ok(Place(Arc::new(held)))
    }

    async fn wait(&self, tokens: usize) -> Result<OwnedSemaphorePermit, Failure> {
        let _waiting = {
            let mut state = self.shared.0.lock();
            self.room(&state, tokens)?;
            state.waiting += 1;
            state.tokens += tokens;
            Waiting(&self.shared, tokens)
        };
        match timeout(self.patience, Arc::clone(&self.running).acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(self.refusal(
                Refused::QueueTimeout,
                format!(
                    "the request waited {} seconds for one of {} places; come again later",
                    self.patience.as_secs_f32(),
                    self.max_running
                ),
            )),
        }
    }

    /// Refuses when the queue is full. An empty queue takes a prompt of any length.
    fn room(&self, state: &State, tokens: usize) -> Result<(), Failure> {
        if state.waiting >= self.max_waiting {
            let Self { max_running, max_waiting, .. } = self;
            return Err(self.refuse(
                state,
                Refused::QueueFull,
                format!(
                    "{max_running} requests run and {max_waiting} wait, which is all this server takes; come again later"
                ),
            ));
        }
        if state.waiting > 0 && state.tokens + tokens > self.max_tokens {
            return Err(self.refuse(
                state,
                Refused::QueueTokens,
                format!(
                    "the requests that wait have about {} prompt tokens, of at most {}; come again later",
                    state.tokens, self.max_tokens
                ),
            ));
        }
        Ok(())
    }

    fn refuse(&self, state: &State, why: Refused, message: String) -> Failure {
        self.metrics.refused(why);
        Failure::overloaded(message, retry_after(state))
    }

    /// A refusal with `Retry-After`.
    pub(super) fn refusal(&self, why: Refused, message: String) -> Failure {
        self.refuse(&self.shared.0.lock(), why, message)
    }
}

/// The estimated time until the queue is served, by the rate at which the last requests ended.
fn retry_after(state: &State) -> Duration {
    let (Some(first), Some(last)) = (state.ended.front(), state.ended.back()) else { return SOONEST };
    // An end long ago means that requests take long now.
    let span = last.elapsed().max(last.duration_since(*first));
    let each = span.div_f64(state.ended.len() as f64);
    (each * (state.waiting as u32 + 1)).clamp(SOONEST, LATEST)
}

impl Place {
    /// Why a request whose connection has ended is cancelled.
    pub(super) fn cause(&self) -> Cancelled {
        let is_stalled = self.0.busy.as_ref().is_some_and(Busy::is_stalled);
        if is_stalled { Cancelled::SlowReader } else { Cancelled::Client }
    }

    /// When the request arrived, with its body.
    pub(super) fn arrived(&self) -> Instant {
        self.0.arrived
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut state = self.shared.0.lock();
        state.ended.push_back(Instant::now());
        if state.ended.len() > REMEMBERED {
            state.ended.pop_front();
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.0.0.lock();
        state.waiting -= 1;
        state.tokens -= self.1;
    }
}
