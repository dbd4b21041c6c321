//! What the layers computed in a step of a sequence: hidden states and attention weights, as `output_hidden_states` and
//! `output_attentions` keep them.

use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::exact;
use super::search::SearchResults;
use rsgen_core::error::{Error, Result};
use rsgen_core::memory;
use rsgen_core::types::LayerShape;

/// The states of consecutive tokens of a sequence: of the prompt in the first step, of the newest token in the others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LayerStates {
    /// The sizes.
    pub shape: Arc<LayerShape>,
    /// The position of the first token, padding left out.
    pub first_position: usize,
    /// The number of tokens.
    pub num_tokens: usize,
    /// In the first step which ids or embeddings of the prompt are real; empty in the others.
    pub prompt_mask: Vec<bool>,
    /// `[num_tokens, num_layers + 1, hidden_size]`: before each layer, and after the last one and the norm. Empty without
    /// `output_hidden_states`.
    #[serde(with = "exact")]
    pub hidden_states: Vec<f32>,
    /// Of each token `[num_layers, num_heads, its position + 1]`. Empty without `output_attentions`.
    #[serde(with = "exact")]
    pub attentions: Vec<f32>,
}

impl LayerStates {
    /// Of a whole text, without numbers yet.
    pub fn of_text(shape: LayerShape, num_tokens: usize) -> Self {
        Self {
            shape: Arc::new(shape),
            first_position: 0,
            num_tokens,
            prompt_mask: vec![true; num_tokens],
            hidden_states: Vec::new(),
            attentions: Vec::new(),
        }
    }

    /// The state of a token before a layer, or after the last one and the norm, `[hidden_size]`; `None` without it.
    pub fn hidden_state(&self, token: usize, layer: usize) -> Option<&[f32]> {
        let (size, layers) = (self.shape.hidden_size, self.shape.num_layers() + 1);
        let start = (token * layers + layer) * size;
        (layer < layers).then(|| self.hidden_states.get(start..start + size)).flatten()
    }

    /// The attention weights of a token over its context, itself included, `[position + 1]`; `None` without them.
    pub fn attention(&self, token: usize, layer: usize, head: usize) -> Option<&[f32]> {
        let context = self.first_position + token + 1;
        let start = self.attention_start(token) + (layer * self.shape.num_heads + head) * context;
        let exists = layer < self.shape.num_layers() && head < self.shape.num_heads;
        exists.then(|| self.attentions.get(start..start + context)).flatten()
    }

    /// Where the weights of a token begin.
    fn attention_start(&self, token: usize) -> usize {
        // The contexts before are an arithmetic series.
        let contexts = token * self.first_position + token * (token + 1) / 2;
        self.shape.num_layers() * self.shape.num_heads * contexts
    }

    /// Those of some of the tokens.
    ///
    /// # Errors
    /// `Capacity` when there is no memory for them.
    pub(super) fn part(&self, tokens: Range<usize>) -> Result<Self> {
        let hidden = self.shape.hidden_len();
        let (hidden, weights) = (
            if self.hidden_states.is_empty() { 0..0 } else { tokens.start * hidden..tokens.end * hidden },
            if self.attentions.is_empty() {
                0..0
            } else {
                self.attention_start(tokens.start)..self.attention_start(tokens.end)
            },
        );
        Ok(Self {
            shape: Arc::clone(&self.shape),
            first_position: self.first_position + tokens.start,
            num_tokens: tokens.len(),
            prompt_mask: Vec::new(),
            hidden_states: memory::copied(&self.hidden_states[hidden], "hidden states")?,
            attentions: memory::copied(&self.attentions[weights], "attention weights")?,
        })
    }

    /// Appends the states of the tokens that follow.
    ///
    /// # Errors
    /// `Capacity` when there is no memory for them.
    pub(super) fn append(&mut self, next: &Self) -> Result<()> {
        self.num_tokens += next.num_tokens;
        memory::extend(&mut self.hidden_states, &next.hidden_states, "hidden states")?;
        memory::extend(&mut self.attentions, &next.attentions, "attention weights")
    }
}

/// Reads the states of a step, sequence by sequence.
pub(super) struct StatesReader<'a> {
    shape: Option<&'a Arc<LayerShape>>,
    hidden_states: &'a [f32],
    attentions: &'a [f32],
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
            has_hidden_states,
            has_attentions,
        }
    }

    /// The states of the next rows: consecutive tokens of a sequence from a position on.
    ///
    /// # Errors
    /// `Internal` when there are fewer; `Capacity` when there is no memory for a copy.
    pub(super) fn next(&mut self, positions: Range<usize>) -> Result<LayerStates> {
        let fewer = || Error::internal("a search was given fewer states of layers than it asked for");
        let shape = self.shape.ok_or_else(fewer)?;
        let hidden = if self.has_hidden_states { positions.len() * shape.hidden_len() } else { 0 };
        let weights = positions.clone().map(|position| shape.attention_len(position)).sum::<usize>();
        let weights = if self.has_attentions { weights } else { 0 };
        let (hidden_states, rest) = self.hidden_states.split_at_checked(hidden).ok_or_else(fewer)?;
        self.hidden_states = rest;
        let (attentions, rest) = self.attentions.split_at_checked(weights).ok_or_else(fewer)?;
        self.attentions = rest;
        Ok(LayerStates {
            shape: Arc::clone(shape),
            first_position: positions.start,
            num_tokens: positions.len(),
            prompt_mask: Vec::new(),
            hidden_states: memory::copied(hidden_states, "hidden states")?,
            attentions: memory::copied(attentions, "attention weights")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two layers of three heads; every number tells its place.
    fn results<'a>(shape: &'a Arc<LayerShape>, hidden: &'a [f32], weights: &'a [f32]) -> SearchResults<'a> {
        SearchResults::of_logits(&mut [], 4).with_hidden_states(hidden, 5).with_states(weights, Some(shape))
    }

    #[test]
    fn states_are_found_by_token_layer_and_head() {
        let shape = Arc::new(LayerShape::new(5, 3, vec![None, Some(2)]));
        let numbers: Vec<f32> = (0..200).map(|number| number as f32).collect();
        // Tokens at the positions 2, 3 and 4 have contexts of 3, 4 and 5.
        let (hidden, weights) = (&numbers[..3 * 15 + 15], &numbers[..6 * (3 + 4 + 5) + 6]);
        let results = results(&shape, hidden, weights);
        let mut reader = StatesReader::new(&results, true, true);
        let states = reader.next(2..5).unwrap();
        assert_eq!(states.hidden_state(1, 2).unwrap(), [25.0, 26.0, 27.0, 28.0, 29.0]);
        assert_eq!(states.hidden_state(1, 3), None);
        assert_eq!(states.attention(0, 0, 2).unwrap(), [6.0, 7.0, 8.0]);
        assert_eq!(states.attention(1, 1, 0).unwrap(), [30.0, 31.0, 32.0, 33.0]);
        assert_eq!((states.attention(1, 2, 0), states.attention(1, 0, 3)), (None, None));
        let next = reader.next(0..1).unwrap();
        assert_eq!(next.attention(0, 0, 0).unwrap(), [72.0]);
        assert!(reader.next(0..1).is_err());

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
        let states = StatesReader::new(&results, true, false).next(0..2).unwrap();
        assert_eq!((states.hidden_states.len(), states.attention(0, 0, 0)), (30, None));
        let results = SearchResults::of_logits(&mut [], 4);
        assert!(StatesReader::new(&results, true, false).next(0..1).is_err());
    }
}
