//! Catalogues of texts: what a text is where it follows a prompt.

use super::Generator;
use crate::engine::Interrupt;
use rsgen_core::{Result, ResultExt as _, TokenId};
use rsgen_generation::{TokenTrie, TokenTrieBuilder};
use rsgen_text::Tokenizer;

/// Encodes texts that follow a prompt: without special tokens, and in models with an encoder as targets.
///
/// Some tokenizers put a space before the first word of a text. With these a space at the beginning of a text is
/// theirs, so that it is there once.
#[derive(Debug)]
pub struct Continuations<'t> {
    tokenizer: &'t Tokenizer,
    puts_space: bool,
}

impl<'t> Continuations<'t> {
    /// Those of a tokenizer.
    ///
    /// # Errors
    /// `Input` when the tokenizer is faulty.
    pub fn new(tokenizer: &'t Tokenizer) -> Result<Self> {
        let ids = tokenizer.encode_target("a", false)?;
        let first = ids.first().and_then(|&id| tokenizer.token_bytes(id));
        Ok(Self { tokenizer, puts_space: first.is_some_and(|bytes| bytes.starts_with(b" ")) })
    }

    /// The tokens of a text.
    ///
    /// # Errors
    /// As for [`Tokenizer::encode_interruptible`].
    pub fn encode(&self, text: &str, interrupted: &mut Interrupt<'_>) -> Result<Vec<TokenId>> {
        let text = if self.puts_space { text.strip_prefix(' ').unwrap_or(text) } else { text };
        self.tokenizer.encode_target_interruptible(text, false, interrupted)
    }
}

impl Generator {
    /// A catalogue of texts for [`Call::allowed_sequences`](super::Call::allowed_sequences): each is encoded as
    /// what follows a prompt.
    ///
    /// ```
    /// # #[cfg(feature = "bundled")] {
    /// use std::sync::Arc;
    /// use rsgen::{GenerationConfig, Generator};
    ///
    /// let generator = Generator::bundled()?;
    /// let animals = Arc::new(generator.token_trie([" fox", " little bird", " horse"])?);
    /// let config = GenerationConfig::new().num_beams(3).num_return_sequences(3).max_new_tokens(8);
    /// let call = generator.call("Once upon a time there was a").config(&config);
    /// let output = call.allowed_sequences(animals).run()?;
    /// let entries: Vec<_> = output.entries.iter().flatten().flatten().map(|entry| entry.index).collect();
    /// assert_eq!(entries.len(), 3);
    /// # }
    /// # Ok::<(), rsgen::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Input` without a tokenizer, for a text without tokens, and for two with the same.
    pub fn token_trie<'a>(&self, texts: impl IntoIterator<Item = &'a str>) -> Result<TokenTrie> {
        let (continuations, mut builder) =
            (Continuations::new(self.tokenizer()?)?, TokenTrieBuilder::default());
        for (index, text) in texts.into_iter().enumerate() {
            let ids = continuations.encode(text, &mut || false).context(|| format!("entry {index}"))?;
            builder.add(&ids, None)?;
        }
        builder.build(&mut || false)
    }
}
