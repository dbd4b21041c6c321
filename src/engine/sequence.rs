//! A cached sequence of a request and the inputs of its tokens; recomputed when longrope changes its factors.
//!
//! The inputs are kept so that a request can give its blocks back and be computed again, and so that other
//! requests can share its blocks. Those can be shared whose keys and values depend on tokens alone: not on
//! embeddings, on an early exit, or on the length of the text, as with dynamic RoPE and longrope.
//!
//! Longrope models have short and long factors ([`CausalLm::longrope_threshold`]). When a sequence crosses
//! the threshold, in either direction, the keys and values of all its tokens change: rows that recompute all
//! earlier tokens are inserted before the first row with the other factors. transformers does the same: its
//! Phi-3 drops the cache at that point. So a sequence always equals the same text as a prompt.

use std::num::NonZeroU32;
use std::sync::Arc;

use rsgen_core::{Result, RowOutputs, SeqId, TokenId};
use rsgen_generation::embeddings::EmbeddingRow;
use rsgen_generation::plan::AttentionSinks;
use rsgen_generation::search::{ModelRole, RowInput, WantedRow};
use rsgen_model::cache::{Adopted, BLOCK_TOKENS, BlockCopy, BlockShift, BlockTable, SequenceCache};

/// The input of a cached token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CachedInput {
    /// `None` for an embedding.
    token: Option<TokenId>,
    /// See [`Row::rope_seq_len`](rsgen_model::Row::rope_seq_len).
    rope_seq_len: u32,
    /// See [`Row::last_layer`](rsgen_model::Row::last_layer).
    last_layer: Option<u16>,
}

/// The position of a row; see [`Row`](rsgen_model::Row).
#[derive(Clone, Copy)]
pub(super) struct RowPosition {
    pub(super) position: usize,
    pub(super) rope_seq_len: usize,
}

/// The cached tokens of one sequence.
pub(super) struct Sequence {
    /// The model that computes it.
    pub(super) model: ModelRole,
    cache: SequenceCache,
    /// The length above which the model uses the long factors.
    longrope_threshold: Option<usize>,
    /// The inputs of the cached tokens.
    inputs: Vec<CachedInput>,
    /// The inputs that are no tokens, by position.
    embeddings: Arc<Vec<(usize, EmbeddingRow)>>,
    /// Whether the cached tokens were computed with the long factors.
    is_long: bool,
    /// Whether other requests may share its blocks.
    is_shared: bool,
    /// The attention sinks, if any: the tokens that always stay in the cache.
    sinks: Option<AttentionSinks>,
    /// The prompt whose source it sees, in a model with an encoder, counted from 1: each fork copies it, so it is small.
    source: Option<NonZeroU32>,
}

impl Sequence {
    /// A sequence of a model, in an empty cache. `is_shared`: other requests may share its blocks.
    pub(super) fn new(
        model: ModelRole,
        cache: SequenceCache,
        longrope_threshold: Option<usize>,
        is_shared: bool,
    ) -> Self {
        let (inputs, embeddings) = Default::default();
        let (is_long, sinks, source) = (false, None, None);
        Self { model, cache, longrope_threshold, inputs, embeddings, is_long, is_shared, sinks, source }
    }

    /// Sets attention sinks; other requests share none of its blocks then.
    pub(super) fn with_sinks(self, sinks: Option<AttentionSinks>) -> Self {
        Self { is_shared: self.is_shared && sinks.is_none(), sinks, ..self }
    }

    /// Sets the source that it sees; other requests share none of its blocks then.
    pub(super) fn with_source(self, source: Option<usize>) -> Self {
        let counted =
            |prompt: usize| NonZeroU32::MIN.saturating_add(u32::try_from(prompt).unwrap_or(u32::MAX));
        Self { is_shared: self.is_shared && source.is_none(), source: source.map(counted), ..self }
    }

    /// The prompt whose source it sees.
    pub(super) fn source(&self) -> Option<usize> {
        self.source.map(|counted| counted.get() as usize - 1)
    }

    /// The position of the next token after `len` tokens: lower when the oldest make room for it first.
    pub(super) fn next_position(&self, len: usize) -> usize {
        self.sinks.map_or(len, |sinks| sinks.next_position(len))
    }

