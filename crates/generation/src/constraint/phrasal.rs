//! A phrase that must occur.

use rsgen_core::{Result, TokenId, refuse_if};

use super::{Constraint, ConstraintStep};

/// transformers' `PhrasalConstraint`: these tokens, one after the other.
#[derive(Debug, Clone)]
pub struct PhrasalConstraint {
    token_ids: Vec<TokenId>,
    fulfilled: usize,
}

impl PhrasalConstraint {
    /// The constraint of a phrase.
    ///
    /// # Errors
    /// `Config` when there is no token.
    pub fn new(token_ids: Vec<TokenId>) -> Result<Self> {
        refuse_if(
            token_ids.is_empty(),
            "token_ids",
            || "of a PhrasalConstraint must hold at least one token id",
        )?;
        Ok(Self { token_ids, fulfilled: 0 })
    }
}

impl Constraint for PhrasalConstraint {
    fn advance(&self) -> Result<Vec<TokenId>> {
        Ok(self.token_ids.get(self.fulfilled).copied().into_iter().collect())
    }

    fn does_advance(&self, token: TokenId) -> Result<bool> {
        Ok(self.token_ids.get(self.fulfilled) == Some(&token))
    }

    fn update(&mut self, token: TokenId) -> Result<ConstraintStep> {
        if !self.does_advance(token)? {
            self.fulfilled = 0;
            return Ok(ConstraintStep { reset: true, ..ConstraintStep::default() });
        }
        self.fulfilled += 1;
        let completed = self.fulfilled == self.token_ids.len();
        Ok(ConstraintStep { stepped: true, completed, reset: false })
    }

    fn remaining(&self) -> Result<usize> {
        Ok(self.token_ids.len() - self.fulfilled)
    }

    fn max_steps(&self) -> usize {
        self.token_ids.len()
    }

    fn fresh(&self) -> Result<Box<dyn Constraint>> {
        Ok(Box::new(Self { fulfilled: 0, ..self.clone() }))
    }

    fn fork(&self) -> Result<Box<dyn Constraint>> {
        Ok(Box::new(self.clone()))
    }

    fn tokens(&self) -> Vec<TokenId> {
        self.token_ids.clone()
    }
}
