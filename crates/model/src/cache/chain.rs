//! How far the tokens of a sequence are published: its way down the tree of the index.

use std::sync::Arc;

use super::layout::BLOCK_TOKENS;
use super::prefix::{Before, PrefixIndex, PublishedBlock};
use rsgen_core::types::TokenId;

/// The salt of a sequence, and how many of its first blocks are known to be published.
#[derive(Debug, Clone, Default)]
pub(super) struct Chain {
    salt: Option<Arc<str>>,
    /// The number of full blocks.
    pub(super) len: usize,
    /// The publication of the tokens of the last of them. The block may be one of another sequence.
    end: Option<PublishedBlock>,
    /// The tokens that were looked up so far.
    queried: usize,
}

impl Chain {
    pub(super) fn new(salt: Option<Arc<str>>) -> Self {
        Self { salt, ..Self::default() }
    }

    /// What precedes the next block.
    pub(super) fn before(&self) -> Before {
        self.end.map_or_else(|| Before::Salt(self.salt.clone()), Before::Block)
    }

    /// Those of `tokens`, the tokens of the whole sequence, that are in the next block.
    pub(super) fn next_tokens<'a>(&self, tokens: &'a [TokenId]) -> &'a [TokenId] {
        let rest = tokens.get(self.len * BLOCK_TOKENS..).unwrap_or_default();
        &rest[..rest.len().min(BLOCK_TOKENS)]
    }

    /// The next block, if it is full and published.
    pub(super) fn next(&self, index: &PrefixIndex, tokens: &[TokenId]) -> Option<PublishedBlock> {
        let tokens = self.next_tokens(tokens);
        if tokens.len() < BLOCK_TOKENS { None } else { index.find(&self.before(), tokens) }
    }

    /// Adds the next block.
    pub(super) fn extend(&mut self, next: PublishedBlock) {
        self.len += 1;
        self.end = Some(next);
    }

    /// Follows the published blocks of `tokens`, those of the whole sequence. Starts again when its end has
    /// been forgotten.
    pub(super) fn follow(&mut self, index: &PrefixIndex, tokens: &[TokenId]) {
        if self.end.is_some_and(|end| index.published(end.block) != Some(end)) {
            (self.len, self.end) = (0, None);
        }
        while let Some(next) = self.next(index, tokens) {
            self.extend(next);
        }
    }

    /// The sequence has only `tokens` tokens left.
    pub(super) fn truncate(&mut self, tokens: usize) {
        if tokens / BLOCK_TOKENS < self.len {
            (self.len, self.end) = (0, None);
        }
        self.queried = self.queried.min(tokens);
    }

    /// Counts the tokens from `from` to `to` as looked up, each once.
    pub(super) fn count_query(&mut self, index: &mut PrefixIndex, from: usize, to: usize) {
        index.queries += to.saturating_sub(from.max(self.queried)) as u64;
        self.queried = self.queried.max(to);
    }
}
