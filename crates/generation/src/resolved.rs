//! [`ResolvedConfig`]: the one configuration that grammars, processors, criteria and searches are made from.

use std::sync::Arc;

use super::config::{EarlyStopping, GenerationConfig};
use super::constraint::Constraints;
use super::mode::GenerationMode;
use super::prefix_allowed_tokens::PrefixAllowedTokens;
use super::random_state::RandomState;
use super::token_trie::TokenTrie;
use super::vocabulary::Vocabulary;
use rsgen_core::{RowOutputs, TokenId};
use rsgen_kernels::Isa;

/// The fields of a request, and what they mean for its model and its prompts. Those of a
/// [`GenerationPlan`](super::plan::GenerationPlan) are valid together.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct ResolvedConfig {
    /// The fields of the call, merged over those of the model.
    pub fields: GenerationConfig,
    /// The kind of search.
    pub mode: GenerationMode,
    /// The instruction set to compute with.
    pub isa: Isa,
    /// The logits of a row.
    pub vocab_size: usize,
    /// The model's tokenizer, if it has one.
    pub(crate) vocabulary: Option<Arc<dyn Vocabulary>>,
    pub(crate) do_sample: bool,
    /// The seed of sampling: the caller's, or one from entropy. `None` without sampling.
    pub seed: Option<u64>,
    /// The random numbers that sampling goes on with, in place of a seed.
    pub(crate) random_state: Option<RandomState>,
    /// How many tokens were drawn with the seed before the search begins.
    pub(crate) num_draws_before: usize,
    /// The number of rows of the output of each prompt.
    pub num_return_sequences: usize,
    /// The number of beams of each prompt; 1 without beams.
    pub num_beams: usize,
    pub(crate) num_beam_groups: usize,
    pub(crate) early_stopping: EarlyStopping,
    pub(crate) length_penalty: f64,
    /// The words of the configuration and the caller's constraints.
    pub(crate) constraints: Constraints,
    pub(crate) eos_token_ids: Vec<TokenId>,
    /// The token that pads rows to equal length.
    pub pad_token_id: Option<TokenId>,
    /// The number of ids of each prompt, padding included.
    pub prompt_len: usize,
    /// `min_length`, or the length that follows from `min_new_tokens`.
    pub(crate) min_length: usize,
    /// `max_length`, or the length that follows from `max_new_tokens`.
    pub(crate) max_length: usize,
    /// How many prompts of the same call come before those of this request.
    pub(crate) first_prompt: usize,
    /// Whether embeddings take the place of the prompts' ids.
    pub(crate) has_embeddings: bool,
    /// The prompts as transformers gives them to the processors that look at them; empty when no field asks
    /// for one.
    pub(crate) encoder_input_ids: Vec<Vec<TokenId>>,
    /// The negative prompts without padding: none, one for all prompts, or one for each.
    pub(crate) negative_prompts: Vec<Vec<TokenId>>,
    /// The caller's function.
    pub(crate) prefix_allowed_tokens_fn: Option<Arc<dyn PrefixAllowedTokens>>,
    /// The catalogue that every output is of.
    pub(crate) allowed_sequences: Option<Arc<TokenTrie>>,
    /// Whether the output holds the processed scores of each step, `[vocab_size]`.
    pub output_scores: bool,
    /// Whether the output holds the model's logits of each step, `[vocab_size]`.
    pub output_logits: bool,
    /// The hidden states and attention weights of each token that the output holds.
    pub layer_outputs: RowOutputs,
    /// The most probable tokens that the output holds for each step.
    pub num_top_logprobs: usize,
    /// Whether events tell how each token was found.
    pub output_events: bool,
}

impl ResolvedConfig {
    /// What the fields say by themselves; the values that a model, prompts and callers add are neutral.
    pub(crate) fn of_fields(fields: GenerationConfig, vocab_size: usize) -> Self {
        Self {
            mode: GenerationMode::of(&fields, false),
            vocab_size,
            do_sample: fields.do_sample == Some(true),
            num_return_sequences: fields.num_return_sequences.unwrap_or(1),
            num_beams: fields.num_beams.unwrap_or(1),
            num_beam_groups: fields.num_beam_groups.unwrap_or(1),
            early_stopping: fields.early_stopping.unwrap_or_default(),
            length_penalty: fields.length_penalty.unwrap_or(1.0),
            max_length: usize::MAX,
            output_scores: fields.output_scores == Some(true),
            output_logits: fields.output_logits == Some(true),
            num_top_logprobs: fields.top_logprobs.unwrap_or(0),
            output_events: fields.output_events == Some(true),
            fields,
            ..Self::default()
        }
    }

    /// Whether the first new token is forced, by a `forced_bos_token_id` after a single id.
    pub(crate) fn forces_first(&self) -> bool {
        self.fields.forced_bos_token_id.is_some() && self.prompt_len == 1
    }

    /// The tokens that every warper keeps: beams need one that does not end the text.
    pub(crate) fn min_tokens_to_keep(&self) -> usize {
        if self.num_beams > 1 { self.eos_token_ids.len().max(1) + 1 } else { 1 }
    }
}
