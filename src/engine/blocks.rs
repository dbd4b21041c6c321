//! The cache blocks of a request: the number that it needs to begin, and the most that it can need.

use std::sync::Arc;

use super::sequence::Sequence;
use super::slot::{ModelRunner, Slots};
use rsgen_core::{Error, Result, ResultExt};
use rsgen_generation::plan::{AttentionSinks, PlannedPrompt};
use rsgen_generation::search::ModelRole;
use rsgen_generation::{DraftSource, GenerationPlan};
use rsgen_model::cache::{BLOCK_TOKENS, Reservation, SequenceCache, SharedPool, blocks_for};

/// The cache blocks of a request, of each of its models.
pub(super) struct RequestCache {
    target: ModelCache,
    draft: Option<ModelCache>,
    /// Whether the caches of its texts are kept when it ends.
    pub(super) is_kept: bool,
    /// The attention sinks, if any: the tokens that always stay in the cache.
    pub(super) sinks: Option<AttentionSinks>,
}

/// The cache blocks of a request for one model.
struct ModelCache {
    runner: Arc<ModelRunner>,
    /// The blocks that it needs to begin.
    first: usize,
    /// The reservation of these blocks, once the request is admitted.
    reservation: Option<Reservation>,
    /// Whether its sequences share blocks with other requests of the same salt.
    is_shared: bool,
    salt: Option<Arc<str>>,
}

/// The most cache blocks that a request can need, by model.
#[derive(Clone, Copy)]
pub(super) struct RequestBlocks {
    pub(super) target: usize,
    pub(super) draft: usize,
}

impl RequestBlocks {
    pub(super) fn of(target: &ModelRunner, draft: Option<&ModelRunner>, plan: &GenerationPlan) -> Self {
        let threshold = target.model().longrope_threshold();
        let (sources, source) = (source_blocks(plan), plan.draft().map(|draft| draft.source));
        let target = blocks_at_most(plan, threshold) + sources;
        match (source, draft) {
            (Some(DraftSource::Model), Some(draft)) => {
                let own = draft_blocks_at_most(plan, draft.model().longrope_threshold());
                Self { target, draft: own + sources }
            }
            (Some(DraftSource::EarlyExit { .. }), _) => {
                Self { target: target + draft_blocks_at_most(plan, threshold), draft: 0 }
            }
            _ => Self { target, draft: 0 },
        }
    }
}

impl RequestCache {
    /// For a request; reserves nothing yet. The request is admitted when there is room for its prompts and
    /// one more token of each row, and then grows. `is_shared`: its sequences may share blocks with other
    /// requests.
    ///
    /// # Errors
    /// `Capacity` when the cache can never have room for all that the request can need.
    pub(super) fn new(
        slots: &Slots,
        draft: Option<&Arc<ModelRunner>>,
        plan: &GenerationPlan,
        is_shared: bool,
    ) -> Result<Self> {
        let target = &slots.target;
        let most = RequestBlocks::of(target, draft.map(|draft| &**draft), plan);
        let first = match plan.cache().sinks {
            // It is never preempted, so it reserves all that it can need.
            Some(_) => most.target,
            None => first_blocks(plan, target.model().longrope_threshold()).min(most.target),
        };
        slots.pool().check_limit(most.target)?;
        let cache = |runner: &Arc<ModelRunner>, first| ModelCache {
            is_shared: is_shared && !runner.model().keys_depend_on_length(),
            salt: plan.cache().salt.clone(),
            ..ModelCache::new(runner, first)
        };
        let draft = draft.filter(|_| most.draft > 0).map(|draft| {
            draft.pool().check_limit(most.draft).context(|| {
                format!("the assistant, which shares the {} bytes of the KV cache", slots.kv_cache_bytes)
            })?;
            Ok(cache(draft, 0))
        });
        let (target, draft) = (cache(target, first), draft.transpose()?);
        Ok(Self { target, draft, is_kept: plan.cache().is_kept, sinks: plan.cache().sinks })
    }

    /// For one text of so many tokens, after a source of `source` tokens.
    ///
    /// # Errors
    /// `Capacity` when the cache can never have room for it.
    pub(super) fn of_text(slots: &Slots, tokens: usize, source: usize) -> Result<Self> {
        let blocks = blocks_for(tokens) + blocks_for(source);
        slots.pool().check_limit(blocks)?;
        Ok(Self { target: ModelCache::new(&slots.target, blocks), draft: None, is_kept: false, sinks: None })
    }

    /// Shares blocks with other requests of that salt.
    pub(super) fn shared(mut self, salt: Option<Arc<str>>) -> Self {
        let cache = &mut self.target;
        (cache.is_shared, cache.salt) = (!cache.runner.model().keys_depend_on_length(), salt);
        self
    }

    /// Reserves the blocks that the request needs to begin, once.
    ///
    /// # Errors
    /// `Capacity` while the cache has not enough free blocks.
    pub(super) fn admit(&mut self) -> Result<()> {
        let ModelCache { runner, first, reservation, .. } = &mut self.target;
        if reservation.is_none() {
            *reservation = Some(runner.pool().reserve(*first)?);
        }
        Ok(())
    }

    /// Drops the reservation; the request has to be admitted again.
    pub(super) fn give_back(&mut self) {
        self.target.reservation = None;
    }

    /// Whether the request holds a reservation.
    pub(super) fn is_admitted(&self) -> bool {
        self.target.reservation.is_some()
    }

