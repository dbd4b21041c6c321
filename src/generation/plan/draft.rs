//! The draft model of assisted decoding: what a plan knows of it, and what a request needs of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::config::GenerationConfig;
use super::super::vocabulary::Vocabulary;
use super::GenerationPlan;

/// The draft model of a call: transformers' `assistant_model`.
#[derive(Clone)]
#[non_exhaustive]
pub struct DraftContext {
    /// The number of logits it gives for a token.
    pub vocab_size: usize,
    /// The most tokens of one of its sequences.
    pub context_len: usize,
    /// Its tokenizer, if it has one.
    pub vocabulary: Option<Arc<dyn Vocabulary>>,
    /// Its `generation_config.json`: the fields of assisted decoding that the call leaves unset come from it.
    pub model_defaults: Arc<GenerationConfig>,
    /// Its cell for the heuristic schedule.
    pub kept_tokens: KeptTokens,
}

impl DraftContext {
    /// A draft model without tokenizer and defaults.
    pub fn new(vocab_size: usize, context_len: usize) -> Self {
        Self {
            vocab_size,
            context_len,
            vocabulary: None,
            model_defaults: Arc::default(),
            kept_tokens: KeptTokens::default(),
        }
    }
}

/// The number of drafted tokens that the schedule `"heuristic"` keeps from call to call, one cell per assistant. The owner
/// of a model makes it once and passes clones of it to its calls.
#[derive(Debug, Clone, Default)]
pub struct KeptTokens(Arc<AtomicUsize>);

impl KeptTokens {
    /// The number that an earlier call kept, if one did.
    pub fn get(&self) -> Option<usize> {
        Some(self.0.load(Ordering::Relaxed)).filter(|&count| count > 0)
    }

    /// Keeps a number of 1 or more for later calls.
    pub fn set(&self, count: usize) {
        self.0.store(count, Ordering::Relaxed);
    }
}

/// The sequences that a request drafts in, besides those of its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct DraftPlan {
    /// What computes them.
    pub source: DraftSource,
    /// The most draft sequences of each prompt; they share the prompt's tokens.
    pub sequences_each: usize,
    /// The context of the model that drafts: no draft sequence has more tokens.
    pub context_len: usize,
}

/// What computes drafts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DraftSource {
    /// The draft model: sequences and rows of [`ModelRole::Draft`](super::super::search::ModelRole).
    Model,
    /// The first layers of the target model: further sequences of it, whose rows have `last_layer`.
    EarlyExit {
        /// The number of layers.
        num_layers: usize,
    },
}

impl GenerationPlan {
    /// The draft sequences of the request; `None` when it drafts with no model.
    pub fn draft(&self) -> Option<DraftPlan> {
        self.search.draft
    }

    /// The most tokens of a draft sequence of prompt `prompt_index`, 0 without any.
    pub fn draft_len(&self, prompt_index: usize) -> usize {
        let most = self.prompts[prompt_index].tokens.len() + self.max_new_tokens(prompt_index);
        self.search.draft.map_or(0, |draft| draft.context_len.min(most))
    }
}
