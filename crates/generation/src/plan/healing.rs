//! Token healing: the last token of a prompt is chosen again, among those that extend its text, before the
//! search begins.
//!
//! A text that ends within a word gets tokens that the model has hardly seen: "http:" is rarely followed by
//! "//", because that is one token. The module `healing` says what is chosen. The search of that name chooses
//! it with a search of one token, and then begins the search of the call with the prompts as they are then.

use std::sync::Arc;

use rsgen_core::{Result, ResultExt, TokenId};

use super::super::config::{Compat, GenerationConfig, OneOrMany};
use super::super::healing::{self, Healed, Tokens};
use super::super::prompt::{PromptBatch, PromptRow};
use super::{GenerationPlan, PlanContext};
use rsgen_kernels::TorchRng;

/// What remains to be done before the search of a request begins.
pub(crate) struct Healing {
    /// For each prompt whose last token is chosen again, the search that chooses it.
    pub(crate) choices: Vec<(usize, GenerationPlan)>,
    /// The prompts, with the last tokens that the tokenizer made.
    pub(crate) rows: Vec<PromptRow>,
    /// The fields of the call, with the seed.
    config: GenerationConfig,
    context: PlanContext,
    /// The prompts as they were given.
    given: Vec<Vec<TokenId>>,
    /// How many of the choices are drawn.
    num_draws: usize,
}

/// What a plan has to know of prompts that were healed before.
#[derive(Debug, Default)]
pub(crate) struct HealedPrompts {
    /// The last token of each prompt before.
    pub(super) tails: Vec<TokenId>,
    /// The prompts as they were given, which transformers goes by in the processors that look at the prompt.
    pub(super) given: Vec<Vec<TokenId>>,
    /// How many tokens were drawn to heal them.
    pub(super) num_draws: usize,
}

impl std::fmt::Debug for Healing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Healing").field("choices", &self.choices).finish_non_exhaustive()
    }
}

impl Healing {
    /// Prepares the prompts of a request with `token_healing`, which become what the tokenizer makes of them
    /// now. `None` without it, and for prompts that are healed already.
    ///
    /// # Errors
    /// When there is no tokenizer, or it fails.
    pub(super) fn begin(
        config: &GenerationConfig,
        merged: &GenerationConfig,
        prompts: &mut PromptBatch,
        context: &PlanContext,
    ) -> Result<Option<Box<Self>>> {
        if merged.token_healing != Some(true) || context.healed.is_some() {
            return Ok(None);
        }
        Self::of_prompts(config, merged, prompts, context).map(Some)
    }

    /// The healing of these prompts. Calls that heal nothing have no room for its frame: unoptimized, it takes 32 KB.
    fn of_prompts(
        config: &GenerationConfig,
        merged: &GenerationConfig,
        prompts: &mut PromptBatch,
        context: &PlanContext,
    ) -> Result<Box<Self>> {
        let vocabulary = context.vocabulary.as_deref().ok_or_else(healing::no_tokenizer)?;
        let tokens = Tokens { vocabulary, vocab_size: context.vocab_size };
        let mut config = config.clone();
        if config.seed.is_none() {
            config.seed = merged.seed.clone().or_else(|| Some(OneOrMany::One(TorchRng::entropy_seed())));
        }
        let given: Vec<Vec<TokenId>> = prompts.rows().iter().map(|row| row.input_ids.clone()).collect();
        let rows = prompts.rows().iter().map(PromptRow::tokens);
        let healed: Vec<Healed> = if context.keeps_prompts {
            rows.map(|ids| tokens.heal_as_it_is(&ids)).collect::<Result<_>>()?
        } else {
            let rows: Vec<Vec<TokenId>> = rows.map(|ids| tokens.encode(&ids)).collect::<Result<_>>()?;
            let width = rows.iter().map(Vec::len).max().unwrap_or(0);
            let heal = |ids: Vec<TokenId>| {
                let is_padded = ids.len() < width;
                tokens.heal(ids, is_padded)
            };
            rows.into_iter().map(heal).collect::<Result<_>>()?
        };
        *prompts = padded(&healed, &tokens)?;
        let mut choices = Vec::new();
        for (index, choice) in healed.into_iter().map(|healed| healed.choice).enumerate() {
            let Some(choice) = choice else { continue };
            let own =
                GenerationConfig::new().max_new_tokens(1).num_return_sequences(1).logit_bias(choice.bias);
            let mut own = own.output_events(false).output_scores(false).output_logits(false).top_logprobs(0);
            own.pad_token_id = tokens.pad();
            own.compat = merged.compat;
            own.seed.clone_from(&config.seed);
            let context = context_of_choices(context, merged.compat, choices.len());
            let batch = if context.keeps_prompts {
                PromptBatch::single(choice.before)?
            } else {
                PromptBatch::rectangular(vec![choice.before])?
            };
            let plan = GenerationPlan::new(&own, batch, &context).context(|| "token_healing")?;
            choices.push((index, plan));
        }
        let num_draws = choices.iter().filter(|(_, plan)| plan.seed().is_some()).count();
        let rows = prompts.rows().to_vec();
        Ok(Box::new(Self { choices, rows, config, context: context.clone(), given, num_draws }))
    }

