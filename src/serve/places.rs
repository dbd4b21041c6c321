//! Admission control: a bounded number of requests runs, a bounded number waits, further ones are refused at
//! once.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::timeout;

use super::connections::{Busy, Connection};
use super::failure::Failure;
use super::keys::Tenant;
use super::metrics::{Cancelled, Metrics, Refused};
use super::options::ServeOptions;
use super::record::Record;
use super::tokens_per_minute::TokensPerMinute;
use crate::engine::GenerationOutput;
use rsgen_core::error::Result;
use rsgen_core::sync::Mutex;

/// The number of ended requests by which the rate of freed slots is estimated.
const REMEMBERED: usize = 32;
/// The bounds of `Retry-After`.
const SOONEST: Duration = Duration::from_secs(1);
const LATEST: Duration = Duration::from_secs(60);

/// The slots of running requests and the queue before them: first those of a lower priority number, then first come, first
/// served.
#[derive(Debug)]
pub(super) struct Places {
    shared: Arc<Shared>,
    metrics: Arc<Metrics>,
    /// What each key has, if its requests are limited.
    of_keys: Vec<Arc<OfKey>>,
    max_running: usize,
    max_of_key: usize,
    max_waiting_of_key: usize,
    max_waiting: usize,
    max_tokens: usize,
    patience: Duration,
}

/// What is counted of a key.
#[derive(Debug)]
struct OfKey {
    permits: Arc<Semaphore>,
    /// Its tokens, if they are limited.
    tokens: Option<TokensPerMinute>,
}

#[derive(Debug, Default)]
struct Shared(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    running: usize,
    /// The requests that wait, by their turn.
    waiting: BTreeMap<Turn, Waiter>,
    /// The prompt tokens in the queue.
    tokens: usize,
    /// The number of the next request that waits.
    next: u64,
    /// When the last requests ended.
    ended: VecDeque<Instant>,
}

/// A place in the queue: the priority, and the order of arrival.
type Turn = (i32, u64);

/// A request that waits.
#[derive(Debug)]
struct Waiter {
    key: Option<usize>,
    sender: oneshot::Sender<Slot>,
}

/// A slot, which goes to the next request when it is dropped.
#[derive(Debug)]
struct Slot(Arc<Shared>);

/// The slot of a running request, freed when its last clone is dropped.
#[derive(Debug, Clone)]
pub(super) struct Place(Arc<Held>);

#[derive(Debug)]
struct Held {
    arrived: Instant,
    _slot: Slot,
    claim: Claim,
    busy: Option<Busy>,
}

/// A permit of the request's key, returned when it is dropped, and what the log tells of the request.
#[derive(Debug, Default)]
pub(super) struct Claim {
    _permit: Option<OwnedSemaphorePermit>,
    of_key: Option<Arc<OfKey>>,
    key: Option<usize>,
    priority: i32,
    record: Option<Arc<Record>>,
}

/// A request in the queue; it leaves on drop.
struct Waiting<'a> {
    shared: &'a Shared,
    turn: Turn,
    tokens: usize,
}

impl Shared {
    /// Takes a slot, if one is free.
    fn take(self: &Arc<Self>, max_running: usize) -> Option<Slot> {
        let mut state = self.0.lock();
        if state.running >= max_running {
            return None;
        }
        state.running += 1;
        Some(Slot(Arc::clone(self)))
    }
}

