//! The sources of a request to a model with an encoder: each is encoded as a whole before a decoder row sees it.
//!
//! Its keys and values are blocks of the cache that all sequences of its prompt read and none writes to. Other
//! requests with the same source adopt them, whole or not at all, because each of them depends on all tokens. A
//! preempted request encodes its sources again, with the same result.

use std::sync::Arc;
use std::time::Duration;

use super::batching::BatchBuilder;
use super::blocks::RequestCache;
use super::pending::PendingRows;
use rsgen_core::{Result, RowOutputs, TokenId, memory};
use rsgen_generation::search::ModelRole;
use rsgen_generation::{Source, SourceStates};
use rsgen_model::EncodeOutput;
use rsgen_model::cache::{BLOCK_TOKENS, BlockTable, SequenceCache};

/// The sources of a request, of each of its models.
#[derive(Default)]
pub(super) struct Sources {
    all: Vec<EncodedSource>,
}

/// A source of a model.
struct EncodedSource {
    source: Arc<Source>,
    model: ModelRole,
    /// The prompt that it belongs to.
    prompt: usize,
    /// What other requests find it by; `None` if they do not share it.
    shared: Option<SharedSource>,
    /// An entry for each token, up to a full block; `None` before the request is admitted.
    cache: Option<SequenceCache>,
    is_computed: bool,
    /// What each of its rows is to give.
    outputs: RowOutputs,
    /// What they gave, if they are to give anything.
    states: Option<Arc<SourceStates>>,
    /// Whether the current pass encodes it.
    is_in_pass: bool,
}

/// The identity of a source.
struct SharedSource {
    /// All that its keys and values depend on.
    salt: Arc<str>,
    /// Up to a full block: a copy of a part of one would have to be made at once.
    tokens: Vec<TokenId>,
}

/// What fills the last block of a source.
const FILL: TokenId = TokenId(u32::MAX);

/// The number of tokens in full blocks.
fn padded(len: usize) -> usize {
    len.next_multiple_of(BLOCK_TOKENS)
}

impl Sources {
    /// Adds the sources of prompts, in their order, for a model.
    fn extend(
        &mut self,
        model: ModelRole,
        cache: &RequestCache,
        sources: impl IntoIterator<Item = Arc<Source>>,
        outputs: RowOutputs,
    ) {
        // What others have encoded gives nothing more.
        let shares = cache.shares(model) && outputs.is_none();
        let new = |(prompt, source): (usize, Arc<Source>)| EncodedSource {
            model,
            prompt,
            shared: if shares { SharedSource::new(&source, cache.salt()) } else { None },
            source,
            cache: None,
            is_computed: false,
            outputs,
            states: None,
            is_in_pass: false,
        };
        self.all.extend(sources.into_iter().enumerate().map(new));
    }

    /// Whether the decoder of a model waits for one.
    pub(super) fn are_missing(&self, model: ModelRole) -> bool {
        self.all.iter().any(|source| source.is_missing(model))
    }

    /// The rows of those that are not encoded.
    pub(super) fn rows_left(&self, model: ModelRole) -> usize {
        self.all.iter().filter(|source| source.is_missing(model)).map(|source| source.source.len()).sum()
    }

    /// The table of a prompt's source, and its length.
    pub(super) fn table(&self, model: ModelRole, prompt: usize) -> Option<(&BlockTable, usize)> {
        let source = self.all.iter().find(|source| (source.model, source.prompt) == (model, prompt))?;
        source.table()
    }

    /// Gives all blocks back.
    pub(super) fn clear(&mut self) {
        for source in &mut self.all {
            (source.cache, source.is_computed) = (None, false);
        }
    }

    /// Whether they hold blocks.
    pub(super) fn hold_blocks(&self) -> bool {
        self.all.iter().flat_map(|source| &source.cache).any(|cache| !cache.is_empty())
    }

    /// The caches of a model's sources that have one.
    pub(super) fn caches_mut(&mut self, model: ModelRole) -> impl Iterator<Item = &mut SequenceCache> {
        self.all
            .iter_mut()
            .filter(move |source| source.model == model)
            .filter_map(|source| source.cache.as_mut())
    }