    /// The prompts as they were given.
    pub(super) fn given(&self) -> &[Vec<TokenId>] {
        &self.given
    }

    /// Whether no last token is chosen again.
    pub(super) fn is_empty(&self) -> bool {
        self.choices.is_empty()
    }

    /// The seed of the request.
    pub(super) fn seed(&self) -> Option<u64> {
        self.config.seed.as_ref().and_then(|seeds| seeds.as_slice().first().copied())
    }

    /// The plan of the search, with these last tokens of the prompts.
    ///
    /// # Errors
    /// As for a plan.
    pub(crate) fn plan(self, last: &[TokenId]) -> Result<GenerationPlan> {
        let Self { rows, config, mut context, given, num_draws, .. } = self;
        let tails = rows.iter().filter_map(|row| row.input_ids.last().copied()).collect();
        context.healed = Some(Arc::new(HealedPrompts { tails, given, num_draws }));
        let (mut ids, mut masks) = (Vec::new(), Vec::new());
        for (mut row, &last) in rows.into_iter().zip(last) {
            if let Some(tail) = row.input_ids.last_mut() {
                *tail = last;
            }
            ids.push(row.input_ids);
            masks.push(row.mask);
        }
        GenerationPlan::new(&config, PromptBatch::with_mask(ids, masks)?, &context)
    }
}

/// What the choice of a last token sees of a call: the model with its own defaults. It is drawn where the
/// model's file says so.
fn context_of_choices(context: &PlanContext, compat: Option<Compat>, num_draws: usize) -> PlanContext {
    let mut own = PlanContext::new(context.vocab_size, context.max_position_embeddings);
    own.context_len = context.context_len;
    own.num_layers = context.num_layers;
    own.isa = context.isa;
    own.vocabulary.clone_from(&context.vocabulary);
    own.keeps_prompts = context.keeps_prompts;
    own.healed = Some(Arc::new(HealedPrompts { num_draws, ..HealedPrompts::default() }));
    let file = &context.model_defaults;
    let mut defaults = GenerationConfig::clone(file);
    if compat == Some(Compat::V4_49) {
        defaults = GenerationConfig::new();
        defaults.bos_token_id = file.bos_token_id;
        defaults.eos_token_id.clone_from(&file.eos_token_id);
    }
    // The bias takes their place.
    defaults.sequence_bias = None;
    defaults.max_time = None;
    own.model_defaults = Arc::new(defaults);
    own
}

/// The prompts in one rectangle, padded on the left.
fn padded(healed: &[Healed], tokens: &Tokens<'_>) -> Result<PromptBatch> {
    let width = healed.iter().map(|healed| healed.ids.len()).max().unwrap_or(0);
    let row = |healed: &Healed| {
        let missing = width - healed.ids.len();
        let pad = tokens.pad().unwrap_or_default();
        let mut ids: Vec<TokenId> =
            std::iter::repeat_n(pad, missing).chain(healed.ids.iter().copied()).collect();
        if let (true, Some(bos), Some(before)) =
            (healed.follows_bos, tokens.bos(), missing.checked_sub(1).and_then(|place| ids.get_mut(place)))
        {
            *before = bos;
        }
        let mask = (0..width).map(|place| place >= missing).collect();
        (ids, mask)
    };
    let (ids, masks) = healed.iter().map(row).unzip();
    PromptBatch::with_mask(ids, masks)
}
