//! [`GenerationPlan`]: a request, validated together with its model and prompts.
//!
//! Parse, don't validate: a plan can only be made from values that are valid together, so searches check nothing.
//! Each invalid value gives one error that names the field, the rule, the value and the remedy; a likely mistake
//! gives a warning. Nothing is computed or allocated here beyond the prompts.

mod beams;
mod context;
mod counts;
mod draft;
mod embeddings;
mod lengths;
mod negative_prompts;
mod prompt;
mod sampling;
mod sinks;
#[cfg(test)]
mod tests;
mod tokens;
mod validation;

use std::sync::Arc;

use serde_json::{Map, Value};

use rsgen_core::error::{Error, Message, Result};
use rsgen_core::types::{LayerSet, RowOutputs, TokenId};
use rsgen_kernels::Isa;

use super::config::{EarlyStopping, GenerationConfig};
use super::constraint::Constraints;
use super::embeddings::Embeddings;
use super::grammar::RequestGrammar;
use super::healing::Healing;
use super::logits::{self, LogitsProcessorList, ProcessorSettings};
use super::mode::GenerationMode;
use super::prompt::PromptBatch;
use super::search::{self, SearchPlan};
use super::stopping::{self, StoppingCriteriaList, StoppingSettings};

pub use context::{DefaultLength, PlanContext};
pub use draft::{DraftContext, DraftPlan, DraftSource, KeptTokens};
pub use prompt::PlannedPrompt;
pub use sinks::AttentionSinks;

/// A request that is ready to run: [`search::build`] makes a search of it.
#[derive(Debug)]
pub struct GenerationPlan {
    pub(super) mode: GenerationMode,
    pub(super) search: SearchPlan,
    /// What heals the prompts first.
    pub(super) healing: Option<Box<Healing>>,
    /// How many tokens were drawn with the seed before the search begins.
    pub(super) num_draws_before: usize,
    pub(super) isa: Isa,
    pub(super) prompts: Vec<PlannedPrompt>,
    pub(super) prompt_len: usize,
    pub(super) num_return_sequences: usize,
    pub(super) num_beams: usize,
    pub(super) early_stopping: EarlyStopping,
    pub(super) length_penalty: f64,
    pub(super) num_beam_groups: usize,
    pub(super) constraints: Constraints,
    pub(super) eos_token_ids: Vec<TokenId>,
    pub(super) max_length: usize,
    pub(super) vocab_size: usize,
    pub(super) pad_token_id: Option<TokenId>,
    pub(super) seed: Option<u64>,
    pub(super) processors: LogitsProcessorList,
    /// Whether the new text follows a grammar.
    pub(super) has_grammar: bool,
    pub(super) criteria: StoppingCriteriaList,
    pub(super) output_scores: bool,
    pub(super) output_logits: bool,
    pub(super) layer_outputs: RowOutputs,
    pub(super) num_top_logprobs: usize,
    pub(super) output_events: bool,
    /// The model and the merged fields; empty unless events tell them.
    model_name: String,
    parameters: Map<String, Value>,
    prefill_chunk_size: Option<usize>,
    cache_salt: Option<Arc<str>>,
    shares_cache: bool,
    keeps_cache: bool,
    sinks: Option<AttentionSinks>,
    warnings: Vec<Message>,
}

