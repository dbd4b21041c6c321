//! The input of a processor: the scores of a request's rows, and the context of each row.

use std::any::Any;

use rsgen_core::TokenId;
use rsgen_kernels::Isa;

use super::watched::WatchedToken;

/// The scores of the rows of one request: `[num_rows, vocab_size]`, changed in place.
#[derive(Debug)]
pub struct ScoreRows<'a> {
    scores: &'a mut [f32],
    vocab_size: usize,
}

impl<'a> ScoreRows<'a> {
    /// Consecutive rows of `vocab_size` scores each.
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

    /// All rows, concatenated.
    pub fn as_mut_slice(&mut self) -> &mut [f32] {
        self.scores
    }
}

/// The state of a processor for one sequence.
pub trait ProcessorState: Any + Send {
    /// The state of a sequence that begins as a copy of this one.
    fn fork(&self) -> Box<dyn ProcessorState>;
}

/// The states of all processors of a list for one sequence.
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
pub(crate) struct UnconditionalLogits<'a> {
    /// For each processor of the list the row of its unconditional sequence in `logits`, if it requested one.
    pub(crate) rows: &'a [Option<usize>],
    /// The logits of all unconditional sequences, `[unconditional sequences, vocab_size]`.
    pub(crate) logits: &'a [f32],
    pub(crate) vocab_size: usize,
}

impl<'a> UnconditionalLogits<'a> {
    fn logits(&self, processor: usize) -> Option<&'a [f32]> {
        let row = (*self.rows.get(processor)?)?;
        Some(&self.logits[row * self.vocab_size..][..self.vocab_size])
    }
}

/// The context of a row that a processor changes.
#[derive(Default)]
#[non_exhaustive]
pub struct RowContext<'a> {
    /// All ids of the row so far: prompt, its padding included, and generated tokens.
    pub input_ids: &'a [TokenId],
    /// The length of the prompt, padding included.
    pub prompt_len: usize,
    /// The number of ids before the first one that is not padding.
    pub padding_len: usize,
    /// The index of the prompt that the row continues.
    pub prompt_index: usize,
    /// The index of the row, counted as if no row had ended; rows of one prompt are consecutive.
    pub row_index: usize,
    /// The instruction set to compute with.
    pub isa: Isa,
    /// The unconditional sequences of the row.
    pub(crate) unconditional: UnconditionalLogits<'a>,
    /// The state of each processor of the list for this sequence.
    pub(crate) states: Option<&'a mut ProcessorStates>,
    /// The index of the processor that is called.
    pub(crate) processor_index: usize,
}

impl<'a> RowContext<'a> {
    /// A row that holds only a prompt without padding, to call a processor by hand.
    pub fn of_prompt(input_ids: &'a [TokenId]) -> Self {
        Self { input_ids, prompt_len: input_ids.len(), ..Self::default() }
    }

    /// The same for row `row_index` of several.
    pub fn numbered(input_ids: &'a [TokenId], row_index: usize) -> Self {
        Self { prompt_index: row_index, row_index, ..Self::of_prompt(input_ids) }
    }

    /// The logits of the row's unconditional sequence, `[vocab_size]`, if the processor requested one.
    pub fn unconditional_logits(&self) -> Option<&'a [f32]> {
        self.unconditional.logits(self.processor_index)
    }

    /// The processor's state for this sequence: the value that its `new_state` returned, or a fork of it.
    /// `None` when there is none or it has another type.
    pub fn state<S: ProcessorState>(&mut self) -> Option<&mut S> {
        let state: &mut dyn Any =
            &mut **self.states.as_mut()?.states.get_mut(self.processor_index)?.as_mut()?;
        state.downcast_mut()
    }
}

/// The rows of one call of the processors.
#[derive(Default)]
#[non_exhaustive]
pub struct ProcessContext<'a> {
    /// One entry per row of scores, in the same order; rows that have ended are left out.
    pub rows: Vec<RowContext<'a>>,
    /// The number of rows, counted as if none had ended.
    pub num_rows: usize,
    /// The group of beams that all rows belong to; 0 without groups.
    pub beam_group: usize,
    /// The tokens chosen in this step, `[num_prompts, num_beams]`, filled in by earlier groups; empty without
    /// groups.
    pub current_tokens: &'a [TokenId],
    /// Whether to end before the next row: it is asked again and again. `None` goes on to the end.
    pub interrupted: Option<&'a mut dyn FnMut() -> bool>,
    /// The watched tokens of each row, to record which processor removes them; empty unless events are asked
    /// for.
    pub(crate) watched: &'a mut [Vec<WatchedToken>],
}

impl<'a> ProcessContext<'a> {
    /// The context of these rows, without groups of beams and with none ended.
    pub fn new(rows: Vec<RowContext<'a>>) -> Self {
        Self { num_rows: rows.len(), rows, ..Self::default() }
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
        let mut row =
            RowContext { states: Some(&mut states), processor_index: 1, ..RowContext::of_prompt(&[]) };
        row.state::<Counter>().unwrap().0 += 1;
        assert_eq!(row.state::<Counter>().unwrap().0, 2);
        assert!(row.state::<Other>().is_none());
        row.processor_index = 0;
        assert!(row.state::<Counter>().is_none());
    }
}