impl Places {
    pub(super) fn new(options: &ServeOptions, metrics: &Arc<Metrics>) -> Self {
        let of_key = || OfKey {
            permits: Arc::new(Semaphore::new(
                options.max_requests_per_key.unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS),
            )),
            tokens: options.max_tokens_per_key.map(TokensPerMinute::new),
        };
        Self {
            of_keys: options.api_keys.iter().map(|_| Arc::new(of_key())).collect(),
            max_of_key: options.max_requests_per_key.unwrap_or(usize::MAX),
            max_waiting_of_key: options.max_queue_per_key.unwrap_or(usize::MAX),
            metrics: Arc::clone(metrics),
            shared: Arc::default(),
            max_running: options.max_requests,
            max_waiting: options.max_queue,
            max_tokens: options.max_queued_tokens,
            patience: options.queue_timeout,
        }
    }

    /// The number of running requests.
    pub(super) fn num_running(&self) -> usize {
        self.shared.0.lock().running
    }

    /// The number of waiting requests.
    pub(super) fn num_waiting(&self) -> usize {
        self.shared.0.lock().waiting.len()
    }

    /// Acquires a permit of the key owner. Running and waiting requests both hold one.
    ///
    /// # Errors
    /// When all permits of the key are taken, or its tokens are used up.
    pub(super) fn claim(&self, tenant: &Tenant, record: Option<Arc<Record>>) -> Result<Claim, Failure> {
        let (key, priority) = (tenant.key, tenant.priority);
        let Some(of_key) = key.and_then(|key| self.of_keys.get(key)) else {
            return Ok(Claim { key, priority, record, ..Claim::default() });
        };
        if let Some((tokens, wait)) =
            of_key.tokens.as_ref().and_then(|tokens| Some((tokens, tokens.wait(Instant::now())?)))
        {
            let message = format!(
                "this key may have {} tokens a minute, and has had as many; come again in {} seconds",
                tokens.limit(),
                wait.as_secs_f64().ceil()
            );
            return Err(self.limited(message, wait));
        }
        let Ok(permit) = Arc::clone(&of_key.permits).try_acquire_owned() else {
            let message = format!(
                "this key may have {} requests at a time, and has as many; come again when one has ended",
                self.max_of_key
            );
            let wait = retry_after(&self.shared.0.lock());
            return Err(self.limited(message, wait));
        };
        Ok(Claim { _permit: Some(permit), of_key: Some(Arc::clone(of_key)), key, priority, record })
    }

    fn limited(&self, message: String, retry_after: Duration) -> Failure {
        self.metrics.refused(Refused::KeyLimit);
        Failure::rate_limited(message, retry_after)
    }

    /// Refuses a request when neither a slot nor the queue has room.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let state = self.shared.0.lock();
        if state.running < self.max_running {
            return Ok(());
        }
        self.room(&state, 0)
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
        let slot = match self.shared.take(self.max_running) {
            Some(slot) => slot,
            None => self.wait(tokens, &claim).await?,
        };
        self.metrics.admitted(arrived.elapsed());
        if let Some(record) = &claim.record {
            record.queued(arrived.elapsed());
        }
        Ok(Place(Arc::new(Held { arrived, _slot: slot, claim, busy })))
    }

    async fn wait(&self, tokens: usize, claim: &Claim) -> Result<Slot, Failure> {
        let (sender, slot) = oneshot::channel();
        let _waiting = {
            let mut state = self.shared.0.lock();
            // One may have become free meanwhile.
            if state.running < self.max_running {
                state.running += 1;
                return Ok(Slot(Arc::clone(&self.shared)));
            }
            self.room(&state, tokens)?;
            let of_key = state.waiting.values().filter(|waiter| waiter.key == claim.key).count();
            if claim.key.is_some() && of_key >= self.max_waiting_of_key {
                let message = format!(
                    "{of_key} requests of this key wait, and no more may; come again when one has its turn"
                );
                return Err(self.limited(message, retry_after(&state)));
            }
            let turn = (claim.priority, state.next);
            state.next += 1;
            state.tokens += tokens;
            state.waiting.insert(turn, Waiter { key: claim.key, sender });
            Waiting { shared: &self.shared, turn, tokens }
        };
        match timeout(self.patience, slot).await {
            Ok(Ok(slot)) => Ok(slot),
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
        if state.waiting.len() >= self.max_waiting {
            let Self { max_running, max_waiting, .. } = self;
            return Err(self.refuse(
                state,
                Refused::QueueFull,
                format!(
                    "{max_running} requests run and {max_waiting} wait, which is all this server takes; come again later"
                ),
            ));
        }
        if !state.waiting.is_empty() && state.tokens + tokens > self.max_tokens {
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
    (each * (state.waiting.len() as u32 + 1)).clamp(SOONEST, LATEST)
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

    /// The model that it is for.
    pub(super) fn of_model(&self, name: &str) {
        self.record(|record| record.of_model(name));
    }

    /// A token of a stream has come.
    pub(super) fn token(&self) {
        self.record(Record::token);
    }

    /// It ended early.
    pub(super) fn cancelled(&self, cause: Cancelled) {
        self.record(|record| record.cancelled(cause));
    }

    /// A call has ended: its tokens count for its key.
    pub(super) fn finished(&self, output: &GenerationOutput) {
        let usage = output.usage;
        self.charge(usage.prompt_tokens + usage.generated_tokens);
        self.record(|record| record.finished(output));
    }

    /// Texts have been computed, and nothing generated.
    pub(super) fn embedded(&self, tokens: usize) {
        self.charge(tokens);
        self.record(|record| record.embedded(tokens));
    }

    /// Counts tokens for its key.
    fn charge(&self, tokens: usize) {
        let of_key = self.0.claim.of_key.as_ref();
        if let Some(limit) = of_key.and_then(|of_key| of_key.tokens.as_ref()) {
            limit.charge(tokens, Instant::now());
        }
    }

    fn record(&self, tell: impl FnOnce(&Record)) {
        if let Some(record) = &self.0.claim.record {
            tell(record);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let next = {
            let mut state = self.0.0.lock();
            state.ended.push_back(Instant::now());
            if state.ended.len() > REMEMBERED {
                state.ended.pop_front();
            }
            let next = state.waiting.pop_first();
            if next.is_none() {
                state.running -= 1;
            }
            next
        };
        if let Some((_, waiter)) = next {
            // One that has left drops it, and it goes to the one behind.
            let _ = waiter.sender.send(Self(Arc::clone(&self.0)));
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.0.lock();
        state.waiting.remove(&self.turn);
        state.tokens -= self.tokens;
    }
}

#[cfg(test)]
mod tests {
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::serve::keys::Keys;
    use crate::serve::options::Secret;

    fn places(options: &ServeOptions) -> (Places, Keys) {
        let keys = Keys::new(&options.api_keys);
        (Places::new(options, &Arc::default()), keys)
    }

    fn one_at_a_time() -> ServeOptions {
        let keys =
            vec![Secret::new("slow").priority(5), Secret::new("fast").priority(-1), Secret::new("other")];
        ServeOptions { api_keys: keys, max_requests: 1, ..ServeOptions::default() }
    }

    fn is_ready(future: &mut Pin<&mut impl Future<Output = Result<Place, Failure>>>) -> Option<Place> {
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(place) => Some(place.unwrap()),
            Poll::Pending => None,
        }
    }

    #[tokio::test]
    async fn the_lower_number_has_its_turn_first_and_then_who_came_first() {
        let (places, keys) = places(&one_at_a_time());
        let enter = |key: &str| {
            let claim = places.claim(&keys.owner(key.as_bytes()).unwrap(), None).unwrap();
            places.enter(1, None, claim)
        };
        let first = enter("slow").await.unwrap();
        let (mut slow, mut other) = (pin!(enter("slow")), pin!(enter("other")));
        let (mut fast, mut last) = (pin!(enter("fast")), pin!(enter("slow")));
        {
            let mut left = pin!(enter("fast"));
            for waiting in [&mut slow, &mut last] {
                assert!(is_ready(waiting).is_none());
            }
            assert!(is_ready(&mut other).is_none() && is_ready(&mut left).is_none());
            assert!(is_ready(&mut fast).is_none());
        }
        assert_eq!(places.num_waiting(), 4, "one has left");
        drop(first);
        assert!(is_ready(&mut slow).is_none() && is_ready(&mut other).is_none());
        let place = is_ready(&mut fast).unwrap();
        assert_eq!((places.num_running(), places.num_waiting()), (1, 3));
        drop(place);
        assert!(is_ready(&mut slow).is_none());
        drop(is_ready(&mut other).unwrap());
        drop(is_ready(&mut slow).unwrap());
        drop(is_ready(&mut last).unwrap());
        assert_eq!((places.num_running(), places.num_waiting()), (0, 0));
    }

    #[tokio::test]
    async fn a_slot_that_nobody_takes_goes_on() {
        let (places, _) = places(&one_at_a_time());
        let first = places.enter(1, None, Claim::default()).await.unwrap();
        let mut second = Box::pin(places.enter(1, None, Claim::default()));
        let mut third = pin!(places.enter(1, None, Claim::default()));
        assert!(is_ready(&mut second.as_mut()).is_none() && is_ready(&mut third).is_none());
        // The slot is handed to the second one, which leaves before it looks.
        drop(first);
        drop(second);
        drop(is_ready(&mut third).unwrap());
        assert_eq!(places.num_running(), 0);
    }

    #[tokio::test]
    async fn a_key_has_no_more_requests_in_the_queue_and_no_more_tokens_than_it_may() {
        let limits =
            ServeOptions { max_queue_per_key: Some(1), max_tokens_per_key: Some(60), ..one_at_a_time() };
        let (places, keys) = places(&limits);
        let claim = |key: &str| places.claim(&keys.owner(key.as_bytes()).unwrap(), None);
        let running = places.enter(1, None, claim("fast").unwrap()).await.unwrap();
        let mut waiting = pin!(places.enter(1, None, claim("fast").unwrap()));
        assert!(is_ready(&mut waiting).is_none());
        let refused = places.enter(1, None, claim("fast").unwrap()).await.unwrap_err();
        assert!(refused.status == 429 && refused.message.contains("1 requests of this key"), "{refused:?}");
        let mut other = pin!(places.enter(1, None, claim("other").unwrap()));
        assert!(is_ready(&mut other).is_none());
        running.charge(90);
        let refused = claim("fast").unwrap_err();
        assert!(refused.status == 429 && refused.message.contains("60 tokens a minute"), "{refused:?}");
        let wait = refused.retry_after.unwrap().as_secs_f64();
        assert!((25.0..=31.0).contains(&wait), "{wait}");
        assert!(claim("other").is_ok());
    }
}
