//! The embeddings of tokens, to make prompts of (`inputs_embeds`), and of texts, to compare and to search.

use std::cell::RefCell;
use std::sync::Arc;

use super::{Generator, Prompt};
use crate::engine::{Engine, EvaluatedText, Interrupt, Pooling};
use rsgen_core::{AdapterWeights, Error, LayerSet, Result, TokenId, memory, refuse_if};
use rsgen_generation::PromptRow;

impl Generator {
    /// The embeddings of these tokens as the first layer of the model, or of its encoder, takes them, without positions,
    /// `[token_ids.len(), embedding_size]`, to make prompts of. See [`Embeddings`](rsgen_generation::Embeddings).
    ///
    /// ```
    /// # #[cfg(feature = "bundled")] {
    /// use rsgen::generation::Embeddings;
    /// use rsgen::{GenerationConfig, Generator};
    ///
    /// let generator = Generator::bundled()?;
    /// let token_ids = generator.tokenizer()?.encode("Once upon a time", true)?;
    /// let mut values = generator.embed(&token_ids)?;
    /// // A prompt between two tokens.
    /// values[0] += 0.01;
    /// let prompt = Embeddings::new(values, generator.embedding_size())?;
    /// let output = generator.generate(prompt, &GenerationConfig::new().max_new_tokens(8))?;
    /// assert_eq!(output.token_ids().len(), 8);
    /// # }
    /// # Ok::<(), rsgen::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Input` for an id outside of the vocabulary; `Capacity` when there is no memory for them; `Fork`.
    pub fn embed(&self, token_ids: &[TokenId]) -> Result<Vec<f32>> {
        let engine = self.engine();
        engine.check_process()?;
        let encoder = engine.model().encoder();
        match encoder {
            Some(encoder) => Engine::check_ids_below(encoder.source_vocab_size(), token_ids)?,
            None => engine.check_token_ids(token_ids)?,
        }
        let (len, mut values) = (token_ids.len().saturating_mul(self.embedding_size()), Vec::new());
        memory::reserve(&mut values, len, "numbers of embeddings")?;
        values.resize(len, 0.0);
        match encoder {
            Some(encoder) => encoder.embed(token_ids, &mut values),
            None => engine.model().embed(token_ids, &mut values),
        }
        Ok(values)
    }

    /// The numbers of an embedding: those of a hidden state, but in models that project it to that size.
    pub fn embedding_size(&self) -> usize {
        self.engine().model().embedding_size()
    }

    /// The embeddings of texts: of each the hidden states of one layer, pooled to one vector, `[hidden_size]`. They are
    /// those of the encoder in a model that has one. Each text gets the same vector as alone.
    ///
    /// `layer` counts as transformers' `hidden_states` do: 0 is before the first layer, the number of layers and -1 are
    /// after the last one and the final norm. `normalize` divides each vector by its Euclidean length, so that a dot
    /// product of two is their cosine similarity.
    ///
    /// ```
    /// # #[cfg(feature = "bundled")] {
    /// use rsgen::generator::Pooling;
    ///
    /// let generator = rsgen::Generator::bundled()?;
    /// let texts = ["Tom had a dog.", "Tom had a cat.", "It rained all day."];
    /// let vectors = generator.embed_texts(texts, Pooling::Mean, -1, true, &mut || false)?;
    /// let similarity = |a: usize, b: usize| -> f32 {
    ///     vectors[a].iter().zip(&vectors[b]).map(|(a, b)| a * b).sum()
    /// };
    /// assert!(similarity(0, 1) > similarity(0, 2));
    /// # }
    /// # Ok::<(), rsgen::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Config` for a layer that the model does not have; `Input` for a text that is empty or longer than the context;
    /// `Numerical` when a hidden state is NaN or infinity; `Cancelled` when interrupted.
    pub fn embed_texts(
        &self,
        texts: impl IntoIterator<Item = impl Into<Prompt>>,
        pooling: Pooling,
        layer: i64,
        normalize: bool,
        interrupted: &mut Interrupt<'_>,
    ) -> Result<Vec<Vec<f32>>> {
        let mut all = self.pool_texts(texts, pooling, layer, None, interrupted)?;
        if normalize {
            for vector in &mut all {
                to_unit_length(vector);
            }
        }
        Ok(all)
    }

