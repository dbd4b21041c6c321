//! [`TokenTrie`]: a catalogue of token sequences, of which the output of a call is to be one.
//!
//! It cannot be changed, so that threads and calls share it. Its nodes are numbered level by level and, within a
//! level, in the order of their sequences. So the children of a node follow each other, sorted by token, and the
//! tokens that may follow are a slice. A node takes 12 bytes and an entry 4, whatever the number of children.

mod builder;
mod file;
mod payloads;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use rsgen_core::{Error, Result, TokenId};

pub use builder::TokenTrieBuilder;
use payloads::Payloads;

/// The entry of a node where none ends.
const NO_ENTRY: u32 = u32::MAX;
/// The node before the first token.
const ROOT: usize = 0;

/// A catalogue of token sequences, for `allowed_sequences`: every output is one of them.
///
/// Entries are numbered in the order in which they were given. Each may carry a payload, which is a JSON value.
#[derive(Clone, PartialEq)]
pub struct TokenTrie {
    /// The token that leads to each node; 0 for the root.
    tokens: Vec<TokenId>,
    /// The first child of each node, and the number of nodes: the children of a node end where those of the
    /// next one begin.
    first_child: Vec<u32>,
    /// The entry that ends at each node.
    entries: Vec<u32>,
    /// The node where each entry ends.
    nodes: Vec<u32>,
    longest: usize,
    largest_token: TokenId,
    payloads: Option<Payloads>,
}

/// The entry that a row of a result is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TrieEntry {
    /// Its place among the entries, in the order in which they were given.
    pub index: usize,
    /// What was given with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Value>,
}

impl TokenTrie {
    /// A catalogue of these entries, without payloads.
    ///
    /// # Errors
    /// As for [`TokenTrieBuilder::add`] and [`TokenTrieBuilder::build`].
    pub fn new<E: AsRef<[TokenId]>>(entries: impl IntoIterator<Item = E>) -> Result<Self> {
        let mut builder = TokenTrieBuilder::default();
        for entry in entries {
            builder.add(entry.as_ref(), None)?;
        }
        builder.build(&mut || false)
    }

    /// The number of entries.
    #[expect(clippy::len_without_is_empty, reason = "there is always an entry")]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The number of tokens of the longest entry.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// The bytes of memory that it takes.
    pub fn memory_bytes(&self) -> usize {
        let payloads = self.payloads.as_ref().map_or(0, Payloads::memory_bytes);
        4 * (self.tokens.len() + self.first_child.len() + self.entries.len() + self.nodes.len()) + payloads
    }

    /// The index of the entry with these tokens.
    pub fn find(&self, token_ids: &[TokenId]) -> Option<usize> {
        self.entry_of(self.node_after(token_ids)?)
    }

    /// The tokens of an entry.
    pub fn token_ids(&self, index: usize) -> Option<Vec<TokenId>> {
        let mut node = *self.nodes.get(index)? as usize;
        let mut ids = Vec::new();
        while node != ROOT {
            ids.push(self.tokens[node]);
            // The parent is the last node whose children begin here or before.
            node = self.first_child.partition_point(|&first| first as usize <= node) - 1;
        }
        ids.reverse();
        Some(ids)
    }

    /// The tokens of all entries, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Vec<TokenId>> {
        (0..self.len()).map(|index| self.token_ids(index).unwrap_or_default())
    }

    /// Whether entries have payloads.
    pub fn has_payloads(&self) -> bool {
        self.payloads.is_some()
    }

    /// The payload of an entry.
    pub fn payload(&self, index: usize) -> Option<Value> {
        self.payloads.as_ref()?.get(index)
    }

    /// The entry of a row with these new tokens, the last of which has ended it. It may be the entry's own.
    pub fn entry(&self, ended: &[TokenId]) -> Option<TrieEntry> {
        let (_, before) = ended.split_last()?;
        let index = self.find(ended).or_else(|| self.find(before))?;
        Some(TrieEntry { index, payload: self.payload(index) })
    }

    /// The node after these tokens, if an entry begins with them.
    pub(crate) fn node_after(&self, token_ids: &[TokenId]) -> Option<usize> {
        let mut node = ROOT;
        for token in token_ids {
            let place = self.children(node).binary_search(token).ok()?;
            node = self.first_child[node] as usize + place;
        }
        Some(node)
    }

    /// The tokens that may follow at a node, in ascending order.
    pub(crate) fn children(&self, node: usize) -> &[TokenId] {
        &self.tokens[self.first_child[node] as usize..self.first_child[node + 1] as usize]
    }

    /// The entry that ends at a node.
    pub(crate) fn entry_of(&self, node: usize) -> Option<usize> {
        Some(self.entries[node]).filter(|&entry| entry != NO_ENTRY).map(|entry| entry as usize)
    }

    /// Refuses entries with tokens that a model does not have.
    pub(crate) fn check_vocabulary(&self, vocab_size: usize) -> Result<()> {
        if self.largest_token.index() < vocab_size {
            return Ok(());
        }
        Err(Error::config(format!(
            "must hold ids of the model's vocabulary, 0 to {}, but one of them is {}; make it with the model's tokenizer",
            vocab_size - 1,
            self.largest_token
        ))
        .about("allowed_sequences"))
    }

    /// Derives what the arrays of nodes imply, which have to be right.
    fn of_nodes(
        tokens: Vec<TokenId>,
        first_child: Vec<u32>,
        entries: Vec<u32>,
        nodes: Vec<u32>,
        payloads: Option<Payloads>,
    ) -> Self {
        let mut longest = 0;
        let mut level_end = 1;
        while level_end < tokens.len() {
            level_end = first_child[level_end] as usize;
            longest += 1;
        }
        let largest_token = tokens.iter().copied().max().unwrap_or_default();
        Self { tokens, first_child, entries, nodes, longest, largest_token, payloads }
    }
}

impl std::fmt::Debug for TokenTrie {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenTrie").field("len", &self.len()).finish_non_exhaustive()
    }
}
