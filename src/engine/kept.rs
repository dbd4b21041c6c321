//! The cache of a text that the caller keeps, to continue the text later.
//!
//! A handle holds the tokens and keeps their blocks in the prefix index, where requests that continue the
//! text find them. When the cache is full, kept blocks are evicted as well, and the next request that
//! continues the text computes them again. So no result depends on which blocks are still cached.

use std::fmt;
use std::sync::Arc;

use super::blocks::RequestCache;
use super::core::Engine;
use super::pending::{PendingRows, SharedRows};
use super::queue::Interrupt;
use rsgen_core::{AdapterWeights, Mutex, Result, RowOutputs, SeqId, TokenId};
use rsgen_generation::search::ModelRole;
use rsgen_model::ForwardOutput;
use rsgen_model::cache::{KeptBlocks, SharedPool};

/// The sequence of a text.
const SEQUENCE: SeqId = SeqId(0);

/// The computed keys and values of a text, kept so that calls can continue it.
///
/// A handle is never used up: any number of calls may continue it, at once and on any thread, and each gets
/// exactly what it would get for the whole text. Clones share the blocks; dropping the last one releases
/// them. A handle blocks no other request: when the cache is full, its blocks are evicted, and the next call
/// that continues it computes them again.
#[derive(Clone)]
pub struct KeptCache(Arc<Kept>);

struct Kept {
    token_ids: Vec<TokenId>,
    /// The cache salt that requests need to continue the text.
    salt: Option<Arc<str>>,
    /// The adapters that it was computed with.
    adapters: AdapterWeights,
    pool: SharedPool,
    blocks: Mutex<KeptBlocks>,
}

impl KeptCache {
    /// The handle of a text. It keeps no blocks before it is [renewed](Self::renew).
    fn new(
        pool: &SharedPool,
        salt: Option<Arc<str>>,
        adapters: AdapterWeights,
        token_ids: Vec<TokenId>,
    ) -> Self {
        let blocks = Mutex::new(pool.keep(None, &[]));
        Self(Arc::new(Kept { token_ids, salt, adapters, pool: pool.clone(), blocks }))
    }

    /// The tokens of the text.
    pub fn token_ids(&self) -> &[TokenId] {
        &self.0.token_ids
    }

    /// The number of tokens of the text; at least one.
    #[expect(clippy::len_without_is_empty, reason = "no text is empty")]
    pub fn len(&self) -> usize {
        self.0.token_ids.len()
    }

    /// How many of the first tokens need not be computed at this moment. A text just generated lacks its last
    /// token, and a full cache evicts blocks. Always 0 for models whose keys depend on the length of the
    /// text: dynamic RoPE and longrope.
    pub fn num_computed(&self) -> usize {
        self.0.blocks.lock().num_tokens()
    }

    /// The adapters that it was computed with.
    pub(crate) fn adapters(&self) -> &AdapterWeights {
        &self.0.adapters
    }

    /// The salt of the requests that share its blocks.
    pub(crate) fn salt(&self) -> Option<&Arc<str>> {
        self.0.salt.as_ref()
    }

    /// Whether it belongs to that engine.
    pub(crate) fn is_of(&self, engine: &Engine) -> bool {
        self.0.pool.is_same(engine.slots().target.pool())
    }

    /// Keeps the blocks of the text that are computed by now, also those that were evicted and computed
    /// again.
    pub fn renew(&self) {
        let mut blocks = self.0.blocks.lock();
        *blocks = self.0.pool.keep(self.0.salt.clone(), &self.0.token_ids);
    }
}

/// A request that has ended, whose texts are kept.
pub(super) struct Keeper(SharedRows);

impl Keeper {
    pub(super) fn new(rows: SharedRows) -> Self {
        let mut pending = rows.lock();
        if pending.cache.is_kept {
            pending.publish_all();
        }
        drop(pending);
        Self(rows)
    }

    /// The handle of a text of the request. It keeps the text's blocks if the plan says so, or else once it
    /// is renewed.
    pub(super) fn keep(&self, text: Vec<TokenId>) -> Option<KeptCache> {
        let rows = self.0.lock();
        let pool = rows.cache.pool(ModelRole::Target)?;
        let adapters = rows.adapters.as_ref().map(|adapters| adapters.weights().clone()).unwrap_or_default();
        let kept = KeptCache::new(pool, rows.cache.salt().cloned(), adapters, text);
        if rows.cache.is_kept {
            kept.renew();
        }
        Some(kept)
    }
}

impl fmt::Debug for KeptCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptCache").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// Two are equal when they are of the same text of one engine.
impl PartialEq for KeptCache {
    fn eq(&self, other: &Self) -> bool {
        self.token_ids() == other.token_ids() && self.0.pool.is_same(&other.0.pool)
    }
}

impl Engine {
    /// Keeps what is computed of a text, which is not empty. Nothing is computed.
    pub(crate) fn keep(
        &self,
        token_ids: Vec<TokenId>,
        salt: Option<Arc<str>>,
        adapters: AdapterWeights,
    ) -> KeptCache {
        let kept = KeptCache::new(self.slots().target.pool(), salt, adapters, token_ids);
        kept.renew();
        kept
    }

    /// Computes a text of ids in the vocabulary, which is not empty, and keeps it.
    ///
    /// # Errors
    /// `Capacity` when the cache can never have room for it; `Cancelled` when interrupted; `Fork`.
    pub(crate) fn prefill(
        &self,
        token_ids: Vec<TokenId>,
        salt: Option<Arc<str>>,
        adapters: AdapterWeights,
        interrupted: &mut Interrupt<'_>,
    ) -> Result<KeptCache> {
        self.check_process()?;
        let cache = RequestCache::of_text(self.slots(), token_ids.len(), 0)?.shared(salt.clone());
        let loaded = self.adapters().get(&adapters)?;
        let rows = self.admit(PendingRows::new(cache, self.next_age(), None).with_adapters(loaded));
        rows.lock().begin(ForwardOutput::default(), |inputs| {
            inputs.create_for(ModelRole::Target, SEQUENCE, None);
            inputs.prompt(SEQUENCE, &token_ids, RowOutputs::NONE, RowOutputs::NONE);
        });
        let (caller, mut timing) = (self.caller(), self.timing());
        // Dropped before the rows: it takes them out of the queue.
        let ticket = caller.hand_in(&rows);
        timing.start();
        let computed = loop {
            match ticket.result() {
                Some(computed) => break computed,
                None => self.wait(&caller, &mut timing, interrupted)?,
            }
        };
        computed?;
        self.report(&timing);
        rows.lock().publish_all();
        Ok(self.keep(token_ids, salt, adapters))
    }

    /// A salt that no other request has, for blocks that nobody else may find; `None` when requests share
    /// blocks anyway.
    pub(crate) fn private_salt(&self) -> Option<Arc<str>> {
        (!self.prefix_caching).then(|| format!("kept {}", self.next_age()).into())
    }
}
