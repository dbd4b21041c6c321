//! [`GenerationPlan`]: a request, validated together with its model and prompts.
//!
//! Parse, don't validate: a plan can only be made from values that are valid together, so searches check
//! nothing. Each invalid value gives one error that names the field, the rule, the value and the remedy; a
//! likely mistake gives a warning. Nothing is computed or allocated here beyond the prompts.

mod beams;
mod context;
mod counts;
mod draft;
mod embeddings;
mod healing;
mod lengths;
mod negative_prompts;
mod prompt;
mod sampling;
mod search;
mod sinks;
mod source;
#[cfg(test)]
mod tests;
mod tokens;
mod validation;

use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};

use rsgen_core::{
    AdapterWeights, Error, FinishReason, LayerSet, Message, Result, RowOutputs, TokenId, message, refuse_if,
};

use super::config::GenerationConfig;
use super::grammar::RequestGrammar;
use super::logits::{self, LogitsProcessorList};
use super::mode::GenerationMode;
use super::prompt::PromptBatch;
use super::resolved::ResolvedConfig;
use super::stopping::{self, StopContext, StoppingCriteriaList};

pub use context::{DefaultLength, PlanContext};
pub use draft::{DraftContext, DraftPlan, DraftSource, KeptTokens};
pub(super) use healing::Healing;
pub use prompt::PlannedPrompt;
use search::SearchPlan;
pub use sinks::AttentionSinks;
pub use source::EncoderContext;

/// A request that is ready to run: [`build`](super::search::build) makes a search of it.
pub struct GenerationPlan {
    pub(super) config: ResolvedConfig,
    pub(super) search: SearchPlan,
    /// What heals the prompts first.
    pub(super) healing: Option<Box<Healing>>,
    pub(super) prompts: Vec<PlannedPrompt>,
    pub(super) processors: LogitsProcessorList,
    /// Whether the new text follows a grammar.
    pub(super) has_grammar: bool,
    /// Whether its search calls functions of the caller.
    calls_back: bool,
    pub(super) criteria: StoppingCriteriaList,
    cache: CachePlan,
    /// Empty unless events tell it.
    model_name: String,
    warnings: Vec<Message>,
}

/// How a request uses the cache.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CachePlan {
    /// What separates the computed prompts of this request from those of others.
    pub salt: Option<Arc<str>>,
    /// The adapters that its rows are computed with.
    pub adapters: AdapterWeights,
    /// Whether its sequences share blocks even where others do not.
    pub is_shared: bool,
    /// Whether its texts are kept when it ends.
    pub is_kept: bool,
    /// Which tokens stay in the cache, when the texts may outgrow it.
    pub sinks: Option<AttentionSinks>,
}

