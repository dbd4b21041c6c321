//! Builds a [`TokenTrie`]: sorts the entries, and makes the nodes level by level.

use serde_json::Value;

use super::payloads::Payloads;
use super::{NO_ENTRY, TokenTrie};
use rsgen_core::{Error, Result, TokenId, memory};

/// The entries that are sorted at a time, and the steps between two looks at whether to go on: milliseconds.
const STEPS: usize = 1 << 15;
/// The most tokens of all entries: nodes are numbered with 32 bits.
const MAX_TOKENS: usize = u32::MAX as usize - 1;

/// Collects the entries of a [`TokenTrie`].
#[derive(Default)]
pub struct TokenTrieBuilder {
    /// The tokens of all entries, one after the other.
    tokens: Vec<TokenId>,
    /// Where each entry ends in them.
    ends: Vec<u32>,
    payloads: Option<Payloads>,
}

impl TokenTrieBuilder {
    /// Adds an entry with its payload. All entries have one, or none has.
    ///
    /// # Errors
    /// `Input` for an entry without tokens, and for one with a payload among others without; `Capacity` for more
    /// than four billion tokens, and when there is no memory.
    pub fn add(&mut self, token_ids: &[TokenId], payload: Option<&Value>) -> Result<()> {
        let index = self.ends.len();
        let place = |error: Error| error.of_prompt("entry", index);
        if token_ids.is_empty() {
            return Err(place(Error::input("it has no token; leave it out")));
        }
        if index > 0 && payload.is_some() != self.payloads.is_some() {
            return Err(place(Error::input(
                "either all entries have a payload, or none has; give one for each",
            )));
        }
        if token_ids.len() > MAX_TOKENS - self.tokens.len() {
            return Err(place(Error::capacity(format!(
                "a catalogue holds at most {MAX_TOKENS} tokens; divide it"
            ))));
        }
        if self.tokens.capacity() - self.tokens.len() < token_ids.len() {
            let more = self.tokens.len().max(token_ids.len()).max(1024);
            memory::reserve(&mut self.tokens, more, "tokens")?;
        }
        self.tokens.extend_from_slice(token_ids);
        self.ends.push(self.tokens.len() as u32);
        if let Some(payload) = payload {
            self.payloads.get_or_insert_default().push(payload);
        }
        Ok(())
    }

    /// The number of entries so far.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// The number of their tokens.
    pub fn num_tokens(&self) -> usize {
        self.tokens.len()
    }

    /// Whether there is no entry yet.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Builds the catalogue; ends early when `interrupted` returns true, which is asked every few milliseconds.
    ///
    /// # Errors
    /// `Input` without entries, and when two have the same tokens; `Capacity` when there is no memory;
    /// `Cancelled`.
    pub fn build(self, interrupted: &mut dyn FnMut() -> bool) -> Result<TokenTrie> {
        if self.is_empty() {
            return Err(Error::input("a catalogue must have at least one entry, got none"));
        }
        let order = self.sorted(interrupted)?;
        self.check_distinct(&order)?;
        let (sorted, ends) = self.in_order(&order)?;
        let Self { payloads, .. } = self;
        Nodes::of(&sorted, &ends, &order, interrupted).map(|nodes| nodes.into_trie(payloads))
    }

    fn entry(&self, index: u32) -> &[TokenId] {
        let index = index as usize;
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        &self.tokens[start..self.ends[index] as usize]
    }

    /// The entries in ascending order, those with the same tokens in their own.
    fn sorted(&self, interrupted: &mut dyn FnMut() -> bool) -> Result<Vec<u32>> {
        // Most entries differ in the first two tokens, which are compared as one number.
        let key = |index: u32| {
            let token = |ids: &[TokenId], place: usize| ids.get(place).map_or(0, |id| u64::from(id.0));
            let ids = self.entry(index);
            (token(ids, 0) << 32 | token(ids, 1), index)
        };
        let before = |a: &(u64, u32), b: &(u64, u32)| {
            a.0.cmp(&b.0).then_with(|| self.entry(a.1).cmp(self.entry(b.1))).then(a.1.cmp(&b.1))
        };
        let mut keys = Vec::new();
        memory::reserve(&mut keys, self.len(), "entries")?;
        keys.extend((0..self.len() as u32).map(key));
        for part in keys.chunks_mut(STEPS) {
            go_on(interrupted)?;
            part.sort_unstable_by(before);
        }
        let mut merged = Vec::new();
        memory::reserve(&mut merged, self.len(), "entries")?;
        let mut width = STEPS;
        while width < keys.len() {
            merged.clear();
            for pair in keys.chunks(2 * width) {
                let (mut left, mut right) = pair.split_at(width.min(pair.len()));
                while let (Some(a), Some(b)) = (left.first(), right.first()) {
                    if merged.len().is_multiple_of(STEPS) {
                        go_on(interrupted)?;
                    }
                    let side = if before(a, b).is_le() { &mut left } else { &mut right };
                    merged.push(side[0]);
                    *side = &side[1..];
                }
                merged.extend_from_slice(left);
                merged.extend_from_slice(right);
            }
            std::mem::swap(&mut keys, &mut merged);
            width *= 2;
        }
        Ok(keys.into_iter().map(|(_, index)| index).collect())
    }

