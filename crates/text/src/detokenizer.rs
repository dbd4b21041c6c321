//! Text from tokens as they come, in whole characters.
//!
//! The joined pieces equal the decoded text. The cost of a piece does not depend on the length of the text.
//! Text that a later token could still change (half a character, a run of byte tokens) waits for that token.
//! Stop strings are not matched here.

use std::sync::Arc;

use super::decoder::DecoderState;
use super::tokenizer::Tokenizer;
use rsgen_core::types::TokenId;

/// A text in progress. Cloning forks it.
///
/// The text of a continuation is the text of prompt and continuation together, without the beginning that it
/// shares with the text of the prompt alone. So it keeps the space before its first word, also with
/// tokenizers that drop a space at the beginning of a text, and a character that the prompt left unfinished
/// belongs to it.
#[derive(Debug, Clone)]
pub struct Detokenizer {
    tokenizer: Tokenizer,
    state: DecoderState,
    skip_special_tokens: bool,
    /// Special tokens that are part of the text all the same.
    kept: Arc<[TokenId]>,
    /// The part of the coming text that was already returned.
    given: String,
}

impl Detokenizer {
    /// Begins after `prompt`, which may be empty.
    pub fn new(tokenizer: &Tokenizer, prompt: &[TokenId], skip_special_tokens: bool) -> Self {
        let mut state = tokenizer.start_decoding();
        let mut text = String::new();
        for &id in prompt {
            tokenizer.decode_next(&mut state, id, skip_special_tokens, &mut text);
            text.clear();
        }
        let mut this = Self {
            tokenizer: tokenizer.clone(),
            state,
            skip_special_tokens,
            kept: [].into(),
            given: String::new(),
        };
        this.given = this.held();
        this
    }

    /// With these special tokens in the text, such as the marks of tool calls.
    #[must_use]
    pub fn keeping(self, kept: &Arc<[TokenId]>) -> Self {
        Self { kept: Arc::clone(kept), ..self }
    }

    /// Takes the next token and returns the text that is now certain, usually the token's own.
    pub fn push(&mut self, id: TokenId) -> String {
        let mut text = String::new();
        let skips = self.skip_special_tokens && !self.kept.contains(&id);
        self.tokenizer.decode_next(&mut self.state, id, skips, &mut text);
        self.without_given(text)
    }

    /// Returns the rest, as if the text ended here; half a character becomes U+FFFD.
    ///
    /// More tokens may still follow; returned text is not repeated, unless they change it.
    pub fn flush(&mut self) -> String {
        let held = self.held();
        let rest = self.without_given(held.clone());
        self.given = held;
        rest
    }

    /// The text that the stages buffer.
    fn held(&self) -> String {
        let mut text = String::new();
        self.tokenizer.finish_decoding(self.state.clone(), &mut text);
        text
    }

