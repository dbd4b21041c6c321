//! Where a sequence stands in its grammar.

use llguidance::toktrie::SimpleVob;

use rsgen_core::error::Result;
use rsgen_core::types::TokenId;

use super::super::logits::ProcessorState;
use super::super::thinking::Place;
use super::RequestGrammar;
use super::compile::refused;
use super::matcher::{Matcher, Stop};

/// The state of a sequence in the grammar of its request.
#[derive(Clone)]
pub(super) struct GrammarState {
    grammar: RequestGrammar,
    matcher: Matcher,
    /// The tokens that the matcher has read.
    read: Vec<TokenId>,
}

/// The tokens that may follow a sequence.
pub(super) enum Allowed {
    /// Those of the mask, and where the text may end those that end a row.
    Tokens { mask: SimpleVob, may_end: bool },
    /// None but those that end a row.
    End,
    /// All, and where the grammar allows the empty text those that end a row: the model thinks.
    All { may_end: bool },
    /// These, which lead to thinking or to an answer.
    Only(Vec<TokenId>),
    /// None: the grammar does not allow what the sequence holds, or the vocabulary has no token that could
    /// follow.
    Nothing,
}

impl GrammarState {
    pub(super) fn new(grammar: RequestGrammar) -> Self {
        Self { matcher: grammar.compiled.matcher(), grammar, read: Vec::new() }
    }

    /// Whether the grammar has ended after the new tokens of a row, so that no token but the end can follow.
    ///
    /// # Errors
    /// As for [`GrammarState::allowed`].
    pub(super) fn has_ended(&mut self, new_tokens: &[TokenId]) -> Result<bool> {
        let begin = match &self.grammar.thinking {
            None => 0,
            Some(thinking) => match thinking.place(new_tokens) {
                Place::Answer(begin, _) => begin,
                _ => return Ok(false),
            },
        };
        Ok(self.follow(&new_tokens[begin..])? == Followed::Whole && self.matcher.has_ended())
    }

    /// What may follow the new tokens of a row.
    ///
    /// # Errors
    /// `Config` when a limit of the grammar is reached.
    pub(super) fn allowed(&mut self, new_tokens: &[TokenId]) -> Result<Allowed> {
        let Some(thinking) = &self.grammar.thinking else { return self.allowed_in_answer(new_tokens) };
        match thinking.place(new_tokens) {
            Place::Thinking => Ok(Allowed::All { may_end: self.may_be_empty()? }),
            Place::Before(tokens) => Ok(Allowed::Only(tokens)),
            Place::Answer(begin, next) => {
                let mut allowed = self.allowed_in_answer(&new_tokens[begin..])?;
                match (&mut allowed, next) {
                    (Allowed::Tokens { mask, .. }, Some(next))
                        if next.index() < self.grammar.compiled.tokens.len =>
                    {
                        mask.allow_token(next.0);
                    }
                    (Allowed::Nothing, Some(next)) => allowed = Allowed::Only(vec![next]),
                    _ => {}
                }
                Ok(allowed)
            }
        }
    }

    /// Whether the grammar allows the empty text.
    fn may_be_empty(&mut self) -> Result<bool> {
        Ok(matches!(self.allowed_in_answer(&[])?, Allowed::Tokens { may_end: true, .. } | Allowed::End))
    }

    /// What may follow the tokens of an answer.
    fn allowed_in_answer(&mut self, new_tokens: &[TokenId]) -> Result<Allowed> {
        match self.follow(new_tokens)? {
            Followed::Whole => {}
            Followed::Ended => return Ok(Allowed::End),
            Followed::Not => return Ok(Allowed::Nothing),
        }
        if self.matcher.has_ended() {
            return Ok(Allowed::End);
        }
        match self.matcher.mask() {
            Ok(mask) => {
                let may_end = mask.is_allowed(self.grammar.compiled.tokens.len as u32);
                Ok(Allowed::Tokens { mask, may_end })
            }
            Err(stop) => self.stopped(stop).map(|()| Allowed::Nothing),
        }
    }

    /// Reads the tokens of a row that it has not read.
    fn follow(&mut self, new_tokens: &[TokenId]) -> Result<Followed> {
        if !new_tokens.starts_with(&self.read) {
            // Tokens were dropped.
            self.matcher = self.grammar.compiled.matcher();
            self.read.clear();
        }
        for &token in &new_tokens[self.read.len()..] {
            if self.grammar.eos_token_ids.contains(&token) {
                return Ok(Followed::Ended);
            }
            if token.index() >= self.grammar.compiled.tokens.len {
                return Ok(Followed::Not);
            }
            match self.matcher.read(token) {
                Ok(false) => return Ok(Followed::Not),
                Ok(true) => self.read.push(token),
                Err(stop) => return self.stopped(stop).map(|()| Followed::Not),
            }
        }
        Ok(Followed::Whole)
    }

    /// Tells a text that cannot go on from a limit, which is an error.
    fn stopped(&self, stop: Stop) -> Result<()> {
        match stop {
            Stop::DeadEnd => Ok(()),
            stop => Err(refused(self.grammar.compiled.field, stop)),
        }
    }
}

/// How far a row follows the grammar.
#[derive(Debug, PartialEq, Eq)]
enum Followed {
    Whole,
    /// Up to a token that ends it.
    Ended,
    /// Not to its end.
    Not,
}

impl ProcessorState for GrammarState {
    fn fork(&self) -> Box<dyn ProcessorState> {
        Box::new(self.clone())
    }
}