    /// Drops the oldest tokens after the attention sinks; `None` without sinks. See
    /// [`SequenceCache::drop_after`].
    pub(super) fn make_room(&mut self) -> Result<Option<BlockShift>> {
        let Some(sinks) = self.sinks else { return Ok(None) };
        let (first, dropped) = (sinks.sinks(), sinks.dropped());
        let shift = self.cache.drop_after(first, dropped)?;
        self.inputs.drain(first..first + dropped);
        if !self.embeddings.is_empty() {
            let embeddings = Arc::make_mut(&mut self.embeddings);
            embeddings.retain(|(position, _)| !(first..first + dropped).contains(position));
            for (position, _) in embeddings {
                *position -= if *position < first { 0 } else { dropped };
            }
        }
        Ok(Some(shift))
    }

    /// A second sequence with the same tokens.
    pub(super) fn fork(&self) -> Self {
        Self {
            cache: self.cache.fork(),
            inputs: self.inputs.clone(),
            embeddings: Arc::clone(&self.embeddings),
            ..*self
        }
    }

    /// Appends a slot for one token; see [`SequenceCache::append`].
    pub(super) fn append(&mut self, wanted: &WantedRow, rope_seq_len: usize) -> Result<Option<BlockCopy>> {
        let copy = self.cache.append(1)?;
        let token = match &wanted.input {
            RowInput::Token(token) => Some(*token),
            RowInput::Embedding(embedding) => {
                Arc::make_mut(&mut self.embeddings).push((self.inputs.len(), embedding.clone()));
                None
            }
        };
        let last_layer = wanted.last_layer.and_then(|layer| u16::try_from(layer).ok());
        let rope_len = u32::try_from(rope_seq_len).unwrap_or(u32::MAX);
        self.inputs.push(CachedInput { token, rope_seq_len: rope_len, last_layer });
        if let Some(threshold) = self.longrope_threshold {
            self.is_long = rope_seq_len > threshold;
        }
        Ok(copy)
    }

    /// Its first `len` tokens; `None` when other requests cannot share them.
    pub(super) fn text(&self, len: usize) -> Option<Vec<TokenId>> {
        let tokens =
            self.inputs.get(..len)?.iter().map(|input| input.token.filter(|_| input.last_layer.is_none()));
        tokens.collect::<Option<_>>().filter(|_| self.is_shared)
    }

    /// All its tokens and those of the first `rows` that can be adopted from other requests: rows of the
    /// sequence without outputs. `None` when there are none.
    pub(super) fn text_with(&self, rows: &[WantedRow]) -> Option<Vec<TokenId>> {
        let new = rows.iter().take_while(|row| row.seq == rows[0].seq && row.outputs.is_none());
        let mut new = new.map_while(|row| match row.input {
            RowInput::Token(token) if row.last_layer.is_none() => Some(token),
            _ => None,
        });
        let first = new.next()?;
        let mut text = self.text(self.len())?;
        text.push(first);
        text.extend(new);
        Some(text)
    }

    /// Continues with tokens of `text` that other requests have computed; see [`SequenceCache::adopt`].
    pub(super) fn adopt(&mut self, text: &[TokenId]) -> Adopted {
        let adopted = self.cache.adopt(text);
        let new = (self.inputs.len()..self.cache.len()).map(|position| CachedInput {
            token: Some(text[position]),
            rope_seq_len: u32::try_from(position + 1).unwrap_or(u32::MAX),
            last_layer: None,
        });
        self.inputs.extend(new);
        adopted
    }

    /// Publishes its first `len` tokens, which must be computed, to other requests; see
    /// [`SequenceCache::publish`].
    pub(super) fn publish(&mut self, len: usize) {
        if let Some(text) = self.text(len) {
            self.cache.publish(&text);
        }
    }

    /// [`Sequence::publish`] of all tokens, if there is a full block that is not published.
    pub(super) fn publish_full(&mut self) {
        if self.is_shared && self.len() / BLOCK_TOKENS > self.cache.published_blocks() {
            self.publish(self.len());
        }
    }

    /// The row that computes a cached token again, and its position.
    pub(super) fn recomputed(&self, seq: SeqId, position: usize) -> (WantedRow, RowPosition) {
        let CachedInput { rope_seq_len, last_layer, .. } = self.inputs[position];
        let wanted = WantedRow {
            model: self.model,
            seq,
            input: self.input(position),
            is_prompt: true,
            last_layer: last_layer.map(usize::from),
            outputs: RowOutputs::NONE,
        };
        (wanted, RowPosition { position, rope_seq_len: rope_seq_len as usize })
    }

