//! A cached sequence of a request, and what it takes to compute it anew.
//!
//! A model whose frequencies switch with the length of a sequence ([`CausalLm::switches_above`]) has other keys and values
//! for all its tokens when it grows beyond that length, or shrinks back. For such a model alone the inputs of a sequence
//! are remembered; before the first row that is computed the other way stand then rows for all tokens before it. As in
//! transformers, whose Phi-3 drops its cache at that point, a sequence is always what its text is as a prompt.

use super::request::Place;
use crate::cache::{BlockCopy, BlockTable, Reservation, SequenceCache};
use crate::error::Result;
use crate::generation::search::{RowInput, WantedRow};
use crate::types::RowOutputs;

/// The cached tokens of one sequence.
pub(super) struct Sequence {
    cache: SequenceCache,
    /// The length above which the model computes all tokens the other way.
    switches_above: Option<usize>,
    /// The inputs of the cached tokens; empty where they never switch.
    past: Vec<RowInput>,
    /// Whether the cached tokens were computed as those of a sequence above that length.
    is_long: bool,
}

impl Sequence {
    /// An empty sequence that takes its blocks from `reservation`.
    pub(super) fn within(reservation: &Reservation, switches_above: Option<usize>) -> Self {
        let cache = SequenceCache::within(reservation);
        Self { cache, switches_above, past: Vec::new(), is_long: false }
    }

    /// A second sequence with the same tokens.
    pub(super) fn fork(&self) -> Self {
        Self { cache: self.cache.fork(), past: self.past.clone(), ..*self }
    }

    /// Makes room for one more token; see [`SequenceCache::append`].
    pub(super) fn append(&mut self, input: &RowInput, rope_len: usize) -> Result<Option<BlockCopy>> {
        let copy = self.cache.append(1)?;
        if let Some(above) = self.switches_above {
            self.past.push(input.clone());
            self.is_long = rope_len > above;
        }
        Ok(copy)
    }

    /// Forgets all tokens from `len` on.
    pub(super) fn truncate(&mut self, len: usize) {
        self.cache.truncate(len);
        self.past.truncate(len);
    }

    /// The number of tokens.
    pub(super) fn len(&self) -> usize {
        self.cache.len()
    }

    /// Where the tokens lie.
    pub(super) fn table(&self) -> &BlockTable {
        self.cache.table()
    }
}

/// Puts, before each row that is computed the other way than the tokens before it, rows that compute these tokens anew.
/// The first of them has position 0 in a sequence that is not empty. `sequences` are by the number of a sequence.
pub(super) fn insert_switched(
    rows: &mut Vec<WantedRow>,
    places: &mut Vec<Place>,
    sequences: &[Option<Sequence>],
    switches_above: Option<usize>,
) {
    let Some(above) = switches_above else { return };
    let cached = |sequence: &Sequence| (sequence.len() > 0).then_some(sequence.is_long);
    let mut is_long: Vec<Option<bool>> =
        sequences.iter().map(|sequence| sequence.as_ref().and_then(cached)).collect();
    let mut switches = |(row, place): (&WantedRow, &Place)| {
        let now = place.rope_len > above;
        is_long[row.seq.index()].replace(now).is_some_and(|before| before != now)
    };
    let switching: Vec<bool> = rows.iter().zip(&*places).map(&mut switches).collect();
    if !switching.contains(&true) {
        return;
    }
    let (wanted, wanted_places) = (std::mem::take(rows), std::mem::take(places));
    for (index, (row, place)) in wanted.iter().zip(wanted_places).enumerate() {
        if switching[index] {
            let past = sequences[row.seq.index()].iter().flat_map(|sequence| &sequence.past);
            let new = wanted[..index].iter().filter(|other| other.seq == row.seq).map(|row| &row.input);
            for (position, input) in past.chain(new).enumerate() {
                let (input, outputs) = (input.clone(), RowOutputs::NONE);
                rows.push(WantedRow { input, is_prompt: true, last_layer: None, outputs, ..row.clone() });
                places.push(Place { position, rope_len: place.rope_len });
            }
        }
        rows.push(row.clone());
        places.push(place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{KvCapacity, KvDtype, KvLayout, SharedPool};
    use crate::generation::search::ModelRole;
    use crate::types::{SeqId, TokenId};

    const ABOVE: usize = 4;

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

    /// A sequence of the tokens 0, 1, 2 … that were computed as those of a text of `rope_len`.
    fn cached(reservation: &Reservation, len: u32, rope_len: usize) -> Sequence {
        let mut sequence = Sequence::within(reservation, Some(ABOVE));
        for token in 0..len {
            sequence.append(&row(0, token).input, rope_len).unwrap();
        }
        sequence
    }

    /// What stands at the end for rows of one new token each, as `(sequence, token, position, rope_len, has outputs)`.
    fn inserted(sequences: &[Option<Sequence>], new: &[(u32, u32)]) -> Vec<(u32, u32, usize, usize, bool)> {
        let mut rows: Vec<WantedRow> = new.iter().map(|&(seq, token)| row(seq, token)).collect();
        let mut lens: Vec<usize> =
            sequences.iter().map(|sequence| sequence.as_ref().map_or(0, Sequence::len)).collect();
        let place = |row: &WantedRow| {
            let len = &mut lens[row.seq.index()];
            *len += 1;
            Place { position: *len - 1, rope_len: *len }
        };
        let mut places: Vec<Place> = rows.iter().map(place).collect();
        insert_switched(&mut rows, &mut places, sequences, Some(ABOVE));
        let token = |row: &WantedRow| match row.input {
            RowInput::Token(token) => token.0,
            RowInput::Embedding(_) => panic!("all inputs are tokens"),
        };
        let all = rows.iter().zip(&places);
        all.map(|(row, place)| {
            (row.seq.0, token(row), place.position, place.rope_len, row.outputs == RowOutputs::LOGITS)
        })
        .collect()
    }

    #[test]
    fn tokens_are_computed_anew_when_their_sequence_grows_beyond_the_length_or_shrinks_back() {
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

        // A check of several tokens grows beyond the length on its way: those within it come first, as they were.
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
        let anew =
            |len: u32, rope_len| (0..len).map(move |token| (0, token, token as usize, rope_len, false));
        let expected: Vec<_> =
            anew(3, 4).chain([(0, 3, 3, 4, true)]).chain(anew(4, 5)).chain([(0, 4, 4, 5, true)]).collect();
        assert_eq!(inserted(&[Some(cut)], &[(0, 3), (0, 4)]), expected);
    }

    #[test]
    fn a_fork_remembers_its_tokens_and_an_empty_sequence_has_none_to_compute_anew() {
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
