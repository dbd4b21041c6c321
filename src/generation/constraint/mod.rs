//! Constraints: token sequences that the output of a constrained beam search has to hold.
//!
//! One file per kind. A constraint is a small state machine that sees the tokens of a sequence one by one and says
//! which token would bring it a step further. [`ConstraintListState`] follows several at once, at most one of them
//! half done.

mod disjunctive;
mod phrasal;
mod state;

use std::sync::Arc;

use crate::error::Result;
use crate::types::TokenId;

pub use disjunctive::DisjunctiveConstraint;
pub use phrasal::PhrasalConstraint;
pub(super) use state::ConstraintListState;

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

/// The constraints of a request.
pub(super) type Constraints = Vec<Arc<dyn Constraint>>;