impl GenerationPlan {
    /// Plans the generation after `prompts` with `config`, the fields of the call. Unset fields come from the model's
    /// defaults, then from the library's.
    ///
    /// # Errors
    /// For the first invalid value.
    pub fn new(config: &GenerationConfig, mut prompts: PromptBatch, context: &PlanContext) -> Result<Self> {
        if context.vocab_size == 0 {
            return Err(Error::internal("a plan needs a model with a vocabulary"));
        }
        let merged = draft::merged(config, context);
        let mut warnings = Vec::new();
        let output_events = merged.output_events == Some(true);
        let mode = match context.constraints[..] {
            [] => GenerationMode::of(&merged, context.draft.is_some()),
            _ => GenerationMode::ConstrainedBeamSearch,
        };
        beams::check(&merged, mode)?;
        draft::check(&merged, mode)?;
        let do_sample = merged.do_sample == Some(true);
        counts::check(&merged)?;
        let num_return_sequences = counts::num_return_sequences(&merged, mode, prompts.rows().len())?;

        let special = tokens::SpecialTokens::resolve(config, &merged, context, &mut warnings)?;
        special.mask(&mut prompts, &mut warnings)?;
        let sinks = AttentionSinks::resolve(&merged, mode, context)?;
        let endless = sinks.map(|_| AttentionSinks::context(context, prompts.width()));
        let context = endless.as_ref().unwrap_or(context);
        tokens::check_prompts(&prompts, context)?;
        embeddings::check(&prompts, mode, &merged, context)?;
        embeddings::warn_of_unseen_prompt(&prompts, &merged, &mut warnings);

        let mut healing = Healing::begin(config, &merged, &mut prompts, context)?;
        tokens::check_prompts(&prompts, context)?;
        let healed = context.healed.as_deref();
        let given = healing.as_deref().map(Healing::given).or(healed.map(|healed| &healed.given[..]));
        let given = given.filter(|given| !given.is_empty()).map(<[_]>::to_vec);

        let prompt_len = prompts.width();
        let lengths = lengths::Lengths::resolve(config, &merged, &prompts, context, &mut warnings)?;
        let negative_prompts = negative_prompts::resolve(&merged, prompts.rows().len(), context)?;
        let settings = ProcessorSettings {
            config: &merged,
            do_sample,
            num_beams: merged.num_beams.unwrap_or(1),
            num_beam_groups: merged.num_beam_groups.unwrap_or(1),
            prompts: prompts.rows(),
            prompt_len,
            min_length: lengths.min_length,
            max_length: lengths.max_length,
            eos_token_ids: &special.eos,
            vocab_size: context.vocab_size,
            prefix_allowed_tokens_fn: context.prefix_allowed_tokens_fn.as_ref(),
            first_prompt: context.first_prompt,
            num_return_sequences,
            negative_prompts: &negative_prompts,
            given_prompts: given.as_deref(),
        };
        let grammar = RequestGrammar::of(&merged, mode, &special.eos, context)?;
        let processors = logits::build(&settings, &context.processors)?;
        let processors = processors.with_grammar(grammar.as_ref().map(|grammar| grammar.processor(mode)));
        sampling::warn_of_unused_sampling_fields(config, &merged, mode, &mut warnings);
        beams::warn_of_unused_fields(config, &merged, mode, &mut warnings);
        draft::warn_of_unused_fields(config, mode, &mut warnings);
        negative_prompts::warn_of_unused_fields(config, &merged, &mut warnings);

        let prompts: Vec<PlannedPrompt> = prompts
            .rows()
            .iter()
            .enumerate()
            .map(|(index, row)| {
                let tokens = row.tokens();
                let unconditional = processors.unconditional(context.first_prompt + index, &tokens);
                let longest = tokens::check_unconditional(&unconditional, context)?;
                let embeddings = row.embeddings.as_ref().map(|all| all.unmasked(&row.mask)).transpose()?;
                let longest = longest.max(embeddings.as_ref().map_or(tokens.len(), Embeddings::len));
                Ok(PlannedPrompt {
                    input_ids: row.input_ids.clone(),
                    mask: row.mask.clone(),
                    padding_len: row.padding_len(),
                    tail: healed
                        .and_then(|healed| healed.tails.get(index))
                        .copied()
                        .filter(|tail| tokens.last() != Some(tail)),
                    room: context.context_len - longest,
                    tokens,
                    embeddings,
                    unconditional,
                })
            })
            .collect::<Result<_>>()?;
        let context_room: Vec<usize> = prompts.iter().map(|prompt| prompt.room).collect();
        lengths.warn_of_context(&context_room, prompt_len, context, &mut warnings);
        let criteria = stopping::build(
            &StoppingSettings {
                config: &merged,
                max_length: lengths.max_length,
                context_room,
                eos_token_ids: &special.eos,
                vocabulary: context.vocabulary.as_ref(),
            },
            &context.criteria,
        )?
        .with(grammar.as_ref().and_then(RequestGrammar::criterion));

        let drawn = counts::seed(&merged, do_sample)?;
        // The search of healed prompts has the same one.
        let seed = healing.as_ref().map_or(drawn, |healing| healing.seed().filter(|_| do_sample));
        healing.take_if(|healing| healing.is_empty());
        Ok(Self {
            mode,
            search: search::plan(mode, &merged, context)?,
            healing,
            num_draws_before: healed.map_or(0, |healed| healed.num_draws),
            isa: context.isa,
            prompts,
            prompt_len,
            num_return_sequences,
            num_beams: merged.num_beams.unwrap_or(1),
            early_stopping: merged.early_stopping.unwrap_or_default(),
            length_penalty: beams::length_penalty(&merged)?,
            num_beam_groups: merged.num_beam_groups.unwrap_or(1),
            constraints: beams::constraints(&merged, context)?,
            eos_token_ids: special.eos,
            vocab_size: context.vocab_size,
            pad_token_id: special.pad,
            seed,
            processors,
            has_grammar: grammar.is_some(),
            criteria,
            output_scores: merged.output_scores == Some(true),
            output_logits: merged.output_logits == Some(true),
            layer_outputs: layer_outputs(&merged, context)?,
            num_top_logprobs: counts::num_top_logprobs(&merged, context.vocab_size)?,
            output_events,
            model_name: if output_events { context.model_name.clone() } else { String::new() },
            parameters: if output_events { merged.to_json() } else { Map::new() },
            max_length: lengths.max_length,
            prefill_chunk_size: merged.prefill_chunk_size,
            cache_salt: context.cache_salt.clone(),
            shares_cache: context.shares_cache,
            keeps_cache: context.keeps_cache,
            sinks,
            warnings,
        })
    }