impl GenerationPlan {
    /// Plans the generation after `prompts` with `call`, the fields of the call. Unset fields come from the
    /// model's defaults, then from the library's.
    ///
    /// # Errors
    /// For the first invalid value.
    pub fn new(call: &GenerationConfig, mut prompts: PromptBatch, context: &PlanContext) -> Result<Self> {
        if context.vocab_size == 0 {
            return Err(Error::internal("a plan needs a model with a vocabulary"));
        }
        let mut warnings = Vec::new();

        // The fields, and the search that they ask for.
        let fields = draft::merged(call, context);
        if fields.has_output_texts() {
            return Err(Error::internal("the texts of a call must be encoded before it is planned"));
        }
        let mode = match context.constraints[..] {
            [] => GenerationMode::of(&fields, context.draft.is_some()),
            _ => GenerationMode::ConstrainedBeamSearch,
        };
        beams::check(&fields, mode)?;
        draft::check(&fields, mode)?;
        counts::check(&fields, mode, prompts.rows().len(), context.vocab_size)?;

        // The prompts, with their padding, within the vocabulary and the context, and healed.
        let tokens = tokens::SpecialTokens::resolve(call, &fields, context, &mut warnings)?;
        let sources = source::resolve(&mut prompts, &fields, mode, &tokens, context)?;
        tokens.mask(&mut prompts, &mut warnings)?;
        let sinks = AttentionSinks::resolve(&fields, mode, context)?;
        let endless = sinks.map(|_| AttentionSinks::context(context, prompts.width()));
        let context = endless.as_ref().unwrap_or(context);
        tokens::check_prompts(&prompts, context)?;
        embeddings::check(&prompts, mode, &fields, context)?;
        embeddings::warn_of_unseen_prompt(&prompts, &fields, &mut warnings);
        let healing = Healing::begin(call, &fields, &mut prompts, context)?;
        tokens::check_prompts(&prompts, context)?;

        // What all that means, in one place.
        let (healing_now, healed) = (healing.as_deref(), context.healed.as_deref());
        let given = healing_now.map(Healing::given).or(healed.map(|healed| &healed.given[..]));
        let lengths = lengths::Lengths::resolve(call, &fields, &prompts, context, &mut warnings)?;
        let config = ResolvedConfig {
            mode,
            isa: context.isa,
            vocabulary: context.vocabulary.clone(),
            seed: counts::seed(&fields, healing_now)?,
            random_state: counts::random_state(&fields, mode, context)?,
            num_draws_before: healed.map_or(0, |healed| healed.num_draws),
            constraints: beams::constraints(&fields, context)?,
            eos_token_ids: tokens.eos,
            pad_token_id: tokens.pad,
            prompt_len: prompts.width(),
            min_length: lengths.min_length,
            max_length: lengths.max_length,
            first_prompt: context.first_prompt,
            has_embeddings: prompts.embeddings_len().is_some()
                || sources.iter().any(|source| source.has_embeddings()),
            encoder_input_ids: prompt::encoder_input_ids(&fields, &prompts, &sources, given),
            negative_prompts: negative_prompts::resolve(&fields, prompts.rows().len(), context)?,
            prefix_allowed_tokens_fn: context.prefix_allowed_tokens_fn.clone(),
            allowed_sequences: context.allowed_sequences.clone(),
            layer_outputs: layer_outputs(&fields, context)?,
            ..ResolvedConfig::of_fields(fields, context.vocab_size)
        };

        // What is made from it.
        check_allowed_sequences(&config)?;
        let grammar = RequestGrammar::of(&config, &context.grammars)?;
        let processors = logits::build(&config, &context.processors)?.with_grammar(
            grammar.as_ref().map(|grammar| grammar.processor(mode, config.allowed_sequences.is_some())),
        );
        warn_of_unused_fields(call, &config, &mut warnings);
        source::warn_of_unused_fields(call, context, &mut warnings);
        warn_of_replaced(call, context, &processors, &mut warnings);
        let prompts = PlannedPrompt::all(&prompts, sources, &processors, context)?;
        let room: Vec<usize> = prompts.iter().map(|prompt| prompt.room).collect();
        lengths.warn_of_context(&room, config.prompt_len, context, &mut warnings);
        let criteria = stopping::build(&config, room, &context.criteria)?
            .with(grammar.as_ref().and_then(RequestGrammar::criterion));
        Ok(Self {
            search: SearchPlan::new(&config, context)?,
            healing: healing.filter(|healing| !healing.is_empty()),
            prompts,
            processors,
            has_grammar: grammar.is_some(),
            calls_back: context.calls_back(),
            criteria,
            cache: CachePlan {
                salt: context.cache_salt.clone(),
                adapters: context.adapters.clone(),
                is_shared: context.shares_cache,
                is_kept: context.keeps_cache,
                sinks,
            },
            model_name: if config.output_events { context.model_name.clone() } else { String::new() },
            warnings,
            config,
        })
    }

    /// What its fields mean for its model and prompts.
    pub fn config(&self) -> &ResolvedConfig {
        &self.config
    }

    /// Whether its search calls functions of the caller: processors, criteria, constraints or
    /// `prefix_allowed_tokens_fn`.
    pub fn calls_back(&self) -> bool {
        self.calls_back
    }

    /// How it uses the cache.
    pub fn cache(&self) -> &CachePlan {
        &self.cache
    }

    /// Whether its search heals the prompts first, so that their last tokens may change.
    pub fn heals_prompts(&self) -> bool {
        self.healing.is_some()
    }

    /// The kind of search.
    pub fn mode(&self) -> GenerationMode {
        self.config.mode
    }

    /// The prompts, in order.
    pub fn prompts(&self) -> &[PlannedPrompt] {
        &self.prompts
    }

    /// What a sequence of a prompt sees, by the number of the prompt; `None` without an encoder.
    pub(super) fn source_of(&self, prompt_index: usize) -> Option<usize> {
        self.prompts[prompt_index].source().map(|_| prompt_index)
    }

    /// The number of rows of the output of each prompt.
    pub fn num_return_sequences(&self) -> usize {
        self.config.num_return_sequences
    }

    /// The number of rows of each prompt that are computed in a step.
    pub fn sequences_each(&self) -> usize {
        self.search.sequences_each
    }

    /// The number of rows of the output.
    pub fn num_rows(&self) -> usize {
        self.prompts.len() * self.config.num_return_sequences
    }

    /// The most tokens that each row of prompt `prompt_index` can get from the built-in limits.
    pub fn max_new_tokens(&self, prompt_index: usize) -> usize {
        let room = self.prompts[prompt_index].room;
        room.min(self.config.max_length - self.config.prompt_len)
    }

    /// Whether events tell how each token was found.
    pub fn output_events(&self) -> bool {
        self.config.output_events
    }

    /// The model's name; empty without `output_events`.
    pub fn model_name(&self) -> &str {
        &self.model_name
    }

    /// The fields of the call, merged over those of the model.
    pub fn parameters(&self) -> Map<String, Value> {
        self.config.fields.to_json()
    }

    /// The continuations of a beam that each step considers; 0 without beams.
    pub fn candidates_each(&self) -> usize {
        if self.config.mode.has_beams() { 2.max(1 + self.config.eos_token_ids.len()) } else { 0 }
    }

