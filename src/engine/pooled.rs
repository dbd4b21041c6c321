//! Embeddings of texts: the hidden states of one layer, pooled over the tokens of each text.

use std::ops::Range;

use super::core::Engine;
use super::evaluate::{Evaluated, EvaluatedText, TextOutputs};
use super::queue::Interrupt;
use rsgen_core::{Error, LayerSet, Result, RowOutputs, message};

/// What of a text's hidden states becomes its embedding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pooling {
    /// The mean over its tokens.
    Mean,
    /// That of its last token, which in a decoder has seen all others.
    Last,
    /// That of its first token, which encoders train as the summary of the text.
    Cls,
}

impl Pooling {
    /// The tokens that count, of `len`.
    fn tokens(self, len: usize) -> Range<usize> {
        match self {
            Self::Mean => 0..len,
            Self::Last => len - 1..len,
            Self::Cls => 0..1,
        }
    }
}

/// The sum of the hidden states of a text so far.
#[derive(Default)]
struct Pooled {
    sum: Vec<f64>,
    count: usize,
}

impl Pooled {
    fn add<'a>(&mut self, states: impl Iterator<Item = &'a [f32]>) {
        for state in states {
            self.sum.resize(state.len(), 0.0);
            self.sum.iter_mut().zip(state).for_each(|(sum, &number)| *sum += f64::from(number));
            self.count += 1;
        }
    }

    fn mean(self) -> Vec<f32> {
        let count = self.count as f64;
        self.sum.into_iter().map(|sum| (sum / count) as f32).collect()
    }
}

impl Engine {
    /// The hidden states before layer `layer`, or after the last one and the norm, pooled to one vector for each text,
    /// `[hidden_size]`: those of the encoder where there is one, which reads the source of a text.
    ///
    /// `done` receives the vector of each text in order, with its index, or the error of a text that cannot be computed.
    /// An error that `done` returns stops the work.
    ///
    /// # Errors
    /// The error of `done`; `Cancelled` when interrupted; `Fork`. The error of a text is `Input` when it is empty or not
    /// in the vocabulary, `Capacity` when the cache can never hold it, `Numerical` when a state is NaN or infinity.
    pub fn pool_texts(
        &self,
        texts: impl Iterator<Item = Result<EvaluatedText>>,
        pooling: Pooling,
        layer: usize,
        interrupted: &mut Interrupt<'_>,
        done: &mut dyn FnMut(usize, Result<Vec<f32>>) -> Result<()>,
    ) -> Result<()> {
        let outputs = RowOutputs { hidden_states: LayerSet::single(layer), ..RowOutputs::NONE };
        let (outputs, source_outputs) = match self.model().encoder() {
            None => (outputs, RowOutputs::NONE),
            Some(_) => (RowOutputs::NONE, outputs),
        };
        let size = self.model().hidden_len(LayerSet::single(layer));
        let is_shared = self.prefix_caching && !self.model().keys_depend_on_length();
        let texts = texts.map(|text| {
            let text = text?;
            let len = text.token_ids.len();
            if len == 0 {
                return Err(Error::input("a text must have at least one token, got none"));
            }
            let wanted = pooling.tokens(len);
            self.check_text(&text, wanted.end)?;
            let is_shared = is_shared && wanted.start > 0;
            Ok(Evaluated { text, wanted, is_shared, follows: None, source_outputs })
        });
        let take = |pooled: &mut Pooled, outputs: TextOutputs<'_>| {
            match &outputs.source {
                None => pooled.add(outputs.rows.hidden_states.chunks_exact(size)),
                Some(source) => {
                    let tokens = pooling.tokens(source.slots.len());
                    let states = source.hidden_states.chunks_exact(source.shape.hidden_size);
                    pooled.add(states.take(tokens.end).skip(tokens.start));
                }
            }
            Ok(())
        };
        let mut done = |index, pooled: Result<Pooled>| done(index, pooled.and_then(finite));
        self.evaluate(texts, outputs, interrupted, take, &mut done)
    }
}

/// The mean, unless a number of it is NaN or infinity.
fn finite(pooled: Pooled) -> Result<Vec<f32>> {
    let mean = pooled.mean();
    match mean.iter().find(|number| !number.is_finite()) {
        None => Ok(mean),
        Some(found) => Err(Error::numerical(message!(
            "the hidden states of a text hold NaN or infinity (found {found}); the model's weights may be damaged, or "
            {compute_dtype} " too narrow for them"
        ))),
    }
}
