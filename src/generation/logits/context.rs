//! What a processor is given: the scores of a request's rows, and what there is to know of each row.

use std::any::Any;

use crate::types::TokenId;

/// The scores of the rows of one request: `[num_rows, vocab_size]`, changed in place.
#[derive(Debug)]
pub struct ScoreRows<'a> {
    scores: &'a mut [f32],
    vocab_size: usize,
}

impl<'a> ScoreRows<'a> {
    /// Rows of `vocab_size` scores each, one after the other.
    ///
    /// # Panics
    /// When the scores are not a whole number of rows.
    pub fn new(scores: &'a mut [f32], vocab_size: usize) -> Self {
        assert!(vocab_size > 0 && scores.len().is_multiple_of(vocab_size), "scores must be whole rows");
        Self { scores, vocab_size }
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.scores.len() / self.vocab_size
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.scores.is_empty()
    }

    /// The number of scores in a row.
    pub fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    /// Row `index`, `[vocab_size]`.
    pub fn row(&self, index: usize) -> &[f32] {
        &self.scores[index * self.vocab_size..][..self.vocab_size]
    }

    /// Row `index`, `[vocab_size]`.
    pub fn row_mut(&mut self, index: usize) -> &mut [f32] {
        &mut self.scores[index * self.vocab_size..][..self.vocab_size]
    }

    /// All rows, one after the other.
    pub fn as_mut_slice(&mut self) -> &mut [f32] {
        self.scores
    }
}

/// What a processor remembers of one sequence.
pub trait ProcessorState: Any + Send {
    /// The memory of a sequence that begins as a copy of this one.
    fn fork(&self) -> Box<dyn ProcessorState>;
}

/// What the processors of a list remember of one sequence.
#[derive(Default)]
pub struct ProcessorStates {
    /// One entry per processor of the list.
    pub(super) states: Vec<Option<Box<dyn ProcessorState>>>,
}

impl ProcessorStates {
    /// The states of a sequence that begins as a copy of this one.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self { states: self.states.iter().map(|state| state.as_ref().map(|state| state.fork())).collect() }
    }
}

/// The unconditional sequences of a row: their newest logits.
#[derive(Clone, Copy, Default)]
pub(in crate::generation) struct UnconditionalLogits<'a> {
    /// For each processor of the list the row of its unconditional sequence in `logits`, if it asked for one.
    pub(in crate::generation) rows: &'a [Option<usize>],
    /// Those of all unconditional sequences, `[unconditional sequences, vocab_size]`.
    pub(in crate::generation) logits: &'a [f32],
    pub(in crate::generation) vocab_size: usize,
}

impl<'a> UnconditionalLogits<'a> {
    fn logits(&self, place: usize) -> Option<&'a [f32]> {
        let row = (*self.rows.get(place)?)?;
        Some(&self.logits[row * self.vocab_size..][..self.vocab_size])
    }
}

/// What a processor may know of the row it changes.
#[non_exhaustive]
pub struct RowContext<'a> {
    /// All ids of the row so far: prompt, its padding included, and generated tokens.
    pub input_ids: &'a [TokenId],
    /// How many of them are the prompt, padding included.
    pub prompt_len: usize,
    /// How many ids stand before the first one that is not padding.
    pub padding_len: usize,
    /// Which prompt of the request the row continues.
    pub prompt_index: usize,
    /// The row among those of a call in which none has ended; rows of one prompt are neighbours.
    pub row_index: usize,
    /// The unconditional sequences of the row.
    pub(in crate::generation) unconditional: UnconditionalLogits<'a>,
    /// What each processor of the list remembers of this sequence.
    pub(in crate::generation) states: Option<&'a mut ProcessorStates>,
    /// The place of the processor that is called.
    pub(in crate::generation) place: usize,
}

impl<'a> RowContext<'a> {
    /// A row that is nothing but a prompt without padding, to call a processor by hand.
    pub fn of_prompt(input_ids: &'a [TokenId]) -> Self {
        Self {
            input_ids,
            prompt_len: input_ids.len(),
            padding_len: 0,
            prompt_index: 0,
            row_index: 0,
            unconditional: UnconditionalLogits::default(),
            states: None,
            place: 0,
        }
    }

    /// The same for row `row_index` of several.
    pub fn numbered(input_ids: &'a [TokenId], row_index: usize) -> Self {
        Self { prompt_index: row_index, row_index, ..Self::of_prompt(input_ids) }
    }

    /// The logits of the row's unconditional sequence, `[vocab_size]`, if the processor asked for one.
    pub fn unconditional_logits(&self) -> Option<&'a [f32]> {
        self.unconditional.logits(self.place)
    }

    /// What the processor remembers of this sequence: the value its `new_state` made, or a fork of it. `None`
    /// when there is none or it is of another type.
    pub fn state<S: ProcessorState>(&mut self) -> Option<&mut S> {
        let state: &mut dyn Any = &mut **self.states.as_mut()?.states.get_mut(self.place)?.as_mut()?;
        state.downcast_mut()
    }
}

/// The rows of one call of the processors.
#[non_exhaustive]
pub struct ProcessContext<'a> {
    /// One entry per row of scores, in the same order; rows that have ended are left out.
    pub rows: Vec<RowContext<'a>>,
    /// The number of rows of a call in which none has ended.
    pub num_rows: usize,
    /// The group of beams that all rows belong to; 0 where there are no groups.
    pub beam_group: usize,
    /// The tokens chosen in this step, `[num_prompts, num_beams]`, as far as earlier groups have chosen; empty where there
    /// are no groups.
    pub current_tokens: &'a [TokenId],
}

impl<'a> ProcessContext<'a> {
    /// These rows, without groups of beams, when none has ended.
    pub fn new(rows: Vec<RowContext<'a>>) -> Self {
        Self { num_rows: rows.len(), rows, beam_group: 0, current_tokens: &[] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_slices_of_the_scores() {
        let mut scores = [1.0, 2.0, 3.0, 4.0];
        let mut rows = ScoreRows::new(&mut scores, 2);
        assert_eq!((rows.len(), rows.vocab_size()), (2, 2));
        rows.row_mut(1)[0] = 9.0;
        assert_eq!(rows.row(1), [9.0, 4.0]);
        assert_eq!(scores, [1.0, 2.0, 9.0, 4.0]);
    }

    struct Counter(u32);

    impl ProcessorState for Counter {
        fn fork(&self) -> Box<dyn ProcessorState> {
            Box::new(Self(self.0))
        }
    }

    struct Other;

    impl ProcessorState for Other {
        fn fork(&self) -> Box<dyn ProcessorState> {
            Box::new(Self)
        }
    }

    #[test]
    fn a_state_comes_back_in_its_own_type_only() {
        let mut states = ProcessorStates { states: vec![None, Some(Box::new(Counter(1)))] };
        let mut row = RowContext { states: Some(&mut states), place: 1, ..RowContext::of_prompt(&[]) };
        row.state::<Counter>().unwrap().0 += 1;
        assert_eq!(row.state::<Counter>().unwrap().0, 2);
        assert!(row.state::<Other>().is_none());
        row.place = 0;
        assert!(row.state::<Counter>().is_none());
    }
}
