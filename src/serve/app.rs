//! The served model, and the state that its requests share.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;

use super::api::{Forms, Store};
use super::failure::{self, Failure};
use super::metrics::Refused;
use super::state::{Phase, ServerState};
use crate::generator::Generator;
use rsgen_core::error::Error;
use rsgen_core::types::TokenId;

/// The tokens whose logits are part of the fingerprint.
const PROBE_TOKENS: usize = 4;

/// The served model.
pub(super) struct App {
    pub(super) state: Arc<ServerState>,
    pub(super) generator: Generator,
    /// The model's name in the API.
    pub(super) model: String,
    /// What the chat templates take.
    pub(super) forms: Arc<Forms>,
    /// The responses that are kept.
    pub(super) responses: Store,
    /// The permits for encoding prompts.
    pub(super) preparing: Arc<Semaphore>,
    /// OpenAI's `system_fingerprint`: changes with the program, the weights and the arithmetic, on which the
    /// result of a seed depends.
    pub(super) fingerprint: String,
}

impl App {
    /// Begins to serve: requests are accepted from now on.
    pub(super) fn new(state: Arc<ServerState>, generator: Generator) -> Self {
        let model = state.options.served_model_name.clone();
        let app = Self {
            model: model.unwrap_or_else(|| model_name(generator.name())),
            preparing: Arc::new(Semaphore::new(std::thread::available_parallelism().map_or(1, usize::from))),
            forms: Arc::default(),
            responses: Store::new(&state.options),
            fingerprint: fingerprint(&generator),
            generator,
            state,
        };
        app.state.enter(Phase::Serving);
        app
    }

    /// An error as clients get it.
    pub(super) fn failure(&self, error: Error) -> Failure {
        self.public(Failure::from(error))
    }

    /// Hides the path of the model's folder from clients, and adds `Retry-After` to the failure of a full
    /// cache.
    pub(super) fn public(&self, failure: Failure) -> Failure {
        let message = failure.message.replace(self.generator.name(), &self.model);
        match failure.code {
            Some(failure::OVERLOADED) => self.state.places.refusal(Refused::Capacity, message),
            Some(failure::NUMERICAL) => {
                self.state.metrics.numeric_errors.fetch_add(1, Ordering::Relaxed);
                Failure { message, ..failure }
            }
            Some(failure::INTERNAL) => {
                self.state.count_defect();
                Failure { message, ..failure }
            }
            _ => Failure { message, ..failure },
        }
    }
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("App")
            .field("model", &self.model)
            .field("options", &self.state.options)
            .finish_non_exhaustive()
    }
}

/// `org/name` of a folder in the Hub cache, else the name of the folder; never its path.
pub(super) fn model_name(path: &str) -> String {
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

/// The digest of the version, the configuration, and the logits of a short probe, which the weights and the
/// arithmetic decide.
fn fingerprint(generator: &Generator) -> String {
    let mut digest = Sha256::new();
    digest.update(env!("CARGO_PKG_VERSION"));
    digest.update(format!("{:?} {:?}", generator.config(), generator.engine().workers().isa()));
    let vocab_size = generator.engine().model().vocab_size();
    let probe = (0..PROBE_TOKENS).map(|index| TokenId((index % vocab_size.max(1)) as u32)).collect();
    // A model whose state is shorter has the fingerprint of its configuration.
    for logit in generator.forward(&[probe]).unwrap_or_default() {
        digest.update(logit.to_le_bytes());
    }
    let number = digest.finalize()[..8].iter().fold(0u64, |number, &byte| number << 8 | u64::from(byte));
    format!("fp_{number:016x}")
}
