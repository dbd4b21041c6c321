//! The embeddings of tokens, to make prompts of: `inputs_embeds`.

use super::Generator;
use crate::engine::Engine;
use rsgen_core::{Result, TokenId, memory};

impl Generator {
    /// The embeddings of these tokens as the first layer of the model, or of its encoder, takes them, without positions,
    /// `[token_ids.len(), hidden_size]`, to make prompts of. See [`Embeddings`](rsgen_generation::Embeddings).
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
    /// let prompt = Embeddings::new(values, generator.config().hidden_size)?;
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
        let hidden_size = engine.model().hidden_size();
        let (len, mut values) = (token_ids.len().saturating_mul(hidden_size), Vec::new());
        memory::reserve(&mut values, len, "numbers of embeddings")?;
        values.resize(len, 0.0);
        match encoder {
            Some(encoder) => encoder.embed(engine.workers(), token_ids, &mut values),
            None => engine.model().embed(engine.workers(), token_ids, &mut values),
        }
        Ok(values)
    }
}