    /// Refuses entries with the same tokens: a result could not say which it is.
    fn check_distinct(&self, order: &[u32]) -> Result<()> {
        let same = order.windows(2).filter(|pair| self.entry(pair[0]) == self.entry(pair[1]));
        let (mut count, mut first) = (0, None::<(u32, u32)>);
        for pair in same {
            count += 1;
            if first.is_none_or(|(_, later)| pair[1] < later) {
                first = Some((pair[0], pair[1]));
            }
        }
        let Some((earlier, later)) = first else { return Ok(()) };
        let others = match count - 1 {
            0 => String::new(),
            others => format!(", and {others} more such"),
        };
        Err(Error::input(format!(
            "it has the same tokens as entry {earlier}{others}; keep one of them, whose payload can be a list"
        ))
        .of_prompt("entry", later as usize))
    }

    /// The tokens of the entries in this order, and where each ends in them.
    fn in_order(&self, order: &[u32]) -> Result<(Vec<TokenId>, Vec<u32>)> {
        let (mut tokens, mut ends) = (Vec::new(), Vec::new());
        memory::reserve(&mut tokens, self.tokens.len(), "tokens")?;
        memory::reserve(&mut ends, order.len(), "entries")?;
        for &index in order {
            tokens.extend_from_slice(self.entry(index));
            ends.push(tokens.len() as u32);
        }
        Ok((tokens, ends))
    }
}

/// The nodes so far.
struct Nodes {
    tokens: Vec<TokenId>,
    first_child: Vec<u32>,
    entries: Vec<u32>,
    of_entries: Vec<u32>,
}

impl Nodes {
    /// The nodes of sorted entries with these tokens, whose indices are `order`.
    fn of(
        sorted: &[TokenId],
        ends: &[u32],
        order: &[u32],
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Self> {
        let most = sorted.len() + 1;
        let mut nodes = Self {
            tokens: vec![TokenId(0)],
            first_child: Vec::new(),
            entries: Vec::new(),
            of_entries: vec![0; order.len()],
        };
        let entry = |place: usize| {
            let start = place.checked_sub(1).map_or(0, |before| ends[before] as usize);
            &sorted[start..ends[place] as usize]
        };
        memory::reserve(&mut nodes.tokens, most, "nodes")?;
        memory::reserve(&mut nodes.first_child, most + 1, "nodes")?;
        memory::reserve(&mut nodes.entries, most, "nodes")?;
        // The sorted entries below each node of a level.
        let mut level = vec![(0, order.len())];
        let (mut next, mut depth, mut steps) = (Vec::new(), 0, 0);
        while !level.is_empty() {
            for (mut start, end) in level.drain(..) {
                let ends_here = entry(start).len() == depth;
                if ends_here {
                    nodes.of_entries[order[start] as usize] = nodes.entries.len() as u32;
                    nodes.entries.push(order[start]);
                    start += 1;
                } else {
                    nodes.entries.push(NO_ENTRY);
                }
                nodes.first_child.push(nodes.tokens.len() as u32);
                while start < end {
                    let token = entry(start)[depth];
                    let first = start;
                    while start < end && entry(start)[depth] == token {
                        start += 1;
                        steps += 1;
                        if steps % STEPS == 0 {
                            go_on(interrupted)?;
                        }
                    }
                    nodes.tokens.push(token);
                    next.push((first, start));
                }
            }
            std::mem::swap(&mut level, &mut next);
            depth += 1;
        }
        nodes.first_child.push(nodes.tokens.len() as u32);
        Ok(nodes)
    }

    fn into_trie(self, payloads: Option<Payloads>) -> TokenTrie {
        let Self { mut tokens, mut first_child, mut entries, of_entries } = self;
        tokens.shrink_to_fit();
        first_child.shrink_to_fit();
        entries.shrink_to_fit();
        TokenTrie::of_nodes(tokens, first_child, entries, of_entries, payloads)
    }
}

fn go_on(interrupted: &mut dyn FnMut() -> bool) -> Result<()> {
    if interrupted() { Err(Error::cancelled()) } else { Ok(()) }
}
