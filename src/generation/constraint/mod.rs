//! Constraints: token sequences that the output of a constrained beam search has to hold.
//!
//! One file per kind. A constraint is a small state machine that sees the tokens of a sequence one by one and says
//! which token would bring it a step further. `ConstraintListState` follows several at once, at most one of them
//! half done.

mod disjunctive;
mod phrasal;
mod state;

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::types::TokenId;

pub use disjunctive::DisjunctiveConstraint;
pub use phrasal::PhrasalConstraint;
pub(super) use state::ConstraintListState;

/// The most steps that a constraint may take.
const MOST_STEPS: usize = 10_000;

/// What a token does to a constraint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConstraintStep {
    /// The token was a step forward.
    pub stepped: bool,
    /// With it the constraint is fulfilled.
    pub completed: bool,
    /// It broke the progress made so far, which begins again.
    pub reset: bool,
}

/// A condition on the tokens of an output.
pub trait Constraint: Send + Sync {
    /// The tokens that would bring it a step further; empty when it is fulfilled.
    ///
    /// # Errors
    /// Whatever makes the constraint impossible; the request ends with it.
    fn advance(&self) -> Result<Vec<TokenId>>;

    /// Whether the token would bring it a step further.
    ///
    /// # Errors
    /// As for [`advance`](Self::advance).
    fn does_advance(&self, token: TokenId) -> Result<bool>;

    /// Takes a token.
    ///
    /// # Errors
    /// As for [`advance`](Self::advance).
    fn update(&mut self, token: TokenId) -> Result<ConstraintStep>;

    /// The number of steps that are left at most; 0 when it is fulfilled.
    ///
    /// # Errors
    /// As for [`advance`](Self::advance).
    fn remaining(&self) -> Result<usize>;

    /// The number of steps it takes at most, from its beginning.
    fn max_steps(&self) -> usize;

    /// A copy as it was before the first token.
    ///
    /// # Errors
    /// As for [`advance`](Self::advance).
    fn fresh(&self) -> Result<Box<dyn Constraint>>;

    /// A copy as it is.
    ///
    /// # Errors
    /// As for [`advance`](Self::advance).
    fn fork(&self) -> Result<Box<dyn Constraint>>;

    /// Every token that it can ever ask for, to be checked against the vocabulary beforehand; empty when that is not
    /// known.
    fn tokens(&self) -> Vec<TokenId> {
        Vec::new()
    }
}

impl std::fmt::Debug for dyn Constraint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Constraint").field("max_steps", &self.max_steps()).finish_non_exhaustive()
    }
}

/// Walks through a caller's constraint once, so that one that can never be fulfilled is refused before anything is
/// computed: transformers' `Constraint.test`.
///
/// # Errors
/// `Callback` with the rule that it breaks, and whatever it fails with itself.
pub fn check(constraint: &dyn Constraint) -> Result<()> {
    let broken = |rule: &str| Err(Error::callback(format!("a constraint breaks a rule: {rule}")));
    let mut trial = constraint.fresh()?;
    let max_steps = trial.max_steps();
    if !(1..=MOST_STEPS).contains(&max_steps) {
        return broken(&format!(
            "`seqlen`, its number of steps, must be 1 to {MOST_STEPS}, but is {max_steps}"
        ));
    }
    for _ in 0..MOST_STEPS {
        let Some(&token) = trial.advance()?.first() else {
            return broken("advance() must name a token until it is fulfilled, but names none");
        };
        if !trial.does_advance(token)? {
            return broken(&format!(
                "does_advance() must be true for what advance() names, but is false for {token}"
            ));
        }
        if trial.update(token)?.completed {
            return match trial.remaining()? {
                0 => Ok(()),
                left => broken(&format!("remaining() must be 0 once it is fulfilled, but is {left}")),
            };
        }
    }
    broken(&format!("update() with what advance() names must fulfil it, but {MOST_STEPS} steps have not"))
}

/// The constraints of a request.
pub(super) type Constraints = Vec<Arc<dyn Constraint>>;
