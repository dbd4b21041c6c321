//! [`PlanContext`]: the model that a plan is made for, and what the caller adds to the configuration.

use std::sync::Arc;

use super::super::random_state::RandomState;
use super::draft::{DraftContext, KeptTokens};
use super::healing::HealedPrompts;
use super::source::EncoderContext;
use crate::config::GenerationConfig;
use crate::constraint::Constraint;
use crate::grammar::Grammars;
use crate::logits::LogitsProcessor;
use crate::prefix_allowed_tokens::PrefixAllowedTokens;
use crate::prompt::PromptBatch;
use crate::stopping::StoppingCriterion;
use crate::token_trie::TokenTrie;
use crate::vocabulary::Vocabulary;
use rsgen_core::{AdapterWeights, Error, LayerSet, Result};
use rsgen_kernels::Isa;

/// How far generation goes when no field limits it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefaultLength {
    /// This many new tokens, with a warning: transformers' rule, with 20.
    Tokens(usize),
    /// To the end of the model's context.
    Context,
}

/// transformers' rule.
impl Default for DefaultLength {
    fn default() -> Self {
        Self::Tokens(20)
    }
}

/// The model that a plan is made for, and the caller's own code.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct PlanContext {
    /// The number of logits the model gives for a token.
    pub vocab_size: usize,
    /// The model's own figure, which caps the default length.
    pub max_position_embeddings: usize,
    /// The most tokens of a sequence. More than `max_position_embeddings` only where RoPE scaling extends the
    /// context.
    pub context_len: usize,
    /// The most tokens that all layers see at their positions, for attention sinks.
    pub max_window: usize,
    /// The number of the model's layers.
    pub num_layers: usize,
    /// The numbers of an embedding; 0 if prompts are ids alone.
    pub embedding_size: usize,
    /// Whether the model's head shares the weights of its embedding.
    pub tied_embeddings: bool,
    /// The instruction set to compute with.
    pub isa: Isa,
    /// The model's tokenizer, if it has one.
    pub vocabulary: Option<Arc<dyn Vocabulary>>,
    /// The model's name, for events.
    pub model_name: String,
    /// The model's `generation_config.json`.
    pub model_defaults: Arc<GenerationConfig>,
    /// The limit when no field sets one.
    pub default_length: DefaultLength,
    /// The caller's processors.
    pub processors: Vec<Arc<dyn LogitsProcessor>>,
    /// The caller's function that returns the tokens that may follow.
    pub prefix_allowed_tokens_fn: Option<Arc<dyn PrefixAllowedTokens>>,
    /// The catalogue that every output is of.
    pub allowed_sequences: Option<Arc<TokenTrie>>,
    /// How many prompts of the same call come before those of this request.
    pub first_prompt: usize,
    /// How many requests the call makes: one for each prompt of a list.
    pub num_requests: usize,
    /// Whether healing changes only the last token: the prompts are not text alone.
    pub keeps_prompts: bool,
    /// Prompts that are healed already.
    pub(crate) healed: Option<Arc<HealedPrompts>>,
    /// Requests of different salts share no computed prompts.
    pub cache_salt: Option<Arc<str>>,
    /// The adapters that its rows are computed with. Its cache salt is of those alone.
    pub adapters: AdapterWeights,
    /// Whether its sequences share blocks even where others do not: with the texts that it continues.
    pub shares_cache: bool,
    /// Whether the texts of the request are kept when it ends.
    pub keeps_cache: bool,
    /// The random numbers that sampling goes on with, in place of a seed.
    pub random_state: Option<RandomState>,
    /// The caller's criteria.
    pub criteria: Vec<Arc<dyn StoppingCriterion>>,
    /// The caller's constraints.
    pub constraints: Vec<Arc<dyn Constraint>>,
    /// The model's encoder, if it has one: the prompts are its sources then.
    pub encoder: Option<EncoderContext>,
    /// The prompts of the decoder beside those sources, a row for each: transformers' `decoder_input_ids`.
    pub decoder_prompts: Option<PromptBatch>,
    /// How many of their last tokens are the beginning of the output's text.
    pub target_prefix_len: usize,
    /// The draft model, if the call has one.
    pub draft: Option<DraftContext>,
    /// The cell of the target model for the schedules that learn: with an early exit it is its own assistant.
    pub kept_tokens: KeptTokens,
    /// The model's cache of compiled grammars and of its vocabulary as grammars read it.
    pub grammars: Grammars,
}

impl PlanContext {
    /// A model without tokenizer and defaults, without custom code.
    pub fn new(vocab_size: usize, max_position_embeddings: usize) -> Self {
        Self {
            vocab_size,
            max_position_embeddings,
            context_len: max_position_embeddings,
            max_window: max_position_embeddings,
            num_requests: 1,
            ..Self::default()
        }
    }

    /// Whether it has functions of the caller.
    pub(crate) fn calls_back(&self) -> bool {
        let Self { processors, criteria, constraints, prefix_allowed_tokens_fn, .. } = self;
        !(processors.is_empty() && criteria.is_empty() && constraints.is_empty())
            || prefix_allowed_tokens_fn.is_some()
    }

    /// Rejects a field that selects inner layers when the model has more layers than a [`LayerSet`] holds.
    pub(crate) fn check_layers(&self, field: &str) -> Result<()> {
        if self.num_layers < LayerSet::CAPACITY {
            return Ok(());
        }
        Err(Error::config(format!(
            "looks at inner layers, which is possible in models of up to {} layers, but this one \
                 has {}; leave it out",
            LayerSet::CAPACITY - 1,
            self.num_layers
        ))
        .about(field))
    }
}