    /// Whether its search heals the prompts first, so that their last tokens may change.
    pub fn heals_prompts(&self) -> bool {
        self.healing.is_some()
    }

    /// The kind of search.
    pub fn mode(&self) -> GenerationMode {
        self.mode
    }

    /// The prompts, in order.
    pub fn prompts(&self) -> &[PlannedPrompt] {
        &self.prompts
    }

    /// The number of ids of each prompt, padding included.
    pub fn prompt_len(&self) -> usize {
        self.prompt_len
    }

    /// The number of rows of the output of each prompt.
    pub fn num_return_sequences(&self) -> usize {
        self.num_return_sequences
    }

    /// The number of rows of each prompt that are computed in a step.
    pub fn sequences_each(&self) -> usize {
        self.search.sequences_each
    }

    /// The number of rows of the output.
    pub fn num_rows(&self) -> usize {
        self.prompts.len() * self.num_return_sequences
    }

    /// The most tokens that each row of prompt `prompt_index` can get from the built-in limits.
    pub fn max_new_tokens(&self, prompt_index: usize) -> usize {
        let room = self.prompts[prompt_index].room;
        room.min(self.max_length - self.prompt_len)
    }

    /// The logits of a row.
    pub fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    /// Whether the output holds the processed scores of each step, `[vocab_size]`.
    pub fn output_scores(&self) -> bool {
        self.output_scores
    }

    /// Whether the output holds the model's logits of each step, `[vocab_size]`.
    pub fn output_logits(&self) -> bool {
        self.output_logits
    }

    /// The hidden states and attention weights of each token that the output holds.
    pub fn layer_outputs(&self) -> RowOutputs {
        self.layer_outputs
    }

    /// The most probable tokens that the output holds for each step.
    pub fn num_top_logprobs(&self) -> usize {
        self.num_top_logprobs
    }

    /// Whether events tell how each token was found.
    pub fn output_events(&self) -> bool {
        self.output_events
    }

    /// What separates the computed prompts of this request from those of others.
    pub fn cache_salt(&self) -> Option<&Arc<str>> {
        self.cache_salt.as_ref()
    }

    /// Whether its sequences share blocks even where others do not.
    pub fn shares_cache(&self) -> bool {
        self.shares_cache
    }

    /// Which tokens stay in the cache, when the texts may outgrow it.
    pub fn sinks(&self) -> Option<AttentionSinks> {
        self.sinks
    }

    /// Whether its texts are kept when it ends.
    pub fn keeps_cache(&self) -> bool {
        self.keeps_cache
    }

    /// The model's name; empty without `output_events`.
    pub fn model_name(&self) -> &str {
        &self.model_name
    }

    /// The fields of the call, merged over those of the model; empty without `output_events`.
    pub fn parameters(&self) -> &Map<String, Value> {
        &self.parameters
    }

    /// The continuations of a beam that each step considers; 0 without beams.
    pub fn candidates_each(&self) -> usize {
        if self.mode.has_beams() { 2.max(1 + self.eos_token_ids.len()) } else { 0 }
    }

    /// The number of beams of each prompt; 1 without beams.
    pub fn num_beams(&self) -> usize {
        self.num_beams
    }

    /// The seed of sampling: the caller's, or one from entropy. `None` without sampling.
    pub fn seed(&self) -> Option<u64> {
        self.seed
    }

    /// The token that pads rows to equal length.
    pub fn pad_token_id(&self) -> Option<TokenId> {
        self.pad_token_id
    }

    /// The most prompt tokens per pass, if the caller limits them.
    pub fn prefill_chunk_size(&self) -> Option<usize> {
        self.prefill_chunk_size
    }

    /// The processors, in their order of application.
    pub fn processors(&self) -> &LogitsProcessorList {
        &self.processors
    }

    /// Warnings about likely mistakes, each with its remedy.
    pub fn warnings(&self) -> &[Message] {
        &self.warnings
    }
}

/// What `output_hidden_states` and `output_attentions` want of each row.
fn layer_outputs(merged: &GenerationConfig, context: &PlanContext) -> Result<RowOutputs> {
    let mut outputs = RowOutputs { attentions: merged.output_attentions == Some(true), ..RowOutputs::NONE };
    if merged.output_hidden_states == Some(true) {
        context.check_layers("output_hidden_states")?;
        outputs.hidden_states = LayerSet::through(context.num_layers).unwrap_or_default();
    }
    Ok(outputs)
}
