//! Reads what the layers computed in a step from its results.

use std::ops::Range;
use std::sync::Arc;

use super::super::layer_states::LayerStates;
use super::SearchResults;
use rsgen_core::{Error, LayerShape, Result, memory};

/// Reads the states of a step, sequence by sequence.
pub(super) struct StatesReader<'a> {
    shape: Option<&'a Arc<LayerShape>>,
    hidden_states: &'a [f32],
    attentions: &'a [f32],
    cross_attentions: &'a [f32],
    has_hidden_states: bool,
    has_attentions: bool,
}

impl<'a> StatesReader<'a> {
    /// The states in the results of a step, of those that a plan keeps.
    pub(super) fn new(results: &SearchResults<'a>, has_hidden_states: bool, has_attentions: bool) -> Self {
        Self {
            shape: results.layers,
            hidden_states: results.hidden_states,
            attentions: results.attentions,
            cross_attentions: results.cross_attentions,
            has_hidden_states,
            has_attentions,
        }
    }

    /// The states of the next rows: consecutive tokens of a sequence from a position on, which sees a source of
    /// `source_len` tokens.
    ///
    /// # Errors
    /// `Internal` when there are fewer; `Capacity` when there is no memory for a copy.
    pub(super) fn next(&mut self, positions: Range<usize>, source_len: usize) -> Result<LayerStates> {
        let fewer = || Error::internal("a search was given fewer states of layers than it asked for");
        let shape = self.shape.ok_or_else(fewer)?;
        let hidden = if self.has_hidden_states { positions.len() * shape.hidden_len() } else { 0 };
        let weights = positions.clone().map(|position| shape.attention_len(position)).sum::<usize>();
        let weights = if self.has_attentions { weights } else { 0 };
        let cross = positions.len() * source_len * shape.attention_len(0);
        let cross = if self.has_attentions { cross } else { 0 };
        let (hidden_states, rest) = self.hidden_states.split_at_checked(hidden).ok_or_else(fewer)?;
        self.hidden_states = rest;
        let (attentions, rest) = self.attentions.split_at_checked(weights).ok_or_else(fewer)?;
        self.attentions = rest;
        let (cross_attentions, rest) = self.cross_attentions.split_at_checked(cross).ok_or_else(fewer)?;
        self.cross_attentions = rest;
        Ok(LayerStates {
            shape: Arc::clone(shape),
            first_position: positions.start,
            num_tokens: positions.len(),
            prompt_mask: Vec::new(),
            hidden_states: memory::copied(hidden_states, "hidden states")?,
            attentions: memory::copied(attentions, "attention weights")?,
            source_len,
            cross_attentions: memory::copied(cross_attentions, "attention weights")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two layers of three heads; every number tells its place.
    fn results<'a>(shape: &'a Arc<LayerShape>, hidden: &'a [f32], weights: &'a [f32]) -> SearchResults<'a> {
        SearchResults::of_logits(&mut [], 4)
            .with_hidden_states(hidden, [5, 5])
            .with_states([weights, &hidden[..hidden.len().min(48)]], Some(shape))
    }

    #[test]
    fn states_are_found_by_token_layer_and_head() {
        let shape = Arc::new(LayerShape::new(5, 3, vec![None, Some(2)]));
        let numbers: Vec<f32> = (0..200).map(|number| number as f32).collect();
        // Tokens at the positions 2, 3 and 4 have contexts of 3, 4 and 5.
        let (hidden, weights) = (&numbers[..3 * 15 + 15], &numbers[..6 * (3 + 4 + 5) + 6]);
        let results = results(&shape, hidden, weights);
        let mut reader = StatesReader::new(&results, true, true);
        let states = reader.next(2..5, 2).unwrap();
        assert_eq!(states.hidden_state(1, 2).unwrap(), [25.0, 26.0, 27.0, 28.0, 29.0]);
        assert_eq!(states.hidden_state(1, 3), None);
        assert_eq!(states.attention(0, 0, 2).unwrap(), [6.0, 7.0, 8.0]);
        assert_eq!(states.attention(1, 1, 0).unwrap(), [30.0, 31.0, 32.0, 33.0]);
        assert_eq!((states.attention(1, 2, 0), states.attention(1, 0, 3)), (None, None));
        assert_eq!(states.cross_attention(1, 1, 2).unwrap(), [22.0, 23.0]);
        assert_eq!((states.cross_attention(3, 0, 0), states.cross_attention(0, 2, 0)), (None, None));
        let next = reader.next(0..1, 1).unwrap();
        assert_eq!(next.attention(0, 0, 0).unwrap(), [72.0]);
        assert_eq!(next.cross_attention(0, 0, 1).unwrap(), [37.0]);
        assert!(reader.next(0..1, 0).is_err());

        let mut joined = states.part(0..1).unwrap();
        joined.append(&states.part(1..3).unwrap()).unwrap();
        assert_eq!(joined, states);
        let last = states.part(2..3).unwrap();
        assert_eq!((last.first_position, last.attention(0, 1, 2)), (4, states.attention(2, 1, 2)));
    }

    #[test]
    fn what_a_plan_does_not_keep_is_empty() {
        let shape = Arc::new(LayerShape::new(5, 3, vec![None, None]));
        let numbers = vec![0.0; 100];
        let results = results(&shape, &numbers, &[]);
        let states = StatesReader::new(&results, true, false).next(0..2, 3).unwrap();
        assert_eq!((states.hidden_states.len(), states.attention(0, 0, 0)), (30, None));
        assert_eq!(states.cross_attention(0, 0, 0), None);
        let results = SearchResults::of_logits(&mut [], 4);
        assert!(StatesReader::new(&results, true, false).next(0..1, 0).is_err());
    }
}
