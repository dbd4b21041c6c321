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