    /// As [`Generator::embed_texts`] without `normalize`, with a salt: cached blocks are shared only with texts and
    /// requests of the same one.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn pool_texts(
        &self,
        texts: impl IntoIterator<Item = impl Into<Prompt>>,
        pooling: Pooling,
        layer: i64,
        cache_salt: Option<&Arc<str>>,
        interrupted: &mut Interrupt<'_>,
    ) -> Result<Vec<Vec<f32>>> {
        let layer = self.pooled_layer(layer)?;
        let texts: Vec<Prompt> = texts.into_iter().map(Into::into).collect();
        let (are_many, mut all) = (texts.len() > 1, Vec::with_capacity(texts.len()));
        let mut done = |index: usize, vector: Result<Vec<f32>>| {
            let named = |error: Error| if are_many { error.of_prompt("text", index) } else { error };
            all.push(vector.map_err(named)?);
            Ok(())
        };
        // Texts are encoded between passes, and both poll.
        let interrupted = RefCell::new(interrupted);
        let mut interrupted_too = || (interrupted.borrow_mut())();
        let texts = texts.into_iter().map(|text| {
            let text = self.text_to_pool(text, &mut || (interrupted.borrow_mut())())?;
            Ok(EvaluatedText { cache_salt: cache_salt.cloned(), ..text })
        });
        self.engine().pool_texts(texts, pooling, layer, &mut interrupted_too, &mut done)?;
        Ok(all)
    }

    /// The index of a layer, which may count from the end.
    fn pooled_layer(&self, layer: i64) -> Result<usize> {
        let model = self.engine().model();
        let shape = model.encoder().map_or_else(|| model.layer_shape(), rsgen_model::Encoder::layer_shape);
        let last = shape.num_layers();
        let index = if layer < 0 { layer + last as i64 + 1 } else { layer };
        let index = usize::try_from(index).ok().filter(|&index| index <= last);
        refuse_if(index.is_none(), "layer", || {
            format!(
                "must be from {} to {last}, because the model has {last} layers, but is {layer}",
                -(last as i64) - 1
            )
        })?;
        let index = index.unwrap_or(last);
        refuse_if(index >= LayerSet::CAPACITY, "layer", || {
            format!("must be below {}, but is {index}", LayerSet::CAPACITY)
        })?;
        Ok(index)
    }

    /// The tokens of a text. Those for an encoder are the source of a decoder row that nobody reads.
    fn text_to_pool(&self, text: Prompt, interrupted: &mut Interrupt<'_>) -> Result<EvaluatedText> {
        let token_ids = self.encode_prompt(text, None, interrupted)?;
        let Some(encoder) = self.encoder() else {
            self.check_context(token_ids.len())?;
            return Ok(EvaluatedText { adapters: self.adapters.clone(), ..token_ids.into() });
        };
        let source = encoder.source("the text", &PromptRow::of_ids(token_ids), 0)?;
        Ok(EvaluatedText {
            token_ids: vec![TokenId(0)],
            source: Some(Arc::new(source)),
            kept: None,
            adapters: AdapterWeights::default(),
            cache_salt: None,
        })
    }
}

/// Divides a vector by its Euclidean length, or by 1e-12 if that is larger, as torch's `normalize` does.
pub(crate) fn to_unit_length(vector: &mut [f32]) {
    let squares: f64 = vector.iter().map(|&number| f64::from(number).powi(2)).sum();
    let length = squares.sqrt().max(1e-12);
    for number in vector {
        *number = (f64::from(*number) / length) as f32;
    }
}