    /// The input of a cached token.
    fn input(&self, position: usize) -> RowInput {
        let embedding = || {
            let index = self.embeddings.binary_search_by_key(&position, |(at, _)| *at).ok()?;
            Some(RowInput::Embedding(self.embeddings[index].1.clone()))
        };
        let token = self.inputs[position].token.map(RowInput::Token);
        // An input that is no token is an embedding.
        token.or_else(embedding).unwrap_or(RowInput::Token(TokenId(0)))
    }

    /// Its part of the cache.
    pub(super) fn cache_mut(&mut self) -> &mut SequenceCache {
        &mut self.cache
    }

    /// Drops all tokens from `len` on.
    pub(super) fn truncate(&mut self, len: usize) {
        self.cache.truncate(len);
        self.inputs.truncate(len);
        if self.embeddings.last().is_some_and(|(position, _)| *position >= len) {
            Arc::make_mut(&mut self.embeddings).retain(|(position, _)| *position < len);
        }
    }

    /// The number of tokens.
    pub(super) fn len(&self) -> usize {
        self.cache.len()
    }

    /// The blocks of the tokens.
    pub(super) fn table(&self) -> &BlockTable {
        self.cache.table()
    }
}

/// Before each row whose factors differ from those of its sequence, inserts rows that recompute all earlier
/// tokens. The first inserted row has position 0 although its sequence is not empty. `sequences` is indexed
/// by [`SeqId`](rsgen_core::types::SeqId).
pub(super) fn insert_recomputed(
    rows: &mut Vec<WantedRow>,
    positions: &mut Vec<RowPosition>,
    sequences: &[Option<Sequence>],
    longrope_threshold: Option<usize>,
) {
    let Some(threshold) = longrope_threshold else { return };
    let cached = |sequence: &Sequence| (sequence.len() > 0).then_some(sequence.is_long);
    let mut is_long: Vec<Option<bool>> =
        sequences.iter().map(|sequence| sequence.as_ref().and_then(cached)).collect();
    let mut switches = |(row, position): (&WantedRow, &RowPosition)| {
        let now = position.rope_seq_len > threshold;
        is_long[row.seq.index()].replace(now).is_some_and(|before| before != now)
    };
    let switching: Vec<bool> = rows.iter().zip(&*positions).map(&mut switches).collect();
    if !switching.contains(&true) {
        return;
    }
    let (wanted, wanted_positions) = (std::mem::take(rows), std::mem::take(positions));
    for (index, (row, row_position)) in wanted.iter().zip(wanted_positions).enumerate() {
        if switching[index] {
            let cached = sequences[row.seq.index()].iter();
            let past =
                cached.flat_map(|sequence| (0..sequence.len()).map(|position| sequence.input(position)));
            let new = wanted[..index].iter().filter(|other| other.seq == row.seq);
            for (position, input) in past.chain(new.map(|row| row.input.clone())).enumerate() {
                let outputs = RowOutputs::NONE;
                rows.push(WantedRow { input, is_prompt: true, last_layer: None, outputs, ..row.clone() });
                positions.push(RowPosition { position, rope_seq_len: row_position.rope_seq_len });
            }
        }
        rows.push(row.clone());
        positions.push(row_position);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rsgen_model::cache::{KvCapacity, KvDtype, KvLayout, Reservation, SharedPool};

    const THRESHOLD: usize = 4;

    fn row(seq: u32, token: u32) -> WantedRow {
        WantedRow {
            model: ModelRole::Target,
            seq: SeqId(seq),
            input: RowInput::Token(TokenId(token)),
            is_prompt: false,
            last_layer: None,
            outputs: RowOutputs::LOGITS,
        }
    }

    /// A sequence of the tokens 0, 1, 2 …, computed for a text of `rope_seq_len` tokens.
    fn cached(reservation: &Reservation, len: u32, rope_seq_len: usize) -> Sequence {
        let mut sequence =
            Sequence::new(ModelRole::Target, SequenceCache::within(reservation), Some(THRESHOLD), false);
        for token in 0..len {
            sequence.append(&row(0, token), rope_seq_len).unwrap();
        }
        sequence
    }

    /// The rows of one new token each, with the inserted rows, as `(sequence, token, position, rope_seq_len,
    /// has outputs)`.
    fn inserted(sequences: &[Option<Sequence>], new: &[(u32, u32)]) -> Vec<(u32, u32, usize, usize, bool)> {
        let mut rows: Vec<WantedRow> = new.iter().map(|&(seq, token)| row(seq, token)).collect();
        let mut lens: Vec<usize> =
            sequences.iter().map(|sequence| sequence.as_ref().map_or(0, Sequence::len)).collect();
        let position_of = |row: &WantedRow| {
            let len = &mut lens[row.seq.index()];
            *len += 1;
            RowPosition { position: *len - 1, rope_seq_len: *len }
        };
        let mut positions: Vec<RowPosition> = rows.iter().map(position_of).collect();
        insert_recomputed(&mut rows, &mut positions, sequences, Some(THRESHOLD));
        let token = |row: &WantedRow| match row.input {
            RowInput::Token(token) => token.0,
            RowInput::Embedding(_) => panic!("all inputs are tokens"),
        };
        let all = rows.iter().zip(&positions);
        all.map(|(row, position)| {
            (
                row.seq.0,
                token(row),
                position.position,
                position.rope_seq_len,
                row.outputs == RowOutputs::LOGITS,
            )
        })
        .collect()
    }

    #[test]
    fn tokens_are_recomputed_when_their_sequence_crosses_the_threshold() {
        let layout = KvLayout::new(1, 1, 2, KvDtype::F32).unwrap();
        let pool = SharedPool::new(KvCapacity::from_blocks(layout, 8).unwrap());
        let reservation = pool.reserve(8).unwrap();

        let short = [Some(cached(&reservation, 3, 3))];
        assert_eq!(inserted(&short, &[(0, 3)]), [(0, 3, 3, 4, true)], "still short");
        let long = [Some(cached(&reservation, 6, 6))];
        assert_eq!(inserted(&long, &[(0, 6)]), [(0, 6, 6, 7, true)], "long as before");

        // The second sequence grows beyond the length; the first one does not.
        let two = [Some(cached(&reservation, 2, 2)), Some(cached(&reservation, 4, 4))];
        let anew = (0..4).map(|token| (1, token, token as usize, 5, false));
        let expected: Vec<_> =
            [(0, 2, 2, 3, true)].into_iter().chain(anew).chain([(1, 4, 4, 5, true)]).collect();
        assert_eq!(inserted(&two, &[(0, 2), (1, 4)]), expected);

        // Several new tokens cross the length: those within it come first, unchanged.
        let straddling = inserted(&short, &[(0, 3), (0, 4), (0, 5)]);
        let anew = (0..4).map(|token| (0, token, token as usize, 5, false));
        let expected: Vec<_> = [(0, 3, 3, 4, true)]
            .into_iter()
            .chain(anew)
            .chain([(0, 4, 4, 5, true), (0, 5, 5, 6, true)])
            .collect();
        assert_eq!(straddling, expected);

        // Back below the length, and beyond it again.
        let mut cut = cached(&reservation, 6, 6);
        cut.truncate(3);
        let anew = |len: u32, rope_seq_len| {
            (0..len).map(move |token| (0, token, token as usize, rope_seq_len, false))
        };
        let expected: Vec<_> =
            anew(3, 4).chain([(0, 3, 3, 4, true)]).chain(anew(4, 5)).chain([(0, 4, 4, 5, true)]).collect();
        assert_eq!(inserted(&[Some(cut)], &[(0, 3), (0, 4)]), expected);
    }

    #[test]
    fn a_fork_keeps_its_inputs_and_an_empty_sequence_has_none() {
        let layout = KvLayout::new(1, 1, 2, KvDtype::F32).unwrap();
        let pool = SharedPool::new(KvCapacity::from_blocks(layout, 8).unwrap());
        let reservation = pool.reserve(8).unwrap();
        let original = cached(&reservation, 4, 4);
        let fork = original.fork();
        drop(original);
        assert_eq!(inserted(&[Some(fork)], &[(0, 4)]).len(), 5);
        let mut emptied = cached(&reservation, 6, 6);
        emptied.truncate(0);
        assert_eq!(inserted(&[None, Some(emptied)], &[(1, 9)]), [(1, 9, 0, 1, true)]);
    }
}
