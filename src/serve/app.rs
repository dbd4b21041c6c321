//! A served model, and what its requests share.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sha2::{Digest as _, Sha256};

use super::api::Forms;
use super::failure::{self, Failure};
use super::metrics::{ModelMetrics, Refused};
use super::models::Lease;
use super::state::ServerState;
use crate::generator::Generator;
use rsgen_core::error::Error;
use rsgen_core::types::TokenId;

/// The tokens whose logits are part of the fingerprint.
const PROBE_TOKENS: usize = 4;

/// A loaded model. While a request has one that is leased, it stays.
pub(super) struct App {
    pub(super) state: Arc<ServerState>,
    pub(super) generator: Generator,
    /// The model's name in the API.
    pub(super) model: String,
    /// What the chat templates take.
    pub(super) forms: Arc<Forms>,
    /// OpenAI's `system_fingerprint`: changes with the program, the weights and the arithmetic, on which the
    /// result of a seed depends.
    pub(super) fingerprint: String,
    /// The names of all models of the server.
    pub(super) served: Arc<[String]>,
    pub(super) metrics: Arc<ModelMetrics>,
    /// Dropped last: then the memory of the model may be taken.
    pub(super) lease: Option<Lease>,
}

impl App {
    /// A model of this name, of those that the server has.
    pub(super) fn new(
        state: Arc<ServerState>,
        generator: Generator,
        model: String,
        served: Arc<[String]>,
    ) -> Self {
        let (forms, fingerprint) = (Arc::default(), fingerprint(&generator));
        Self { state, generator, model, forms, fingerprint, served, metrics: Arc::default(), lease: None }
    }

    /// The same with the counters of its model.
    pub(super) fn with_metrics(self, metrics: &Arc<ModelMetrics>) -> Self {
        Self { metrics: Arc::clone(metrics), ..self }
    }

    /// The same model in use.
    pub(super) fn leased(&self, lease: Lease) -> Self {
        Self {
            state: Arc::clone(&self.state),
            generator: self.generator.clone(),
            model: self.model.clone(),
            forms: Arc::clone(&self.forms),
            fingerprint: self.fingerprint.clone(),
            served: Arc::clone(&self.served),
            metrics: Arc::clone(&self.metrics),
            lease: Some(lease),
        }
    }

    /// The ids of the models: its own, alone and with each of its adapters, and those of the others.
    pub(super) fn ids(&self) -> impl Iterator<Item = String> {
        let adapters =
            self.generator.adapters().into_iter().map(|(name, _)| format!("{}:{name}", self.model));
        let others = self.served.iter().filter(|name| **name != self.model).cloned();
        std::iter::once(self.model.clone()).chain(adapters).chain(others)
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
                self.metrics.numeric_errors.fetch_add(1, Ordering::Relaxed);
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
pub(crate) fn model_name(path: &str) -> String {
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
