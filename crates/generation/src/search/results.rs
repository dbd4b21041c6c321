//! The results of a step: the outputs of the rows that the search requested.

use std::sync::Arc;

use super::super::step_cost::StepCost;
use rsgen_core::LayerShape;

/// The outputs of a step's rows, all of one model, in the order of the requests.
#[derive(Debug, Default)]
pub struct SearchResults<'a> {
    /// Logits of the rows that requested them, `[rows, vocab_size]`; may be changed in place.
    pub logits: &'a mut [f32],
    /// The number of logits of a row.
    pub vocab_size: usize,
    /// Hidden states of the rows that requested them, the layers of each row in ascending order.
    pub hidden_states: &'a [f32],
    /// The length of a hidden state before a layer, and of one after the last.
    pub hidden_sizes: [usize; 2],
    /// Logits of intermediate layers, ordered like hidden states, `[states, vocab_size]`; may be changed in
    /// place.
    pub layer_logits: &'a mut [f32],
    /// Attention weights of the rows that requested them, of each `[num_layers, num_heads, position + 1]`.
    pub attentions: &'a [f32],
    /// Their weights over the source, of each `[num_layers, num_heads, tokens of the source]`.
    pub cross_attentions: &'a [f32],
    /// The sizes of hidden states and attention weights, where a plan keeps them.
    pub layers: Option<&'a Arc<LayerShape>>,
    /// What the step cost.
    pub cost: StepCost,
}

impl<'a> SearchResults<'a> {
    /// Logits, `[rows, vocab_size]`, and nothing else.
    pub fn of_logits(logits: &'a mut [f32], vocab_size: usize) -> Self {
        Self { logits, vocab_size, ..Self::default() }
    }

    /// Adds hidden states of so many values each, before a layer and after the last.
    #[must_use]
    pub fn with_hidden_states(mut self, hidden_states: &'a [f32], hidden_sizes: [usize; 2]) -> Self {
        self.hidden_states = hidden_states;
        self.hidden_sizes = hidden_sizes;
        self
    }

    /// Adds logits of intermediate layers.
    #[must_use]
    pub fn with_layer_logits(mut self, layer_logits: &'a mut [f32]) -> Self {
        self.layer_logits = layer_logits;
        self
    }

    /// Adds attention weights, those over the text and over the source, and the sizes of what the layers deliver.
    #[must_use]
    pub fn with_states(
        mut self,
        [attentions, cross_attentions]: [&'a [f32]; 2],
        layers: Option<&'a Arc<LayerShape>>,
    ) -> Self {
        (self.attentions, self.cross_attentions) = (attentions, cross_attentions);
        self.layers = layers;
        self
    }

    /// Adds what the step cost.
    #[must_use]
    pub fn with_cost(mut self, cost: StepCost) -> Self {
        self.cost = cost;
        self
    }
}
