//! The sources of a request to a model with an encoder: each is encoded as a whole before a decoder row sees it.
//!
//! Its keys and values are blocks of the cache that all sequences of its prompt read and none writes to. A
//! preempted request encodes them again, with the same result.

use std::sync::Arc;

use super::batching::BatchBuilder;
use super::blocks::RequestCache;
use super::pending::PendingRows;
use rsgen_core::Result;
use rsgen_generation::Source;
use rsgen_generation::search::ModelRole;
use rsgen_model::cache::{BlockTable, SequenceCache};

/// The sources of a request, of each of its models.
#[derive(Default)]
pub(super) struct Sources {
    all: Vec<EncodedSource>,
    /// How many of them are in the current pass.
    in_pass: usize,
}

/// A source of a model.
struct EncodedSource {
    source: Arc<Source>,
    model: ModelRole,
    /// The prompt that it belongs to.
    prompt: usize,
    /// An entry for each token; `None` before the request is admitted.
    cache: Option<SequenceCache>,
    is_computed: bool,
}

impl Sources {
    /// Adds the sources of prompts, in their order, for a model.
    pub(super) fn extend(&mut self, model: ModelRole, sources: impl IntoIterator<Item = Arc<Source>>) {
        let new = |(prompt, source)| EncodedSource { source, model, prompt, cache: None, is_computed: false };
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

    /// The table of a prompt's source.
    pub(super) fn table(&self, model: ModelRole, prompt: usize) -> Option<&BlockTable> {
        let source = self.all.iter().find(|source| (source.model, source.prompt) == (model, prompt))?;
        source.cache.as_ref().map(SequenceCache::table)
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
        self.in_pass = 0;
        for source in self.all.iter_mut().filter(|source| source.is_missing(model)) {
            let len = source.source.len();
            if len > budget && !builder.is_empty() {
                break;
            }
            if let Err(error) = source.allocate(cache) {
                // The others wait for the next pass.
                return if self.in_pass == 0 { Err(error) } else { Ok(self.in_pass) };
            }
            let table = source.cache.as_ref().map(SequenceCache::table);
            builder.push_source(&source.source, cache.runner(model).model(), table);
            budget = budget.saturating_sub(len);
            self.in_pass += 1;
        }
        Ok(self.in_pass)
    }

    /// Those of the pass are encoded.
    fn encoded(&mut self, model: ModelRole) {
        let missing = self.all.iter_mut().filter(|source| source.is_missing(model));
        for source in missing.take(std::mem::take(&mut self.in_pass)) {
            source.is_computed = true;
        }
    }
}

impl EncodedSource {
    fn is_missing(&self, model: ModelRole) -> bool {
        self.model == model && !self.is_computed
    }

    /// Takes blocks for all tokens, once.
    fn allocate(&mut self, cache: &RequestCache) -> Result<()> {
        let own = self.cache.get_or_insert_with(|| cache.of_source(self.model));
        // Nobody else holds its blocks, so nothing is copied.
        own.append(self.source.len() - own.len()).map(|_| ())
    }
}

impl PendingRows {
    /// With the sources of its prompts, for its model and for the one that drafts.
    pub(super) fn with_sources(mut self, sources: impl IntoIterator<Item = Arc<Source>> + Clone) -> Self {
        if self.cache.pool(ModelRole::Draft).is_some() {
            self.sources.extend(ModelRole::Draft, sources.clone());
        }
        self.sources.extend(ModelRole::Target, sources);
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

    /// Its sources in the pass are encoded.
    pub(super) fn take_sources(&mut self, role: ModelRole) {
        self.sources.encoded(role);
    }
}
