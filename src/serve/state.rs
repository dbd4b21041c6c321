//! The state that all requests of a server share, with or without a loaded model.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::{Semaphore, watch};

use super::api::Store;
use super::defects::Defects;
use super::failure::Failure;
use super::hosts::Rule;
use super::json::MAX_VALUE_BYTES;
use super::keys::Keys;
use super::metrics::{Metrics, Refused};
use super::options::ServeOptions;
use super::places::Places;
use super::record::Observer;
use rsgen_core::error::Result;

/// The phase of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// The model is being loaded.
    Loading,
    /// It accepts requests.
    Serving,
    /// It finishes the requests that run, and refuses others.
    Draining,
    /// The grace period is over: whatever still runs ends with an error.
    Ended,
}

/// The state that all requests share.
#[derive(Debug)]
pub(super) struct ServerState {
    pub(super) options: ServeOptions,
    pub(super) hosts: Rule,
    pub(super) keys: Keys,
    pub(super) metrics: Arc<Metrics>,
    pub(super) places: Places,
    /// A permit for each byte of the memory that all bodies may take.
    pub(super) bodies: Arc<Semaphore>,
    /// The permits for encoding prompts.
    pub(super) preparing: Arc<Semaphore>,
    /// The responses that are kept.
    pub(super) responses: Store,
    pub(super) defects: Defects,
    /// Who is told of each request that has ended.
    pub(super) observer: Option<Arc<dyn Observer>>,
    /// When the server started, in seconds since 1970.
    pub(super) created: u64,
    phase: watch::Sender<Phase>,
    next_id: AtomicU64,
    /// The prefix of ids of this server.
    id_prefix: u64,
}

impl ServerState {
    /// The state of a server whose model is not loaded yet.
    pub(super) fn new(options: ServeOptions, hosts: Rule) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let metrics = Arc::<Metrics>::default();
        Self {
            hosts,
            keys: Keys::new(&options.api_keys),
            places: Places::new(&options, &metrics),
            metrics,
            // Any body has to fit, also while its buffer grows.
            bodies: Arc::new(Semaphore::new(
                (options.max_bodies_bytes.max(options.max_body_bytes.saturating_mul(2)))
                    .clamp(MAX_VALUE_BYTES, Semaphore::MAX_PERMITS),
            )),
            preparing: Arc::new(Semaphore::new(std::thread::available_parallelism().map_or(1, usize::from))),
            responses: Store::new(&options),
            options,
            defects: Defects::default(),
            observer: None,
            created: now.as_secs(),
            phase: watch::Sender::new(Phase::Loading),
            next_id: AtomicU64::new(0),
            id_prefix: now.as_nanos() as u64 ^ u64::from(std::process::id()).rotate_right(16),
        }
    }

    /// The same with an observer of its requests, if there is one.
    #[cfg(feature = "otel")]
    pub(super) fn observed_by(self, observer: Option<Arc<dyn Observer>>) -> Self {
        Self { observer, ..self }
    }

    /// Whether its clients may know the paths of this machine. Who calls the routes of a service is not known.
    pub(super) fn is_private(&self) -> bool {
        self.options.is_private() && self.hosts != Rule::Any
    }

    /// A new id, such as `cmpl-…`: no two of a server are equal, nor those of two servers.
    pub(super) fn new_id(&self, kind: &str) -> String {
        format!("{kind}-{:016x}{:08x}", self.id_prefix, self.next_id.fetch_add(1, Ordering::Relaxed))
    }

    /// Refuses requests while the model is loaded, and when the server is about to stop.
    pub(super) fn check_serving(&self) -> Result<(), Failure> {
        match self.phase() {
            Phase::Serving => Ok(()),
            Phase::Loading => Err(Failure::loading()),
            Phase::Draining | Phase::Ended => Err(self.places.refusal(
                Refused::Draining,
                "the server is shutting down; come again when it is back".to_owned(),
            )),
        }
    }

    /// Counts a defect of the program.
    pub(super) fn count_defect(&self) {
        self.metrics.internal_errors.fetch_add(1, Ordering::Relaxed);
        self.defects.add(Instant::now());
    }

    /// Counts a panic, which has been printed, and returns the failure for the client.
    pub(super) fn panicked(&self) -> Failure {
        self.count_defect();
        Failure::panicked()
    }

    pub(super) fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Goes on to a later phase.
    pub(super) fn enter(&self, phase: Phase) {
        self.phase.send_if_modified(|now| {
            let later = *now < phase;
            *now = phase.max(*now);
            later
        });
    }

    /// Returns when the server has reached this phase.
    pub(super) async fn reached(&self, phase: Phase) {
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = self.phase.subscribe().wait_for(|now| *now >= phase).await;
    }
}
