//! Several phrases, one of which must occur.

use crate::error::{Error, Result};
use crate::types::TokenId;

use super::{Constraint, ConstraintStep};

/// transformers' `DisjunctiveConstraint`: one of these phrases.
#[derive(Debug, Clone)]
pub struct DisjunctiveConstraint {
    phrases: Vec<Vec<TokenId>>,
    /// The tokens so far, the beginning of a phrase.
    current: Vec<TokenId>,
}

impl DisjunctiveConstraint {
    /// The constraint of several phrases.
    ///
    /// # Errors
    /// `Config` when there is no phrase, a phrase is empty, or one is the beginning of another, which could then never
    /// be reached.
    pub fn new(phrases: Vec<Vec<TokenId>>) -> Result<Self> {
        let rule = "`nested_token_ids` of a DisjunctiveConstraint must be";
        if phrases.is_empty() || phrases.iter().any(Vec::is_empty) {
            return Err(Error::config(format!("{rule} a list of lists of token ids, none of them empty")));
        }
        for (index, phrase) in phrases.iter().enumerate() {
            let begins =
                |(other, longer): (usize, &Vec<TokenId>)| other != index && longer.starts_with(phrase);
            if let Some((other, _)) = phrases.iter().enumerate().find(|&entry| begins(entry)) {
                return Err(Error::config(format!(
                    "{rule} phrases of which none begins another, but phrase {index} begins phrase {other}; leave the \
                     longer one out"
                )));
            }
        }
        Ok(Self { phrases, current: Vec::new() })
    }

    /// The tokens that may follow the tokens so far, each once, in the order of the phrases.
    fn next(&self) -> Vec<TokenId> {
        let mut next = Vec::new();
        for phrase in &self.phrases {
            match phrase.get(self.current.len()) {
                Some(token) if phrase.starts_with(&self.current) && !next.contains(token) => {
                    next.push(*token);
                }
                _ => {}
            }
        }
        next
    }

    fn is_completed(&self) -> bool {
        self.phrases.contains(&self.current)
    }
}

impl Constraint for DisjunctiveConstraint {
    fn advance(&self) -> Result<Vec<TokenId>> {
        Ok(self.next())
    }

    fn does_advance(&self, token: TokenId) -> Result<bool> {
        Ok(self.next().contains(&token))
    }

    fn update(&mut self, token: TokenId) -> Result<ConstraintStep> {
        let stepped = self.does_advance(token)?;
        if stepped {
            self.current.push(token);
        } else {
            self.current.clear();
        }
        Ok(ConstraintStep { stepped, completed: self.is_completed(), reset: !stepped })
    }

    fn remaining(&self) -> Result<usize> {
        Ok(if self.is_completed() { 0 } else { self.max_steps() - self.current.len() })
    }

    fn max_steps(&self) -> usize {
        self.phrases.iter().map(Vec::len).max().unwrap_or(0)
    }

    fn fresh(&self) -> Result<Box<dyn Constraint>> {
        Ok(Box::new(Self { phrases: self.phrases.clone(), current: Vec::new() }))
    }

    fn fork(&self) -> Result<Box<dyn Constraint>> {
        Ok(Box::new(self.clone()))
    }

    fn tokens(&self) -> Vec<TokenId> {
        self.phrases.concat()
    }
}