    /// The blocks of a model; `None` for a draft model that the request does not have.
    pub(super) fn pool(&self, model: ModelRole) -> Option<&SharedPool> {
        self.of(model).map(|cache| cache.runner.pool())
    }

    /// The runner of a model; the target's if the request has no draft model.
    pub(super) fn runner(&self, model: ModelRole) -> &Arc<ModelRunner> {
        &self.of(model).unwrap_or(&self.target).runner
    }

    /// An empty sequence of a model.
    ///
    /// # Errors
    /// `Internal` for a draft model that the request does not have.
    pub(super) fn sequence(&self, role: ModelRole) -> Result<Sequence> {
        let of_model = self.of(role).ok_or_else(no_draft)?;
        let threshold = of_model.runner.model().longrope_threshold();
        let cache = of_model.empty().with_salt(of_model.salt.clone());
        Ok(Sequence::new(role, cache, threshold, of_model.is_shared).with_sinks(self.sinks))
    }

    /// Whether requests with the same salt share blocks of a model.
    pub(super) fn shares(&self, role: ModelRole) -> bool {
        self.of(role).is_some_and(|cache| cache.is_shared)
    }

    /// An empty cache for a source of a model.
    pub(super) fn of_source(&self, role: ModelRole) -> SequenceCache {
        self.of(role).unwrap_or(&self.target).empty()
    }

    /// The cache salt: only requests with the same salt share blocks.
    pub(super) fn salt(&self) -> Option<&Arc<str>> {
        self.target.salt.as_ref()
    }

    fn of(&self, model: ModelRole) -> Option<&ModelCache> {
        match model {
            ModelRole::Target => Some(&self.target),
            ModelRole::Draft => self.draft.as_ref(),
        }
    }
}

fn no_draft() -> Error {
    Error::internal("a search uses a draft model, but its plan names none")
}

impl ModelCache {
    /// An empty part of the cache, within the reservation if there is one.
    fn empty(&self) -> SequenceCache {
        let unreserved = || SequenceCache::new(self.runner.pool());
        self.reservation.as_ref().map_or_else(unreserved, SequenceCache::within)
    }

    /// Of a request that shares nothing.
    fn new(runner: &Arc<ModelRunner>, first: usize) -> Self {
        Self { runner: Arc::clone(runner), first, reservation: None, is_shared: false, salt: None }
    }
}

/// The blocks of the prompts of a request and of the first new token of each row.
fn first_blocks(plan: &GenerationPlan, longrope_threshold: Option<usize>) -> usize {
    let of = |tokens: usize| blocks_of(tokens, 1, plan.sequences_each(), longrope_threshold);
    let prompts = plan.prompts().iter().map(|prompt| {
        of(prompt.inputs().len()) + prompt.unconditional().map(|tokens| of(tokens.len())).sum::<usize>()
    });
    prompts.sum::<usize>() + source_blocks(plan)
}

/// The blocks of the sources of a request, in each of its models.
fn source_blocks(plan: &GenerationPlan) -> usize {
    let sources = plan.prompts().iter().filter_map(PlannedPrompt::source);
    sources.map(|source| blocks_for(source.len())).sum()
}

/// The most blocks that the rows of a request can need, with their unconditional sequences.
fn blocks_at_most(plan: &GenerationPlan, longrope_threshold: Option<usize>) -> usize {
    let rows = plan.sequences_each();
    let prompts = plan.prompts().iter().enumerate().map(|(index, prompt)| {
        let new_tokens = plan.max_new_tokens(index);
        let of_prompt = |len: usize| match plan.cache().sinks {
            // Shifted blocks are not shared.
            Some(sinks) => {
                let most = sinks.window().min(len.saturating_add(new_tokens));
                rows.saturating_mul(blocks_for(most)).saturating_add(usize::from(rows > 1))
            }
            None => blocks_of(len, new_tokens, rows, longrope_threshold),
        };
        of_prompt(prompt.inputs().len())
            + prompt.unconditional().map(|tokens| of_prompt(tokens.len())).sum::<usize>()
    });
    prompts.sum()
}

/// The most blocks that the draft sequences of a request can need.
fn draft_blocks_at_most(plan: &GenerationPlan, longrope_threshold: Option<usize>) -> usize {
    let Some(draft) = plan.draft() else { return 0 };
    let rows = draft.sequences_each;
    let prompts = (0..plan.prompts().len()).map(|index| {
        let len = plan.draft_len(index);
        // Translated prompts are not shared.
        let tokens = if draft.is_translated() { 0 } else { plan.draft_prompt_len(index).min(len) };
        blocks_of(tokens, len - tokens, rows, longrope_threshold)
    });
    prompts.sum()
}

/// The most blocks of the sequences that continue a prompt: its full blocks once, all later blocks for each
/// sequence. Sequences that are recomputed share no blocks.
fn blocks_of(tokens: usize, new_tokens: usize, rows: usize, longrope_threshold: Option<usize>) -> usize {
    let switches = longrope_threshold.is_some_and(|above| tokens <= above && above < tokens + new_tokens);
    let shared = if switches { 0 } else { tokens / BLOCK_TOKENS };
    let own = blocks_for(tokens + new_tokens) - shared;
    // While a shared last block is copied, its source still exists.
    shared + own * rows + usize::from(rows > 1)
}