    /// The seed of sampling: the caller's, or one from entropy. `None` without sampling.
    pub fn seed(&self) -> Option<u64> {
        self.config.seed
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

impl GenerationPlan {
    /// Why a row with these ids, prompt included, ends with its newest token, if it does. `scores` are those
    /// that the token was chosen from.
    pub(super) fn should_stop(
        &self,
        input_ids: &[TokenId],
        (prompt_index, row_index): (usize, usize),
        scores: &[f32],
    ) -> Result<Option<FinishReason>> {
        let (prompt_len, isa) = (self.config.prompt_len, self.config.isa);
        self.criteria.should_stop(&StopContext {
            input_ids,
            prompt_len,
            prompt_index,
            row_index,
            scores,
            isa,
            has_ended: false,
        })
    }

    /// Why each of the rows ends that have a new token. Criteria that judge whole steps also see the rows that have
    /// ended, padded, as in transformers: `ended` are their prompts, indexes and ids. `order` sorts the rows.
    pub(super) fn should_stop_rows<'a>(
        &self,
        rows: &[StopContext<'_>],
        ended: impl Iterator<Item = (usize, usize, &'a [TokenId])>,
        order: fn(&StopContext<'_>) -> usize,
    ) -> Result<Vec<Option<FinishReason>>> {
        let Some(first) = rows.first().filter(|_| self.criteria.judges_steps()) else {
            return self.criteria.should_stop_rows(rows);
        };
        let pad = self.config.pad_token_id.unwrap_or(TokenId(0));
        let padded = |(prompt_index, row_index, ids): (usize, usize, &[TokenId])| {
            let mut ids = ids.to_vec();
            ids.resize(first.input_ids.len(), pad);
            (prompt_index, row_index, ids)
        };
        let padded: Vec<_> = ended.map(padded).collect();
        let no_scores = vec![0.0; if padded.is_empty() { 0 } else { first.scores.len() }];
        let mut all = rows.to_vec();
        all.extend(padded.iter().map(|(prompt_index, row_index, ids)| StopContext {
            input_ids: ids,
            prompt_len: first.prompt_len,
            prompt_index: *prompt_index,
            row_index: *row_index,
            scores: &no_scores,
            isa: first.isa,
            has_ended: true,
        }));
        all.sort_by_key(order);
        let reasons = self.criteria.should_stop_rows(&all)?;
        Ok(all.iter().zip(reasons).filter(|(row, _)| !row.has_ended).map(|(_, reason)| reason).collect())
    }
}

impl fmt::Debug for GenerationPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { config, prompts, processors, criteria, .. } = self;
        f.debug_struct("GenerationPlan")
            .field("mode", &config.mode)
            .field("prompts", prompts)
            .field("processors", processors)
            .field("criteria", criteria)
            .finish_non_exhaustive()
    }
}

/// Warns of fields of the call that have no effect.
fn warn_of_unused_fields(call: &GenerationConfig, config: &ResolvedConfig, warnings: &mut Vec<Message>) {
    let (fields, mode) = (&config.fields, config.mode);
    sampling::warn_of_unused_sampling_fields(call, fields, mode, warnings);
    beams::warn_of_unused_fields(call, fields, mode, warnings);
    draft::warn_of_unused_fields(call, mode, warnings);
    negative_prompts::warn_of_unused_fields(call, fields, warnings);
}

/// Refuses a catalogue that the model cannot write, or whose entries nothing could end.
fn check_allowed_sequences(config: &ResolvedConfig) -> Result<()> {
    let Some(trie) = &config.allowed_sequences else { return Ok(()) };
    trie.check_vocabulary(config.vocab_size)?;
    refuse_if(
        config.eos_token_ids.is_empty(),
        "eos_token_id",
        || message!("must name a token when " {allowed_sequences} " is given, which ends the entries, but names none"),
    )
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

/// Warns of the caller's processors and criteria that take the place of those that fields ask for.
fn warn_of_replaced(
    call: &GenerationConfig,
    context: &PlanContext,
    processors: &LogitsProcessorList,
    warnings: &mut Vec<Message>,
) {
    for (name, field) in processors.replacing(&context.processors) {
        warnings.push(message!(
            "a {name} in " {logits_processor} " takes the place of the one that " {(field)} " asks for; leave out one"
        ));
    }
    for name in context.criteria.iter().map(|criterion| criterion.name()) {
        let fields: &[&'static str] = match name {
            "MaxLengthCriteria" => &["max_length", "max_new_tokens"],
            "MaxTimeCriteria" => &["max_time"],
            "StopStringCriteria" => &["stop_strings"],
            "EosTokenCriteria" => &["eos_token_id"],
            _ => &[],
        };
        for &field in fields.iter().filter(|field| call.get(field).is_some()) {
            warnings.push(message!(
                "a {name} in " {stopping_criteria} " takes the place of the one that " {(field)} " asks for; leave out one"
            ));
        }
    }
}