    /// The `index`-th source of a model with a cache has lost its blocks: it must be encoded again.
    pub(super) fn lose(&mut self, model: ModelRole, index: usize) {
        let mut held = self.all.iter_mut().filter(|source| source.model == model && source.cache.is_some());
        if let Some(source) = held.nth(index) {
            source.is_computed = false;
        }
    }

    /// Adds those to a batch that are not encoded and whose rows are at most `budget`, in order; the first
    /// one even if it is longer, if the batch is empty. Returns their number.
    fn add(
        &mut self,
        cache: &RequestCache,
        model: ModelRole,
        mut budget: usize,
        builder: &mut BatchBuilder,
    ) -> Result<usize> {
        for source in &mut self.all {
            source.is_in_pass = false;
        }
        let mut added = 0;
        for source in self.all.iter_mut().filter(|source| source.is_missing(model)) {
            let (len, salt) = (source.source.len(), source.shared.as_ref().map(|shared| &shared.salt));
            if len > budget && !builder.is_empty() {
                break;
            }
            // It adopts it afterwards.
            if salt.is_some_and(|salt| builder.encodes(salt)) {
                continue;
            }
            if let Err(error) = source.allocate(cache) {
                // The others wait for the next pass.
                return if added == 0 { Err(error) } else { Ok(added) };
            }
            let salt = source.shared.as_ref().map(|shared| &shared.salt);
            let of_rows = (salt, source.outputs);
            builder.push_source(&source.source, cache.runner(model).model(), source.table(), of_rows);
            budget = budget.saturating_sub(len);
            source.is_in_pass = true;
            added += 1;
        }
        Ok(added)
    }

    /// Continues with sources that other requests have encoded. Returns the number of their tokens in prompts.
    fn adopt(&mut self, cache: &RequestCache, model: ModelRole) -> usize {
        let mut tokens = 0;
        for source in self.all.iter_mut().filter(|source| source.is_missing(model)) {
            let is_prompt = source.adopt(cache) && model == ModelRole::Target;
            tokens += if is_prompt { source.source.len() } else { 0 };
        }
        tokens
    }

    /// Those of the pass are encoded: they take their part of the results after what has been taken.
    /// Returns the number of their tokens.
    fn encoded(&mut self, cache: &RequestCache, out: &EncodeOutput, taken: &mut [usize; 2]) -> Result<usize> {
        let mut tokens = 0;
        for source in self.all.iter_mut().filter(|source| source.is_in_pass) {
            source.take_states(cache, out, taken)?;
            (source.is_computed, source.is_in_pass) = (true, false);
            if let (Some(shared), Some(cache)) = (&source.shared, &mut source.cache) {
                cache.publish(&shared.tokens);
            }
            tokens += source.source.len();
        }
        Ok(tokens)
    }

    /// What was asked for of those of the model, in the order of the prompts.
    pub(super) fn states(&self) -> Vec<Arc<SourceStates>> {
        self.all.iter().filter_map(|source| source.states.clone()).collect()
    }
}

impl EncodedSource {
    fn is_missing(&self, model: ModelRole) -> bool {
        self.model == model && !self.is_computed
    }

    /// Takes what its rows gave out of the results of a pass.
    fn take_states(
        &mut self,
        cache: &RequestCache,
        out: &EncodeOutput,
        [hidden, weights]: &mut [usize; 2],
    ) -> Result<()> {
        let encoder = cache.runner(self.model).model().encoder();
        let Some(encoder) = encoder.filter(|_| !self.outputs.is_none()) else { return Ok(()) };
        let shape = Arc::new(encoder.layer_shape());
        let mut states = SourceStates::of_source(&self.source, Arc::clone(&shape));
        let len = self.source.len();
        let next = |all: &[f32], taken: &mut usize, count: usize, what| {
            let start = std::mem::replace(taken, *taken + count);
            memory::copied(&all[start..*taken], what)
        };
        let count = len * self.outputs.hidden_states.len() * shape.hidden_size;
        states.hidden_states = next(&out.hidden_states, hidden, count, "hidden states")?;
        let count = if self.outputs.attentions { len * len * shape.attention_len(0) } else { 0 };
        states.attentions = next(&out.attentions, weights, count, "attention weights")?;
        self.states = Some(Arc::new(states));
        Ok(())
    }

