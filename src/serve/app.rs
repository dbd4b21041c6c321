//! What all requests of a server share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use sha2::{Digest as _, Sha256};
use tokio::sync::{Semaphore, watch};

use super::failure::{self, Failure};
use super::hosts::Rule;
use super::keys::Keys;
use super::metrics::{Metrics, Refused};
use super::options::ServeOptions;
use super::places::Places;
use crate::error::{Error, Result};
use crate::generator::Generator;
use crate::types::TokenId;

/// The tokens whose logits are part of the fingerprint.
const PROBE_TOKENS: usize = 4;

/// What a server does for its clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// It takes requests.
    Serving,
    /// It finishes the requests that run, and refuses others.
    Draining,
    /// The time of grace is over: whatever still runs ends with an error.
    Ended,
}

/// What all requests share.
pub(super) struct App {
    pub(super) generator: Generator,
    /// The model's name in the API.
    pub(super) model: String,
    pub(super) options: ServeOptions,
    pub(super) hosts: Rule,
    pub(super) keys: Keys,
    pub(super) metrics: Arc<Metrics>,
    pub(super) places: Places,
    /// As many as prompts are encoded at a time.
    pub(super) preparing: Arc<Semaphore>,
    /// When the server started, in seconds since 1970.
    pub(super) created: u64,
    /// Changes with all that the result of a seed depends on: the program, the weights, the arithmetic.
    pub(super) fingerprint: String,
    phase: watch::Sender<Phase>,
    next_id: AtomicU64,
    /// What ids of this server begin with.
    id_prefix: u64,
}

impl App {
    pub(super) fn new(generator: Generator, options: ServeOptions, hosts: Rule) -> Self {
        let model = options.served_model_name.clone().unwrap_or_else(|| model_name(generator.name()));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let metrics = Arc::<Metrics>::default();
        Self {
            hosts,
            keys: Keys::new(&options.api_keys),
            places: Places::new(&options, &metrics),
            metrics,
            preparing: Arc::new(Semaphore::new(std::thread::available_parallelism().map_or(1, usize::from))),
            fingerprint: fingerprint(&generator),
            generator,
            model,
            options,
            created: now.as_secs(),
            phase: watch::Sender::new(Phase::Serving),
            next_id: AtomicU64::new(0),
            id_prefix: now.as_nanos() as u64 ^ u64::from(std::process::id()).rotate_right(16),
        }
    }

    /// A new id, such as `cmpl-…`: no two of a server are equal, nor those of two servers.
    pub(super) fn new_id(&self, kind: &str) -> String {
        format!("{kind}-{:016x}{:08x}", self.id_prefix, self.next_id.fetch_add(1, Ordering::Relaxed))
    }

    /// An error as clients get it.
    pub(super) fn failure(&self, error: Error) -> Failure {
        self.public(Failure::from(error))
    }

    /// A failure without the path of the model's folder, which is no affair of clients; a full cache tells when to come
    /// again.
    pub(super) fn public(&self, failure: Failure) -> Failure {
        let message = failure.message.replace(self.generator.name(), &self.model);
        match failure.code {
            Some(failure::OVERLOADED) => self.places.refusal(Refused::Capacity, message),
            Some(failure::NUMERICAL) => {
                self.metrics.numeric_errors.fetch_add(1, Ordering::Relaxed);
                Failure { message, ..failure }
            }
            _ => Failure { message, ..failure },
        }
    }

    /// Refuses new requests of a server that is about to stop.
    pub(super) fn check_serving(&self) -> Result<(), Failure> {
        if self.phase() == Phase::Serving {
            return Ok(());
        }
        Err(self
            .places
            .refusal(Refused::Draining, "the server is shutting down; come again when it is back".to_owned()))
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

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("App")
            .field("model", &self.model)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// `org/name` of a folder in the Hub cache, else the name of the folder; nothing that shows where it lies.
fn model_name(path: &str) -> String {
    let parts: Vec<&str> = path.split(['/', '\\']).filter(|part| !part.is_empty()).collect();
    let hub = parts.iter().find_map(|part| part.strip_prefix("models--"));
    match hub {
        Some(id) => id.replacen("--", "/", 1),
        None if path.starts_with(['/', '\\', '.']) || parts.len() > 2 => {
            parts.last().copied().filter(|part| !part.starts_with('.')).unwrap_or("model").to_owned()
        }
        None => path.to_owned(),
    }
}

/// The digest of the version, the configuration, and the logits of a short probe, which the weights and the arithmetic
/// decide.
fn fingerprint(generator: &Generator) -> String {
    let mut digest = Sha256::new();
    digest.update(env!("CARGO_PKG_VERSION"));
    digest.update(format!("{:?} {:?}", generator.config(), generator.engine().workers().isa()));
    let vocab_size = generator.engine().model().vocab_size();
    let probe = (0..PROBE_TOKENS).map(|index| TokenId((index % vocab_size.max(1)) as u32)).collect();
    // A model whose context is shorter has the fingerprint of its configuration.
    for logit in generator.forward(&[probe]).unwrap_or_default() {
        digest.update(logit.to_le_bytes());
    }
    let number = digest.finalize()[..8].iter().fold(0u64, |number, &byte| number << 8 | u64::from(byte));
    format!("fp_{number:016x}")
}