    fn without_given(&mut self, mut text: String) -> String {
        let mut pairs = text.char_indices().zip(self.given.chars());
        let differs = pairs.find(|((_, new), given)| new != given);
        let shared = differs.map_or(text.len().min(self.given.len()), |((at, _), _)| at);
        if differs.is_some() {
            self.given.clear();
        } else {
            self.given.drain(..shared);
        }
        text.split_off(shared)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tokenizer::tests::{bundled, llama, stories260k};
    use super::*;
    use proptest::prelude::*;
    use std::sync::LazyLock;

    fn ids(tokenizer: &Tokenizer, numbers: &[u32]) -> Vec<TokenId> {
        // A few ids beyond the vocabulary, as models with padded embeddings produce.
        numbers.iter().map(|number| TokenId(number % (tokenizer.len() as u32 + 3))).collect()
    }

    fn joined(detokenizer: &mut Detokenizer, ids: &[TokenId]) -> String {
        let mut text: String = ids.iter().map(|&id| detokenizer.push(id)).collect();
        text.push_str(&detokenizer.flush());
        text
    }

    static TOKENIZERS: LazyLock<Vec<Tokenizer>> = LazyLock::new(|| {
        [Some(bundled()), Some(llama(false)), stories260k()].into_iter().flatten().collect()
    });

    proptest! {
        #[test]
        fn joined_pieces_equal_the_decoded_text(
            numbers in proptest::collection::vec(any::<u32>(), 0..40),
            skip_special_tokens in any::<bool>(),
        ) {
            for tokenizer in &*TOKENIZERS {
                let ids = ids(tokenizer, &numbers);
                let mut detokenizer = Detokenizer::new(tokenizer, &[], skip_special_tokens);
                prop_assert_eq!(joined(&mut detokenizer, &ids), tokenizer.decode(&ids, skip_special_tokens).unwrap());
            }
        }

        #[test]
        fn a_continuation_has_what_the_prompt_alone_does_not_have(
            numbers in proptest::collection::vec(any::<u32>(), 0..24),
            cut in any::<prop::sample::Index>(),
        ) {
            for tokenizer in &*TOKENIZERS {
                let ids = ids(tokenizer, &numbers);
                let (prompt, continuation) = ids.split_at(cut.index(ids.len() + 1));
                let mut detokenizer = Detokenizer::new(tokenizer, prompt, true);
                let (before, whole) = (tokenizer.decode(prompt, true).unwrap(), tokenizer.decode(&ids, true).unwrap());
                let shared: usize = before
                    .chars()
                    .zip(whole.chars())
                    .take_while(|(left, right)| left == right)
                    .map(|(char, _)| char.len_utf8())
                    .sum();
                prop_assert_eq!(joined(&mut detokenizer, continuation), &whole[shared..]);
            }
        }
    }

    #[test]
    fn the_space_before_the_first_new_word_is_kept() {
        let tokenizer = llama(false);
        let [the, cat] = ["▁the", "▁cat"].map(|token| tokenizer.id(token).unwrap());
        assert_eq!(joined(&mut Detokenizer::new(&tokenizer, &[the], true), &[cat]), " cat");
        assert_eq!(joined(&mut Detokenizer::new(&tokenizer, &[], true), &[cat]), "cat");
    }

    #[test]
    fn a_character_comes_with_its_last_byte() {
        let tokenizer = bundled();
        let bytes = tokenizer.encode("日", false).unwrap();
        assert_eq!(bytes.len(), 3);
        let mut detokenizer = Detokenizer::new(&tokenizer, &[], true);
        let pieces: Vec<String> = bytes.iter().map(|&id| detokenizer.push(id)).collect();
        assert_eq!(pieces, ["", "", "日"]);
        assert_eq!(detokenizer.flush(), "");
    }

    #[test]
    fn a_character_that_the_prompt_began_belongs_to_the_continuation() {
        let tokenizer = bundled();
        let bytes = tokenizer.encode("日", false).unwrap();
        assert_eq!(joined(&mut Detokenizer::new(&tokenizer, &bytes[..2], true), &bytes[2..]), "日");
    }

    #[test]
    fn a_complete_character_of_byte_tokens_at_the_end_of_a_prompt_is_not_repeated() {
        let tokenizer = llama(false);
        let prompt = tokenizer.encode("é", false).unwrap();
        let cat = tokenizer.id("▁cat").unwrap();
        assert_eq!(joined(&mut Detokenizer::new(&tokenizer, &prompt, true), &[cat]), " cat");
    }

    #[test]
    fn half_a_character_at_the_end_is_given_once() {
        let tokenizer = bundled();
        let bytes = tokenizer.encode("日", false).unwrap();
        let mut detokenizer = Detokenizer::new(&tokenizer, &[], true);
        assert_eq!(detokenizer.push(bytes[0]), "");
        assert_eq!((detokenizer.flush(), detokenizer.flush()), ("\u{fffd}".to_owned(), String::new()));
    }

    #[test]
    fn a_fork_goes_its_own_way() {
        let tokenizer = bundled();
        let bytes = tokenizer.encode("日é", false).unwrap();
        let mut one = Detokenizer::new(&tokenizer, &bytes[..2], true);
        let mut other = one.clone();
        assert_eq!(one.push(bytes[2]), "日");
        assert_eq!(other.push(bytes[3]), "");
        assert_eq!(other.push(bytes[4]), "é", "the text of the prompt's half character was given before");
    }
}
