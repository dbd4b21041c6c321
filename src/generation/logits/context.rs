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
    /// The row within the request; rows of one prompt are neighbours.
    pub row_index: usize,
    /// The group of beams the row belongs to; 0 where there are no groups.
    pub beam_group: usize,
    /// The tokens that earlier groups of the same prompt chose in this step; empty where there are no groups.
    pub group_tokens: &'a [TokenId],
    /// The logits of the row's companion sequence, `[vocab_size]`, if the processor asked for one.
    pub companion_logits: Option<&'a [f32]>,
    /// What the processor remembers of this sequence, if it asked for a state.
    pub(super) state: Option<&'a mut Box<dyn ProcessorState>>,
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
            beam_group: 0,
            group_tokens: &[],
            companion_logits: None,
            state: None,
        }
    }

    /// What the processor remembers of this sequence: the value its `new_state` made, or a fork of it. `None`
    /// when there is none or it is of another type.
    pub fn state<S: ProcessorState>(&mut self) -> Option<&mut S> {
        let state: &mut dyn Any = &mut ***self.state.as_mut()?;
        state.downcast_mut()
    }
}

/// The rows of one call of a processor.
#[non_exhaustive]
pub struct ProcessContext<'a> {
    /// One entry per row of scores, in the same order.
    pub rows: Vec<RowContext<'a>>,
}

impl<'a> ProcessContext<'a> {
    /// The context of these rows, to call a processor by hand.
    pub fn new(rows: Vec<RowContext<'a>>) -> Self {
        Self { rows }
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
        let mut state: Box<dyn ProcessorState> = Box::new(Counter(1));
        let mut row = RowContext { state: Some(&mut state), ..RowContext::of_prompt(&[]) };
        row.state::<Counter>().unwrap().0 += 1;
        assert_eq!(row.state::<Counter>().unwrap().0, 2);
        assert!(row.state::<Other>().is_none());
    }
}