    /// Takes blocks for all tokens, once.
    fn allocate(&mut self, cache: &RequestCache) -> Result<()> {
        let len = padded(self.source.len());
        let own = self.own(cache);
        // Nobody else holds its blocks, so nothing is copied.
        own.append(len - own.len()).map(|_| ())
    }

    /// Its part of the cache.
    fn own(&mut self, cache: &RequestCache) -> &mut SequenceCache {
        let salt = self.shared.as_ref().map(|shared| Arc::clone(&shared.salt));
        self.cache.get_or_insert_with(|| cache.of_source(self.model).with_salt(salt))
    }

    /// Takes what another request has encoded; whether there was any.
    fn adopt(&mut self, cache: &RequestCache) -> bool {
        self.own(cache);
        if let (Some(own), Some(shared)) = (&mut self.cache, &self.shared) {
            self.is_computed = own.is_empty() && own.adopt_whole(&shared.tokens);
        }
        self.is_computed
    }

    /// Its table, and how many of the entries are tokens.
    fn table(&self) -> Option<(&BlockTable, usize)> {
        Some((self.cache.as_ref()?.table(), self.source.len()))
    }
}

impl SharedSource {
    /// What a source is found by; `None` of embeddings.
    fn new(source: &Source, salt: Option<&Arc<str>>) -> Option<Self> {
        let key = source.key()?;
        let entries: Vec<String> = key.iter().map(|(slot, token)| format!("{slot}:{token}")).collect();
        let salt = format!("source {}\n{}", entries.join(" "), salt.map_or("", |salt| &**salt));
        let mut tokens: Vec<TokenId> = key.into_iter().map(|(_, token)| token).collect();
        tokens.resize(padded(tokens.len()), FILL);
        Some(Self { salt: salt.into(), tokens })
    }
}

impl PendingRows {
    /// With the sources of its prompts, for its model and for the one that drafts; those of the model give these
    /// outputs.
    pub(super) fn with_sources(
        mut self,
        sources: impl IntoIterator<Item = Arc<Source>> + Clone,
        outputs: RowOutputs,
    ) -> Self {
        if self.cache.pool(ModelRole::Draft).is_some() {
            self.sources.extend(ModelRole::Draft, &self.cache, sources.clone(), RowOutputs::NONE);
        }
        self.sources.extend(ModelRole::Target, &self.cache, sources, outputs);
        self
    }

    /// Adds sources to a batch of the model `role`; see [`PendingRows::add_rows`].
    pub(super) fn add_sources(
        &mut self,
        role: ModelRole,
        budget: usize,
        builder: &mut BatchBuilder,
    ) -> Result<usize> {
        let added = self.sources.add(&self.cache, role, budget, builder);
        self.is_blocked = added.is_err();
        added
    }

    /// Adopts the sources that it waits for, as far as others have encoded them.
    pub(super) fn adopt_sources(&mut self) {
        let role = self.role();
        let may_begin = !self.sequences.is_empty() || self.cache.is_admitted();
        if self.preemption.is_preempted() || !self.sources.are_missing(role) {
            return;
        }
        if may_begin || self.cache.admit().is_ok() {
            self.cached_prompt_tokens += self.sources.adopt(&self.cache, role);
        }
    }

    /// Its sources in the pass are encoded: they take their part of the results after what others have taken.
    ///
    /// # Errors
    /// `Capacity` when there is no memory for it.
    pub(super) fn take_sources(
        &mut self,
        out: &EncodeOutput,
        taken: &mut [usize; 2],
        (elapsed, rows): (Duration, usize),
    ) -> Result<()> {
        let own = self.sources.encoded(&self.cache, out, taken)?;
        self.encoder_time += elapsed.mul_f64(own as f64 / rows.max(1) as f64);
        Ok(())
    }
}
