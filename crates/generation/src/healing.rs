//! What token healing makes of a prompt before the model sees it: transformers' `heal_tokens`, up to the
//! token that is chosen.

use rsgen_core::{Error, Result, TokenId};

use super::config::LogitBias;
use super::vocabulary::Vocabulary;

/// What the score of a token gains that extends the last one of the prompt.
const BIAS: f64 = 10.0;
/// What the last token itself gains on top, so that it is not extended for little.
const BIAS_OF_TAIL: f64 = 1.0;

/// A prompt whose last token may be chosen again.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Healed {
    /// The tokens of the prompt, the last one as the tokenizer made it.
    pub(crate) ids: Vec<TokenId>,
    /// What is to be chosen in place of the last one; `None` when nothing extends it.
    pub(crate) choice: Option<TailChoice>,
    /// Whether it was chosen after a beginning-of-sequence token that takes the place of the padding before
    /// it.
    pub(crate) follows_bos: bool,
}

/// The choice of a last token.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TailChoice {
    /// What the choice sees: the tokens before the last one.
    pub(crate) before: Vec<TokenId>,
    /// What the scores of the last token and of those that extend it gain.
    pub(crate) bias: LogitBias,
}

/// The vocabulary with what healing asks of it.
pub(crate) struct Tokens<'a> {
    pub(crate) vocabulary: &'a dyn Vocabulary,
    /// The number of logits: tokens beyond have none.
    pub(crate) vocab_size: usize,
}

impl Tokens<'_> {
    /// Encodes the text of a prompt again, stripped of white space.
    ///
    /// As in transformers the pad token then stands for the beginning-of-sequence token, if the tokenizer has
    /// both.
    ///
    /// # Errors
    /// When the tokenizer fails.
    pub(crate) fn encode(&self, tokens: &[TokenId]) -> Result<Vec<TokenId>> {
        let text = self.vocabulary.decode(tokens, true)?;
        // Python's `strip`.
        let is_space = |c: char| c.is_whitespace() || ('\x1c'..='\x1f').contains(&c);
        let mut ids = self.vocabulary.encode(text.trim_matches(is_space), true)?;
        if ids.is_empty() {
            return Ok(tokens.to_vec());
        }
        if let (Some(bos), Some(pad)) = (self.bos(), self.pad()) {
            ids.iter_mut().filter(|id| **id == bos).for_each(|id| *id = pad);
        }
        Ok(ids)
    }

    /// Prepares the encoded text of a prompt, which stands after padding if `is_padded`.
    ///
    /// # Errors
    /// When the tokenizer fails.
    pub(crate) fn heal(&self, mut ids: Vec<TokenId>, is_padded: bool) -> Result<Healed> {
        let (bos, pad) = (self.bos(), self.pad());
        let is_text = |id: &&TokenId| Some(**id) != pad.or(bos);
        let num_text = ids.iter().filter(is_text).count();
        let Some((&tail, before)) = ids.split_last().filter(|_| num_text > 0) else {
            return Ok(Healed { ids, choice: None, follows_bos: false });
        };
        let mut before = before.to_vec();
        let Some(bias) = self.bias(tail)? else {
            return Ok(Healed { ids, choice: None, follows_bos: false });
        };
        // A single token is chosen after the beginning-of-sequence token, in the place of what is before.
        let follows_bos = before.is_empty() && is_padded && bos.is_some();
        match bos.filter(|_| num_text == 1) {
            Some(bos) if follows_bos => before.push(bos),
            Some(bos) => {
                if let ([.., own, _], Some(last)) = (&mut ids[..], before.last_mut()) {
                    (*own, *last) = (bos, bos);
                }
            }
            None => {}
        }
        let choice = (!before.is_empty()).then_some(TailChoice { before, bias });
        Ok(Healed { ids, choice, follows_bos })
    }

    /// The token that begins a text.
    pub(crate) fn bos(&self) -> Option<TokenId> {
        self.known(self.vocabulary.bos())
    }

    /// The token that pads shorter rows.
    pub(crate) fn pad(&self) -> Option<TokenId> {
        self.known(self.vocabulary.pad())
    }

    /// A token, if the model knows it.
    fn known(&self, token: Option<TokenId>) -> Option<TokenId> {
        token.filter(|token| token.index() < self.vocab_size)
    }

    /// Prepares a prompt whose tokens stay as they are, such as that of a conversation.
    ///
    /// # Errors
    /// When the tokenizer fails.
    pub(crate) fn heal_as_it_is(&self, tokens: &[TokenId]) -> Result<Healed> {
        let choice = match tokens.split_last() {
            Some((&tail, before)) if !before.is_empty() && !self.vocabulary.is_special(tail) => {
                self.bias(tail)?.map(|bias| TailChoice { before: before.to_vec(), bias })
            }
            _ => None,
        };
        Ok(Healed { ids: tokens.to_vec(), choice, follows_bos: false })
    }

    /// What the scores of `tail` and of the tokens that extend it gain; `None` when nothing does.
    fn bias(&self, tail: TokenId) -> Result<Option<LogitBias>> {
        let mut extensions = self.extensions(&self.text(tail)?);
        // Where transformers fails, the token is looked for as the vocabulary writes it.
        if extensions.len() > 1 && !extensions.contains(&tail) {
            extensions = self.vocabulary.token(tail).map_or_else(Vec::new, |token| self.extensions(token));
        }
        if extensions.len() < 2 || !extensions.contains(&tail) {
            return Ok(None);
        }
        let bias = |token| (token, if token == tail { BIAS + BIAS_OF_TAIL } else { BIAS });
        Ok(Some(LogitBias::new(extensions.into_iter().map(bias))))
    }

    /// The text of a token, in which the vocabulary's mark of a space stands for each space, if it has a
    /// token that is one.
    fn text(&self, token: TokenId) -> Result<String> {
        let text = self.vocabulary.decode(&[token], false)?;
        let mark =
            self.vocabulary.id_or_unknown(" ").and_then(|id| self.vocabulary.token(id)?.chars().next());
        Ok(mark.map_or_else(|| text.clone(), |mark| text.replace(' ', &mark.to_string())))
    }

    /// The tokens that begin with `text`, as the vocabulary writes them.
    fn extensions(&self, text: &str) -> Vec<TokenId> {
        let mut tokens = self.vocabulary.tokens_from(text);
        tokens.retain(|token| token.index() < self.vocab_size);
        tokens
    }
}

/// The error of a call without a tokenizer.
pub(crate) fn no_tokenizer() -> Error {
    Error::config(
        "must be false for a model without a tokenizer, but is true; leave it out, or add the \
                 tokenizer's file to the model's folder",
    )
    .about("token_healing")
}
