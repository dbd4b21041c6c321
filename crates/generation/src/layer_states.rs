//! What the layers computed in a step of a sequence: hidden states and attention weights, as
//! `output_hidden_states` and `output_attentions` keep them.

use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::exact;
use super::source::Source;
use rsgen_core::{LayerShape, Result, memory};

/// The states of consecutive tokens of a sequence: of the prompt in the first step, of the newest token in
/// the others.
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
    /// Of each token `[num_layers, hidden_size]`, before each layer, and `[last_size]`, after the last one and
    /// the norm. Empty without `output_hidden_states`.
    #[serde(with = "exact")]
    pub hidden_states: Vec<f32>,
    /// Of each token `[num_layers, num_heads, its position + 1]`. Empty without `output_attentions`.
    #[serde(with = "exact")]
    pub attentions: Vec<f32>,
    /// The real tokens of the source; 0 without an encoder.
    #[serde(default)]
    pub source_len: usize,
    /// The weights over the source, `[num_tokens, num_layers, num_heads, source_len]`. Empty without
    /// `output_attentions`.
    #[serde(default, with = "exact")]
    pub cross_attentions: Vec<f32>,
}

/// What the layers of an encoder computed for a source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SourceStates {
    /// The sizes.
    pub shape: Arc<LayerShape>,
    /// The places of its tokens in the padded row, ascending.
    pub slots: Vec<usize>,
    /// The length of that row.
    pub width: usize,
    /// As of [`LayerStates`]. Empty without `output_hidden_states`.
    #[serde(with = "exact")]
    pub hidden_states: Vec<f32>,
    /// `[tokens, num_layers, num_heads, tokens]`. Empty without `output_attentions`.
    #[serde(with = "exact")]
    pub attentions: Vec<f32>,
}

impl SourceStates {
    /// Of a source, without numbers yet.
    pub fn of_source(source: &Source, shape: Arc<LayerShape>) -> Self {
        let slots: Vec<usize> = (0..source.len()).map(|index| source.slot(index)).collect();
        // Of embeddings alone nothing tells how far a row was padded behind its last one.
        let width = source.input_ids().len().max(slots.last().map_or(0, |last| last + 1));
        Self { shape, slots, width, hidden_states: Vec::new(), attentions: Vec::new() }
    }

    /// The state of a token before a layer, or after the last one and the norm; `None` without it.
    pub fn hidden_state(&self, token: usize, layer: usize) -> Option<&[f32]> {
        state(&self.hidden_states, &self.shape, token, layer)
    }

    /// The attention weights of a token over the source, `[tokens]`; `None` without them.
    pub fn attention(&self, token: usize, layer: usize, head: usize) -> Option<&[f32]> {
        weights(&self.attentions, &self.shape, self.slots.len(), [token, layer, head])
    }
}

/// The state of a token before a layer, or after the last one.
fn state<'a>(all: &'a [f32], shape: &LayerShape, token: usize, layer: usize) -> Option<&'a [f32]> {
    let start = token * shape.hidden_len() + layer * shape.hidden_size;
    (layer <= shape.num_layers()).then(|| all.get(start..start + shape.size_of(layer))).flatten()
}

/// The weights of a token, a layer and a head over a source of `len` tokens.
fn weights<'a>(
    all: &'a [f32],
    shape: &LayerShape,
    len: usize,
    [token, layer, head]: [usize; 3],
) -> Option<&'a [f32]> {
    let (layers, heads) = (shape.num_layers(), shape.num_heads);
    let start = ((token * layers + layer) * heads + head) * len;
    (layer < layers && head < heads).then(|| all.get(start..start + len)).flatten()
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
            source_len: 0,
            cross_attentions: Vec::new(),
        }
    }

    /// The state of a token before a layer, or after the last one and the norm; `None` without it.
    pub fn hidden_state(&self, token: usize, layer: usize) -> Option<&[f32]> {
        state(&self.hidden_states, &self.shape, token, layer)
    }

    /// The weights of a token over the source, `[source_len]`; `None` without them.
    pub fn cross_attention(&self, token: usize, layer: usize, head: usize) -> Option<&[f32]> {
        weights(&self.cross_attentions, &self.shape, self.source_len, [token, layer, head])
            .filter(|weights| !weights.is_empty())
    }

    /// The attention weights of a token over its context, itself included, `[position + 1]`; `None` without
    /// them.
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
        let source = self.source_len * self.shape.num_layers() * self.shape.num_heads;
        let (hidden, weights, cross) = (
            if self.hidden_states.is_empty() { 0..0 } else { tokens.start * hidden..tokens.end * hidden },
            if self.attentions.is_empty() {
                0..0
            } else {
                self.attention_start(tokens.start)..self.attention_start(tokens.end)
            },
            if self.cross_attentions.is_empty() { 0..0 } else { tokens.start * source..tokens.end * source },
        );
        Ok(Self {
            shape: Arc::clone(&self.shape),
            first_position: self.first_position + tokens.start,
            num_tokens: tokens.len(),
            prompt_mask: Vec::new(),
            hidden_states: memory::copied(&self.hidden_states[hidden], "hidden states")?,
            attentions: memory::copied(&self.attentions[weights], "attention weights")?,
            source_len: self.source_len,
            cross_attentions: memory::copied(&self.cross_attentions[cross], "attention weights")?,
        })
    }

    /// Appends the states of the tokens that follow.
    ///
    /// # Errors
    /// `Capacity` when there is no memory for them.
    pub(super) fn append(&mut self, next: &Self) -> Result<()> {
        self.num_tokens += next.num_tokens;
        memory::extend(&mut self.hidden_states, &next.hidden_states, "hidden states")?;
        memory::extend(&mut self.cross_attentions, &next.cross_attentions, "attention weights")?;
        memory::extend(&mut self.attentions, &next.attentions, "attention weights")
    }
}
